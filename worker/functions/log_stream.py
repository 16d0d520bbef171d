"""Stream of an instance's log: its last lines, and what is added while the client listens. Not in Pulsar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from ...instance.logs.file import LogFollower, tail

MAX_LINES = 100_000
_POLL_S = 0.2


async def stream_log(
    path: Path, lines: int, prefix: bytes, *, is_following: bool, is_here: Callable[[], bool] = lambda: True
) -> AsyncIterator[bytes]:
    """Yield the last lines of a log, and if following what comes, until the client leaves or the instance does.

    Args:
        path: the file; it need not exist yet.
        lines: how many of the lines that are there.
        prefix: put before each line, to tell instances apart.
        is_following: go on.
        is_here: returns False once the instance writes its log on another worker.
    """
    # The follower begins where the file ends now; a line written before the tail is read may come twice, never none.
    follower = await asyncio.to_thread(LogFollower, path)
    if found := await asyncio.to_thread(tail, path, min(lines, MAX_LINES)):
        yield _prefixed(found, prefix)
    while is_following:
        was_here = is_here()  # before the read, so that the last lines are not missed
        if found := await asyncio.to_thread(follower.read):
            yield _prefixed(found, prefix)
        elif not was_here:
            return
        else:
            await asyncio.sleep(_POLL_S)


def _prefixed(text: str, prefix: bytes) -> bytes:
    return b"".join(prefix + line for line in text.encode().splitlines(keepends=True))


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
