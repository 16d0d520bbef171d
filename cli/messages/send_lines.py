"""``magnetar produce --lines``: sends each line of a file as a message, as fast as the broker stores them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from ...errors import MagnetarError, MessageTooLarge
from ..failure import Failure
from ..settings import Settings
from .connecting import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...client.producers.partitioned import PartitionedProducer
    from ...client.producers.producer import Producer
    from .line_reader import LineReader, LinesEntry

PENDING_LINES_MAX = 50_000
PENDING_BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes in flight: enough to keep the broker's disk busy, but suitable for small machines."""
SHOW_EVERY_S = 0.5
PACED_PARTS_PER_S = 20
"""Minimum number of batches per second when a rate is given."""


class Progress:
    """Counts lines, and shows the count on standard error if it is a terminal."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored = 0
        self._shows = sys.stderr.isatty()
        self._started_s = self._shown_s = time.monotonic()
        self._width = 0

    def show(self, *, is_last: bool = False) -> None:
        """Show the progress, at a readable frequency."""
        now_s = time.monotonic()
        if not self._shows or (now_s - self._shown_s < SHOW_EVERY_S and not (is_last and self._width)):
            return
        self._shown_s = now_s
        rate = self.stored / max(now_s - self._started_s, 1e-3)
        text = f"{self.stored:,} lines stored, {rate:,.0f} lines/s"
        self._width = max(self._width, len(text))
        click.echo(f"\r{text:<{self._width}}", nl=is_last, err=True)


@contextmanager
def opened(name: str) -> Iterator[int]:
    """Provide the descriptor of a file, or of standard input for ``-``.

    Raises:
        Failure: the file is missing or unreadable.
    """
    if name == "-":
        yield sys.stdin.fileno()
        return
    try:
        file = os.open(name, os.O_RDONLY)
        os.read(file, 0)
    except OSError as exc:
        raise Failure(f"--lines {name} cannot be read: {exc.strerror}") from exc
    try:
        yield file
    finally:
        os.close(file)


async def send_lines(
    cluster: Settings, topic: str, name: str, options: dict[str, Any], rate: float, settings: dict[str, Any]
) -> int:
    """Send each line of a file as a message, and return the number of stored messages.

    Args:
        cluster: address and credentials.
        topic: the target topic.
        name: file name; ``-`` for standard input.
        options: key and properties of all messages.
        rate: lines per second; 0 for unlimited.
        settings: producer settings.

    Raises:
        Failure: the file cannot be read, or a line is too large for the broker; the lines before it were stored.

    Cancellation: safe; sent messages stay sent, and their number is printed to standard error.
    """
    from ...client.config import ProducerConfig
    from ...wire.batch import encode_attributes
    from ...wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
    from .line_reader import LineReader

    header = SingleMessageMetadata()
    if options["key"] is not None:
        header.partition_key = options["key"]
    header.properties.extend(KeyValue(key=key, value=value) for key, value in (options["properties"] or {}).items())
    shown_name = "standard input" if name == "-" else name
    config = ProducerConfig(max_pending_messages=PENDING_LINES_MAX, max_pending_bytes=PENDING_BYTES_MAX, **settings)
    with opened(name) as file:
        async with connected(cluster) as client:
            producer = await client.create_producer(topic, config)
            reader = LineReader(
                file, shown_name, encode_attributes(header), options["key"], encodes=settings["batching"]
            )
            sender = _Sender(producer, Progress(), shown_name, options, rate)
            try:
                await sender.run(reader)
            except asyncio.CancelledError:
                with suppress(MagnetarError):
                    sender.look()
                click.echo(f"{sender.progress.stored} lines were stored", err=True)
                raise
            finally:
                sender.progress.show(is_last=True)
            await producer.close()
    return sender.progress.stored


class _Sender:
    """Passes entries to the producer and checks every receipt."""

    def __init__(
        self,
        producer: Producer | PartitionedProducer,
        progress: Progress,
        name: str,
        options: dict[str, Any],
        rate: float,
    ) -> None:
        self.progress = progress
        self._producer = producer
        self._name = name
        self._options = options
        self._rate = rate
        self._started_s = time.monotonic()
        self._receipts: deque[tuple[int, asyncio.Future[Any]]] = deque()

    async def run(self, reader: LineReader) -> None:
        """Send all entries of a reader."""
        try:
            async with aclosing(reader.entries()) as parts:
                async for part in parts:
                    if self._rate > 0:
                        await self._send_paced(part)
                    elif part.entry is None:
                        await self._send_singly(part)
                    else:
                        await self._send_entry(part)
                    self.look()
        except Failure:
            await self._finish()  # ensures that the topic contains exactly the lines before the failed one
            raise
        await self._finish()

    async def _send_entry(self, part: LinesEntry) -> None:
        await self._producer.ready()
        try:
            receipt = self._producer.send_entry(part.entry)  # type: ignore[arg-type]
        except MessageTooLarge as exc:
            raise self._refusal(part.first, len(part.lines[0]), exc) from exc
        self._sent(len(part.lines), receipt)

    async def _send_singly(self, part: LinesEntry) -> None:
        for number, line in enumerate(part.lines, part.first):
            await self._send_line(number, line)

    async def _send_line(self, number: int, line: bytes) -> None:
        await self._producer.ready()
        try:
            receipt = self._producer.send_nowait(line, **self._options)
        except MessageTooLarge as exc:
            raise self._refusal(number, len(line), exc) from exc
        self._sent(1, receipt)

    async def _send_paced(self, part: LinesEntry) -> None:
        """Send lines one by one at the given rate, in bursts of at most a twentieth of a second."""
        for number, line in enumerate(part.lines, part.first):
            early_s = self._started_s + self.progress.sent / self._rate - time.monotonic()
            if early_s > 1 / PACED_PARTS_PER_S or (early_s > 0 and self._rate <= PACED_PARTS_PER_S):
                await asyncio.sleep(early_s)
                self.look()
            await self._send_line(number, line)

    def _sent(self, count: int, receipt: asyncio.Future[Any]) -> None:
        self.progress.sent += count
        self._receipts.append((count, receipt))

    def look(self) -> None:
        """Count the messages stored since the last call; raise the error of a failed one."""
        receipts = self._receipts
        while receipts and receipts[0][1].done():
            count, receipt = receipts.popleft()
            receipt.result()
            self.progress.stored += count
        self.progress.show()

    async def _finish(self) -> None:
        """Wait until all sent messages are stored."""
        while self._receipts:
            await asyncio.wait([self._receipts[0][1]], timeout=SHOW_EVERY_S)
            self.look()

    def _refusal(self, number: int, size: int, error: MagnetarError) -> Failure:
        before = f"; lines 1 to {number - 1} were sent" if number > 1 else "; nothing was sent"
        return Failure(f"line {number} of {self._name} is too large with {size} bytes: {error}{before}")
