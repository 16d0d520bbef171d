"""Reads lines of a file or standard input as entries, in a separate thread, not far ahead of the broker."""

from __future__ import annotations

import asyncio
import os
import threading
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

from ...client.producers.outgoing import OutgoingEntry, encode_entry
from ..failure import Failure

ENTRY_LINES_MAX = 1000
ENTRY_BYTES_MAX = 128 * 1024
"""Maximum bytes of an entry with several lines; a larger line becomes a separate entry."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Length at which an unfinished line is rejected: no broker accepts such a message."""
_BLOCK_BYTES = 1024 * 1024
_BLOCKS_AHEAD = 2


class LinesEntry(NamedTuple):
    """Consecutive lines.

    Attributes:
        first: number of the first line, counting from 1.
        lines: the lines without line ends.
        entry: the encoded entry; None if lines are sent one by one.
    """

    first: int
    lines: Sequence[bytes]
    entry: OutgoingEntry | None


def cut_into_lines(blocks: Iterator[bytes], name: str) -> Iterator[list[bytes]]:
    r"""Yield the lines of each block; a line ends with ``\n`` or ``\r\n``, or with the file.

    Args:
        blocks: non-empty chunks of a file, split at any byte.
        name: file name for errors.

    Raises:
        Failure: a line is longer than `LINE_BYTES_MAX`; the message contains its number.
    """
    rest: list[bytes] = []  # pieces of the unfinished line
    rest_bytes = count = 0
    for block in blocks:
        if b"\n" not in block:
            rest.append(block)
            rest_bytes += len(block)
            if rest_bytes > LINE_BYTES_MAX:
                raise Failure(
                    f"line {count + 1} of {name} has more than {LINE_BYTES_MAX} bytes, the maximum message size"
                )
            continue
        lines = (b"".join((*rest, block)) if rest else block).split(b"\n")
        rest = [lines.pop()]
        rest_bytes = len(rest[0])
        count += len(lines)
        yield _without_returns(lines) if b"\r" in block or lines[0].endswith(b"\r") else lines
    if last := b"".join(rest):
        yield _without_returns([last])


def _without_returns(lines: list[bytes]) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in lines]


def group_lines(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Group lines: at most `ENTRY_LINES_MAX` per group and, with more than one line, `ENTRY_BYTES_MAX` bytes."""
    ends = list(accumulate(map(len, lines)))
    start = sent_bytes = 0
    while start < len(lines):
        by_size = bisect_right(ends, sent_bytes + ENTRY_BYTES_MAX, lo=start)
        end = max(start + 1, min(by_size, start + ENTRY_LINES_MAX))
        yield lines[start:end]
        start, sent_bytes = end, ends[end - 1]


class LineReader:
    """Reads lines in a thread, so that a slow pipe does not hold up messages in flight.

    The thread is a daemon, and reads the file descriptor directly: waiting for a terminal must not prevent the command
    from ending. At most `_BLOCKS_AHEAD` blocks are buffered.
    """

    def __init__(self, file: int, name: str, attributes: bytes, key: str | None, *, encodes: bool) -> None:
        """Create a reader.

        Args:
            file: the open file descriptor.
            name: file name for errors.
            attributes: other message attributes, encoded by `encode_attributes`; empty for none.
            key: key of all messages.
            encodes: whether to encode whole entries instead of sending lines one by one.
        """
        self._file = file
        self._name = name
        self._attributes = attributes
        self._key = key
        self._encodes = encodes
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[list[LinesEntry] | Failure | None] = asyncio.Queue()
        self._room = threading.Semaphore(_BLOCKS_AHEAD)
        self._is_left = False

    async def entries(self) -> AsyncGenerator[LinesEntry, None]:
        """Yield entries until the end of the file.

        Raises:
            Failure: the file cannot be read, or has an overlong line.

        Cancellation: safe; the thread ends with its next read, or with the process.
        """
        threading.Thread(target=self._run, name="lines", daemon=True).start()
        try:
            while (item := await self._ready.get()) is not None:
                if isinstance(item, Failure):
                    raise item
                for entry in item:
                    yield entry
                self._room.release()
        finally:
            self._is_left = True
            self._room.release()

    def _run(self) -> None:
        end: Failure | None = None
        first = 1
        try:
            for lines in cut_into_lines(self._blocks(), self._name):
                made = [self._made(first + start, group) for start, group in _numbered(group_lines(lines))]
                first += len(lines)
                self._room.acquire()
                if self._is_left:
                    return
                self._hand_over(made)
        except Failure as failure:
            end = failure
        except OSError as error:
            end = Failure(f"{self._name} cannot be read: {error.strerror}")
        self._hand_over(end)

    def _hand_over(self, item: list[LinesEntry] | Failure | None) -> None:
        with suppress(RuntimeError):  # the loop is closed, so the item is not needed
            self._loop.call_soon_threadsafe(self._ready.put_nowait, item)

    def _blocks(self) -> Iterator[bytes]:
        while block := os.read(self._file, _BLOCK_BYTES):
            yield block

    def _made(self, first: int, lines: Sequence[bytes]) -> LinesEntry:
        if not self._encodes:
            return LinesEntry(first, lines, None)
        headers = [self._attributes] * len(lines) if self._attributes else None
        return LinesEntry(first, lines, encode_entry(lines, headers, key=self._key))


def _numbered(groups: Iterator[Sequence[bytes]]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield each group with the number of preceding lines."""
    before = 0
    for group in groups:
        yield before, group
        before += len(group)
