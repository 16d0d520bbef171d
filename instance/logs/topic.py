"""Copy an instance's log to the function's log topic.

Design: lines are taken on any thread and sent on the event loop. A slow topic must not slow down a function, so lines
beyond `WAITING_LINES_MAX` or `WAITING_CHARACTERS_MAX` are dropped, and their number is sent to the topic. A text that
exceeds the message size limit is truncated with a note; texts rejected by the broker are reported in the log file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from ...client.client import AsyncClient
from ...client.config import Guard, ProducerConfig
from ...client.producers.partitioned import PartitionedProducer
from ...client.producers.producer import Producer
from ...errors import MagnetarError
from ...tasks import TaskSet, call_in, within
from ...wire.message_id import MessageId
from ..spec import InstanceSpec
from .file import InstanceLog, bounded

WAITING_LINES_MAX = 10_000
WAITING_CHARACTERS_MAX = 16 * 1024 * 1024
MESSAGE_CHARACTERS_MAX = 256 * 1024
"""At most 1.5 MiB when encoded, which brokers accept unless `maxMessageSize` is much smaller."""
REFUSALS_TOLD = 100
"""Rejected messages per line in the log file."""
_CLOSE_S = 1.0


class LogTopic:
    """Sends the log of one instance to its log topic."""

    def __init__(self, spec: InstanceSpec, instance_log: InstanceLog) -> None:
        """Create the log topic on the event loop, and start collecting lines."""
        self._topic = spec.details.logTopic
        self._properties = {"fqn": spec.function_name, "instance": str(spec.instance_id)}
        self._log = instance_log
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[str, str]] = deque()
        self._waiting_characters = 0
        self._dropped = 0
        self._refused = 0
        self._tasks = TaskSet(f"log topic of {spec.key}")
        self._arrived = asyncio.Event()
        self._is_woken = False
        self._producer: Producer | PartitionedProducer | None = None
        instance_log.observers.append(self._observe)

    def _observe(self, level: str, text: str) -> None:
        text = bounded(text, MESSAGE_CHARACTERS_MAX)
        is_full = self._waiting_characters + len(text) > WAITING_CHARACTERS_MAX
        if is_full or len(self._waiting) >= WAITING_LINES_MAX:
            self._dropped += 1
            return
        self._waiting_characters += len(text)  # approximate with concurrent writers; 0 when all is sent
        self._waiting.append((level, text))
        if not self._is_woken:
            self._is_woken = True
            call_in(self._loop, self._arrived.set)

    async def open(
        self,
        client: AsyncClient,
        guard: Guard | None,
        encrypted: Callable[[ProducerConfig], ProducerConfig] = lambda config: config,
    ) -> None:
        """Start sending; raises the same errors as `AsyncClient.create_producer`.

        Args:
            client: connects to the broker.
            guard: guard of the producer.
            encrypted: adds encryption keys to the producer config.
        """
        config = ProducerConfig(compression="LZ4", batch_max_delay_ms=100, send_timeout_ms=0, guard=guard)
        self._producer = await client.create_producer(self._topic, encrypted(config))
        producer = self._producer
        self._tasks.keep(lambda: self._run(producer), "sender", on_failure=self._failed)

    def _failed(self, failure: BaseException) -> None:
        self._log.write("WARNING", f"lost log lines for {self._topic}: {failure!r}", to_file_only=True)

    async def _run(self, producer: Producer | PartitionedProducer) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._send_waiting(producer)

    async def _send_waiting(self, producer: Producer | PartitionedProducer) -> None:
        self._is_woken = False
        while self._waiting:
            level, text = self._waiting.popleft()
            self._waiting_characters = self._waiting_characters - len(text) if self._waiting else 0
            await self._send(producer, level, text)
            if self._dropped and not self._waiting:
                count, self._dropped = self._dropped, 0
                now = datetime.now(UTC).isoformat(timespec="seconds")
                await self._send(
                    producer, "WARNING", f"{now}: dropped {count} lines, too fast for this topic; see the log"
                )

    async def _send(self, producer: Producer | PartitionedProducer, level: str, text: str) -> None:
        await producer.ready()
        try:
            sent = producer.send_nowait(
                text.encode("utf-8", "backslashreplace"), properties={"loglevel": level} | self._properties
            )
        except MagnetarError as error:
            self._count_refused(error)
        else:
            sent.add_done_callback(self._sent)

    def _sent(self, sent: asyncio.Future[MessageId]) -> None:
        if not sent.cancelled() and (failure := sent.exception()) is not None:
            self._count_refused(failure)

    def _count_refused(self, failure: BaseException) -> None:
        if self._refused % REFUSALS_TOLD == 0:
            self._log.write(
                "WARNING", f"rejected line {self._refused + 1} for {self._topic}: {failure}", to_file_only=True
            )
        self._refused += 1

    async def close(self) -> None:
        """Send queued lines within a short time limit, and close the producer."""
        with contextlib.suppress(ValueError):
            self._log.observers.remove(self._observe)
        await self._tasks.close()
        if self._producer is None:
            return
        with contextlib.suppress(MagnetarError):
            await within(_CLOSE_S, self._send_waiting(self._producer))
        # Always close it: instances that share a client must not leave a producer behind.
        await within(_CLOSE_S, self._producer.close())
