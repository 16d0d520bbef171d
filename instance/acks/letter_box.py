"""Send letters to the dead-letter topic, with retries."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...client.config import ProducerConfig
from ...client.outgoing_message import Base64Key
from ...client.producers.outgoing import encode_entry
from ...client.producers.partitioned import PartitionedProducer
from ...client.producers.producer import Producer
from ...errors import ClosedError, MagnetarError, MessageTooLarge
from ...tasks import Backoff, TaskSet
from ...wire.frames import DEFAULT_MAX_MESSAGE_BYTES
from ...wire.function_letters import EXCEPTION, TRACEBACK
from ...wire.message_id import MessageId
from ..core import InstanceCore
from .dead_letters import Letter

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
SILENCE_S = 3.0
"""Time without a stored letter after which the status reports a problem."""


ENTRY_MESSAGES_MAX = 1000
ENTRY_BYTES_MAX = 512 * 1024


class _Waiting(NamedTuple):
    """A letter and the callback for when it is stored; sent alone or in chunks if it is too large for a batch."""

    letter: Letter
    stored: Callable[[], None]
    is_alone: bool = False
    in_chunks: bool = False


class LetterBox:
    """Sends letters to one dead-letter topic, on the event loop; producers are created on first use.

    Letters are retried with growing pauses until they are stored; callers must limit the number of letters.
    """

    def __init__(self, core: InstanceCore, topic: str, subscription: str) -> None:
        """Create the box without opening a producer.

        Args:
            core: the instance's core.
            topic: dead-letter topic.
            subscription: initial subscription of the topic, so that it retains letters until they are consumed.
        """
        self._core = core
        self._topic = topic
        self._config = ProducerConfig(send_timeout_ms=0, guard=core.guard, initial_subscription_name=subscription)
        self._waiting: deque[_Waiting] = deque()
        self._count = 0  # letters that are not stored yet
        self._wake = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._tasks = TaskSet("dead letters")
        self._task: asyncio.Task[None] | None = None
        self._producers: dict[bool, Producer | PartitionedProducer] = {}  # by whether the producer sends chunks
        self._error: MagnetarError | None = None
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._trouble = ""
        self._quiet_since_s = 0.0

    def put(self, letters: Sequence[Letter], stored: Callable[[], None]) -> None:
        """Queue one or more letters; ``stored`` is called once all are durable."""
        left = len(letters)

        def one_stored() -> None:
            nonlocal left
            left -= 1
            if not left:
                stored()

        if not self._count:
            self._quiet_since_s = time.monotonic()
        self._count += len(letters)
        self._is_empty.clear()
        self._waiting += [_Waiting(letter, one_stored) for letter in letters]
        self._wake.set()
        if self._task is None:
            self._task = self._tasks.start(self._serve(), f"letters to {self._topic}", self._core.failed)

    def trouble(self) -> str:
        """Return why letters cannot be stored, or an empty string (from any thread)."""
        count, trouble = self._count, self._trouble
        if not count:
            return ""
        if not trouble and time.monotonic() - self._quiet_since_s > SILENCE_S:
            trouble = f"no reply for {SILENCE_S:.0f} s"
        return (
            f"cannot store {count} dead letters in {self._topic}; their messages remain unacknowledged: {trouble}"
            * bool(trouble)
        )

    async def emptied(self) -> None:
        """Wait until all letters are stored, or return if storing fails. Cancellation: safe."""
        if not self.trouble():
            await self._is_empty.wait()

    async def close(self) -> None:
        """Drop unstored letters."""
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
            # With several partitions, the key determines the partition of each letter.
            run = self._take_run() if isinstance(producer, Producer) else [self._waiting.popleft()]
            try:
                future = _hand_over(producer, [waiting.letter for waiting in run])
            except MessageTooLarge as error:
                self._refused(run, error)
                continue
            except MagnetarError:
                self._waiting.extendleft(reversed(run))
                raise
            future.add_done_callback(partial(self._answered, run))

    def _take_run(self) -> list[_Waiting]:
        """Remove and return the letters for the next entry, at least one."""
        waiting = self._waiting
        run = [waiting.popleft()]
        size = run[0].letter.size
        while waiting and not (run[-1].is_alone or waiting[0].is_alone) and len(run) < ENTRY_MESSAGES_MAX:
            size += waiting[0].letter.size
            if size > ENTRY_BYTES_MAX:
                break
            run.append(waiting.popleft())
        return run

    async def _opened(self, in_chunks: bool) -> Producer | PartitionedProducer:
        producer = self._producers.get(in_chunks)
        if producer is None:
            config = replace(self._config, batching=False, chunking_enabled=True) if in_chunks else self._config
            config = self._core.encryption.letters(config)
            producer = self._producers[in_chunks] = await self._core.client.create_producer(self._topic, config)
        return producer

    def _answered(self, run: list[_Waiting], future: asyncio.Future[MessageId]) -> None:
        error = ClosedError("the producer was closed") if future.cancelled() else future.exception()
        if isinstance(error, MessageTooLarge):
            self._refused(run, error)
            self._wake.set()
            return
        if error is not None:
            self._waiting += run
            self._failed(error if isinstance(error, MagnetarError) else MagnetarError(repr(error)))
            self._wake.set()
            return
        self._trouble = ""
        self._backoff.reset()
        self._quiet_since_s = time.monotonic()
        self._count -= len(run)
        if not self._count:
            self._is_empty.set()
        for waiting in run:
            waiting.stored()

    def _refused(self, run: list[_Waiting], error: MessageTooLarge) -> None:
        """Resend letters that are too large: one by one, then with fewer properties or in chunks."""
        if len(run) > 1:
            self._waiting += [waiting._replace(is_alone=True) for waiting in run]
            return
        smaller = _smaller(run[0])
        self._waiting.append(smaller or run[0])
        if smaller is None:
            self._failed(error)

    def _failed(self, error: MagnetarError) -> None:
        self._error = error
        text = f"{type(error).__name__}: {error}"
        if text != self._trouble:
            self._trouble = text
            self._core.system_failed(f"cannot store dead letters in {self._topic}, retrying: {text}")

    async def _leave(self) -> None:
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            with contextlib.suppress(MagnetarError):
                await producer.close()


def _hand_over(producer: Producer | PartitionedProducer, letters: Sequence[Letter]) -> asyncio.Future[MessageId]:
    """Send letters as one entry, with the first one's key for key-based subscriptions."""
    payload, options = letters[0].options()
    if len(letters) == 1:
        return producer.send_nowait(payload, **options)
    key = options.get("key")
    payloads, attributes = zip(*letters, strict=True)
    return producer.send_entry(encode_entry(payloads, attributes, key=None if isinstance(key, Base64Key) else key))


def _smaller(waiting: _Waiting) -> _Waiting | None:
    """Return a letter that is easier to store, or None if no option is left.

    A message that fits no entry is sent in chunks; otherwise the longest reason property is removed.
    """
    if len(waiting.letter.payload) > DEFAULT_MAX_MESSAGE_BYTES and not waiting.in_chunks:
        return waiting._replace(is_alone=True, in_chunks=True)
    for name in (TRACEBACK, EXCEPTION):
        if (shorter := waiting.letter.without(name)) is not None:
            return waiting._replace(letter=shorter, is_alone=True)
    return None if waiting.in_chunks else waiting._replace(is_alone=True, in_chunks=True)
