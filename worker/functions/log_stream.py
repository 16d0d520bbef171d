"""Stream of an instance's log: its last lines, and what is added while the client listens. Not in Pulsar."""

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


async def merged(streams: Sequence[AsyncIterator[bytes]]) -> AsyncGenerator[bytes, None]:
    """Yield from all streams as they come; each piece holds whole lines. Ends when all have ended."""
    if len(streams) == 1:
        async for piece in streams[0]:
            yield piece
        return
    pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(maxsize=len(streams))

    async def copy(stream: AsyncIterator[bytes]) -> None:
        try:
            async for piece in stream:
                await pieces.put(piece)
        except Exception as failure:  # noqa: BLE001  passed on to the reader of the pieces
            await pieces.put(failure)
        else:
            await pieces.put(None)

    # No task group: one that is left by the end of a generator, when the client has gone, takes that for an error.
    tasks = TaskSet("logs of a request")
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
