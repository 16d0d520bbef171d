"""Lines of a file or of standard input as entries, made by a thread of their own and never far ahead of the broker."""

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
"""Bounds of an entry; a line that is larger is an entry alone."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Length at which a line is given up before its end has come: no broker takes such a message."""
_BLOCK_BYTES = 1024 * 1024
_BLOCKS_AHEAD = 2


class LinesEntry(NamedTuple):
    """Lines that follow each other.

    Attributes:
        first: number of the first one; the first of all is 1.
        lines: their bytes, without what ends them.
        entry: the same, encoded; None where lines are to be sent one by one.
    """

    first: int
    lines: Sequence[bytes]
    entry: OutgoingEntry | None


def cut_into_lines(blocks: Iterator[bytes], name: str) -> Iterator[list[bytes]]:
    r"""Yield the lines of each block; a line ends with ``\n`` or ``\r\n``, the last one also with the file.

    Args:
        blocks: pieces of a file, cut anywhere, none of them empty.
        name: of the file, for errors.

    Raises:
        Failure: a line of more than `LINE_BYTES_MAX` bytes has no end; its number is in the text.
    """
    rest: list[bytes] = []  # pieces of the line that has not ended
    rest_bytes = count = 0
    for block in blocks:
        if b"\n" not in block:
            rest.append(block)
            rest_bytes += len(block)
            if rest_bytes > LINE_BYTES_MAX:
                raise Failure(f"line {count + 1} of {name} has more than {LINE_BYTES_MAX} bytes, which no broker takes")
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
    """Yield lines in groups of at most `ENTRY_LINES_MAX` and, if they are more than one, `ENTRY_BYTES_MAX`."""
    ends = list(accumulate(map(len, lines)))
    start = sent_bytes = 0
    while start < len(lines):
        by_size = bisect_right(ends, sent_bytes + ENTRY_BYTES_MAX, lo=start)
        end = max(start + 1, min(by_size, start + ENTRY_LINES_MAX))
        yield lines[start:end]
        start, sent_bytes = end, ends[end - 1]


class LineReader:
    """Reads lines in a thread, so that a slow pipe never holds up what is on its way.

    The thread is a daemon, and reads the file descriptor itself: one that waits for a terminal must not keep the
    command from ending. At most `_BLOCKS_AHEAD` blocks wait to be taken.
    """

    def __init__(self, file: int, name: str, attributes: bytes, key: str | None, *, encodes: bool) -> None:
        """Prepare to read.

        Args:
            file: the open file descriptor.
            name: of the file, for errors.
            attributes: what each message has beside its line, by `encode_attributes`; empty for nothing.
            key: of all messages.
            encodes: lines go out as whole entries, and not one by one.
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
        """Yield what is read, to its end.

        Raises:
            Failure: the file cannot be read on, or has a line without an end.

        Cancellation: safe; the thread ends when what it reads gives it something, or with the process.
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
        with suppress(RuntimeError):  # the loop is closed: nobody wants it any more
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
    """Yield each group with the number of lines before it."""
    before = 0
    for group in groups:
        yield before, group
        before += len(group)
