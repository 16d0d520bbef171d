"""The log of an instance as a stream: its last lines, and what is added while the client listens. Our addition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

MAX_LINES = 100_000
_BLOCK_BYTES = 64 * 1024
_POLL_S = 0.2


def _open_at_tail(path: Path, lines: int) -> tuple[bytes, int]:
    """Return the last lines of a file and the size that it had. Blocking; reads from the end in blocks."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return b"", 0
    with file:
        size = file.seek(0, 2)
        found = b""
        begin = size
        # One newline more than lines: the one before the first of them.
        while begin > 0 and found.count(b"\n") <= lines:
            step = min(_BLOCK_BYTES, begin)
            begin -= step
            file.seek(begin)
            found = file.read(step) + found
        kept = found.splitlines(keepends=True)[-lines:] if lines else []
        return b"".join(kept), size


def _read_from(path: Path, position: int) -> tuple[bytes, int]:
    """Return what was added behind a position; a file that became shorter was rotated and is read from its start."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < position:
                position = 0
            file.seek(position)
            found = file.read(_BLOCK_BYTES)
            return found, position + len(found)
    except FileNotFoundError:
        return b"", 0


async def stream_log(path: Path, lines: int, prefix: bytes, *, is_following: bool) -> AsyncIterator[bytes]:
    """Yield the last lines of a log, and if following what comes, until the client leaves.

    Args:
        path: the file; it need not exist yet.
        lines: how many of the lines that are there.
        prefix: put before each line, to tell instances apart.
        is_following: go on.
    """
    found, position = await asyncio.to_thread(_open_at_tail, path, min(lines, MAX_LINES))
    if found:
        yield _prefixed(found, prefix)
    rest = b""
    while is_following:
        found, position = await asyncio.to_thread(_read_from, path, position)
        if not found:
            await asyncio.sleep(_POLL_S)
            continue
        rest += found
        whole, newline, rest = rest.rpartition(b"\n")
        if newline or len(rest) > _BLOCK_BYTES:
            yield _prefixed(whole + newline or rest, prefix)
            rest = rest if newline else b""


def _prefixed(text: bytes, prefix: bytes) -> bytes:
    if not prefix:
        return text
    return b"".join(prefix + line for line in text.splitlines(keepends=True))


async def merged(streams: Sequence[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """Yield from all streams as they come; each piece holds whole lines. Ends when all have ended."""
    if len(streams) == 1:
        async for piece in streams[0]:
            yield piece
        return
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=len(streams))

    async def copy(stream: AsyncIterator[bytes]) -> None:
        try:
            async for piece in stream:
                await pieces.put(piece)
        finally:
            await pieces.put(None)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(copy(stream)) for stream in streams]
        try:
            left = len(tasks)
            while left:
                item = await pieces.get()
                if item is None:
                    left -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
