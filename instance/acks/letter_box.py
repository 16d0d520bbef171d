"""LetterBox: brings letters to the dead-letter topic, as often as it takes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...client.config import ProducerConfig
from ...client.producers.partitioned import PartitionedProducer
from ...client.producers.producer import Producer
from ...errors import ClosedError, MagnetarError, MessageTooLarge
from ...tasks import Backoff, TaskSet
from ...wire.frames import DEFAULT_MAX_MESSAGE_BYTES
from ...wire.function_letters import EXCEPTION, TRACEBACK
from ...wire.message_id import MessageId
from ..core import InstanceCore
from ..publish_request import PublishRequest

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
SILENCE_S = 3.0
"""How long nothing may be stored before the status says so."""


class _Letter(NamedTuple):
    """A letter, and who is told when it is stored; in chunks if it is too large for an entry."""

    request: PublishRequest
    stored: Callable[[], None]
    in_chunks: bool = False


class LetterBox:
    """The producers of the dead-letter topic, each made for the first letter that needs it; used on the event loop.

    What is not stored is sent again, after growing pauses, until it is; whoever gives letters bounds how many wait.
    """

    def __init__(self, core: InstanceCore, topic: str, subscription: str) -> None:
        """Prepare; nothing is opened yet.

        Args:
            core: of the instance.
            topic: where letters go.
            subscription: that the topic gets, so that it keeps letters until somebody has taken them.
        """
        self._core = core
        self._topic = topic
        self._config = ProducerConfig(send_timeout_ms=0, guard=core.guard, initial_subscription_name=subscription)
        self._waiting: deque[_Letter] = deque()
        self._count = 0  # that are not stored
        self._wake = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._tasks = TaskSet("dead letters")
        self._task: asyncio.Task[None] | None = None
        self._producers: dict[bool, Producer | PartitionedProducer] = {}  # by whether they send in chunks
        self._error: MagnetarError | None = None
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._trouble = ""
        self._quiet_since_s = 0.0

    def put(self, request: PublishRequest, stored: Callable[[], None]) -> None:
        """Take a letter; ``stored`` is called once it is durable."""
        if not self._count:
            self._quiet_since_s = time.monotonic()
        self._count += 1
        self._is_empty.clear()
        self._waiting.append(_Letter(request, stored))
        self._wake.set()
        if self._task is None:
            self._task = self._tasks.start(self._serve(), f"letters to {self._topic}", self._core.failed)

    def trouble(self) -> str:
        """Return why letters are not stored, empty if they are (from any thread)."""
        count, trouble = self._count, self._trouble
        if not count:
            return ""
        if not trouble and time.monotonic() - self._quiet_since_s > SILENCE_S:
            trouble = f"no answer for {SILENCE_S:.0f} s"
        return f"{count} dead letters are not stored in {self._topic}, and not acknowledged: {trouble}" * bool(trouble)

    async def emptied(self) -> None:
        """Wait until everything is stored, unless that does not work now. Cancellation: safe."""
        if not self.trouble():
            await self._is_empty.wait()

    async def close(self) -> None:
        """Give up what is not stored yet."""
        await self._tasks.close()
        await self._leave()

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._error is None:
                    await self._send()
            except MagnetarError as error:
                self._failed(error)
            if self._error is not None:
                await self._leave()
                await asyncio.sleep(self._backoff.next_s())
                self._error = None
                self._wake.set()

    async def _send(self) -> None:
        while self._waiting and self._error is None:
            producer = await self._opened(self._waiting[0].in_chunks)
            await producer.ready()
            letter = self._waiting.popleft()
            try:
                future = producer.send_nowait(letter.request.payload, **letter.request.options)
            except MessageTooLarge as error:
                self._refused(letter, error)
                continue
            except MagnetarError:
                self._waiting.appendleft(letter)
                raise
            future.add_done_callback(partial(self._answered, letter))

    async def _opened(self, in_chunks: bool) -> Producer | PartitionedProducer:
        producer = self._producers.get(in_chunks)
        if producer is None:
            config = replace(self._config, batching=False, chunking_enabled=True) if in_chunks else self._config
            producer = self._producers[in_chunks] = await self._core.client.create_producer(self._topic, config)
        return producer

    def _answered(self, letter: _Letter, future: asyncio.Future[MessageId]) -> None:
        error = ClosedError("the producer was closed") if future.cancelled() else future.exception()
        if isinstance(error, MessageTooLarge):
            self._refused(letter, error)
            self._wake.set()
            return
        if error is not None:
            self._waiting.append(letter)
            self._failed(error if isinstance(error, MagnetarError) else MagnetarError(repr(error)))
            self._wake.set()
            return
        self._trouble = ""
        self._backoff.reset()
        self._quiet_since_s = time.monotonic()
        self._count -= 1
        if not self._count:
            self._is_empty.set()
        letter.stored()

    def _refused(self, letter: _Letter, error: MessageTooLarge) -> None:
        """Send a letter that is too large again, with less beside the message or in chunks."""
        smaller = _smaller(letter)
        self._waiting.append(smaller or letter)
        if smaller is None:
            self._failed(error)

    def _failed(self, error: MagnetarError) -> None:
        self._error = error
        text = f"{type(error).__name__}: {error}"
        if text != self._trouble:
            self._trouble = text
            self._core.system_failed(f"dead letters are not stored in {self._topic}: {text}")

    async def _leave(self) -> None:
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            with contextlib.suppress(MagnetarError):
                await producer.close()


def _smaller(letter: _Letter) -> _Letter | None:
    """Return a letter in chunks if its message fits no entry, else without the longest property that tells why.

    Returns: None if it has been all of that.
    """
    request = letter.request
    if len(request.payload) > DEFAULT_MAX_MESSAGE_BYTES and not letter.in_chunks:
        return letter._replace(in_chunks=True)
    properties = request.options.get("properties", {})
    longest = next((name for name in (TRACEBACK, EXCEPTION) if name in properties), None)
    if longest is None:
        return None if letter.in_chunks else letter._replace(in_chunks=True)
    options = request.options.copy()
    options["properties"] = {name: value for name, value in properties.items() if name != longest}
    return letter._replace(request=replace(request, options=options))
