"""Streams the last lines of an instance's log, and optionally new lines. Not in Pulsar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path

from ...instance.logs.file import LogFollower, tail
from ...tasks import TaskSet, awaited_elsewhere

MAX_LINES = 100_000
_POLL_S = 0.2


async def stream_log(
    path: Path, lines: int, prefix: bytes, *, is_following: bool, is_here: Callable[[], bool] = lambda: True
) -> AsyncIterator[bytes]:
    """Yield the last lines of a log and, if following, new ones until the client disconnects or the instance moves.

    Args:
        path: log file, which need not exist yet.
        lines: number of existing lines to yield.
        prefix: prefix of each line that identifies the instance.
        is_following: whether to continue with new lines.
        is_here: returns False once the instance writes its log on another worker.
    """
    # The follower starts at the current end of the file. A line written before the tail is read may be repeated, but no
    # line is lost.
    follower = await asyncio.to_thread(LogFollower, path)
    if found := await asyncio.to_thread(tail, path, min(lines, MAX_LINES)):
        yield _prefixed(found, prefix)
    while is_following:
        was_here = is_here()  # checked before reading, so that the last lines are not missed
        if found := await asyncio.to_thread(follower.read):
            yield _prefixed(found, prefix)
        elif not was_here:
            return
        else:
            await asyncio.sleep(_POLL_S)


def _prefixed(text: str, prefix: bytes) -> bytes:
    return b"".join(prefix + line for line in text.encode().splitlines(keepends=True))


async def merged(streams: Sequence[AsyncIterator[bytes]]) -> AsyncGenerator[bytes, None]:
    """Yield pieces, each with whole lines, from all streams as they arrive, until all streams have ended."""
    if len(streams) == 1:
        async for piece in streams[0]:
            yield piece
        return
    pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(maxsize=len(streams))

    async def copy(stream: AsyncIterator[bytes]) -> None:
        try:
            async for piece in stream:
                await pieces.put(piece)
        except Exception as failure:  # noqa: BLE001  passed to the reader of the pieces
            await pieces.put(failure)
        else:
            await pieces.put(None)

    # Not a task group, which would raise an error when the generator is closed because the client disconnected.
    tasks = TaskSet("log streaming")
    for stream in streams:
        tasks.start(copy(stream), "copy", awaited_elsewhere)
    try:
        left = len(streams)
        while left:
            item = await pieces.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        await tasks.close()
