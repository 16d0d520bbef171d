"""Instance logs, as streaming responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse

from ...errors import RequestRefused
from ...tasks import TaskSet, awaited_elsewhere
from ...web.call import Query
from ..functions.components import Component
from ..functions.instances import Instances
from ..functions.log_stream import merged
from ..functions.service import FunctionName
from .app import WorkerCall

TAIL = Query("tail", int, 100)
FOLLOW = Query("follow", bool, False)
RELAYED = Query("relayed", bool, False)
CHECK_S = 1.0
"""Interval in seconds for rechecking the permission of a client that follows a log."""


def stream_logs(
    instances: Instances, call: WorkerCall, name: FunctionName, component: Component, number: int | None = None
) -> Response:
    """Return the last lines of the logs of one or all assigned instances.

    Args:
        instances: provides the logs.
        call: the request, with `TAIL` and `FOLLOW`.
        name: name of the component.
        component: kind of component.
        number: instance number; None for all instances.

    Raises:
        RequestRefused: 400, no instances are assigned.
    """
    tail, is_following = TAIL.of(call), FOLLOW.of(call)
    numbers = instances.assigned(name) if number is None else [number]
    if not numbers:
        raise RequestRefused(400, f"{name} has not been assigned yet")
    if tail < 0:
        raise RequestRefused(400, f"invalid tail {tail}: expected 0 or more lines")
    streams = []
    for one in numbers:
        prefix = b"[%d] " % one if len(numbers) > 1 else b""
        streams.append(instances.read_log(name, one, tail, prefix, is_following=is_following, component=component))
    pieces = merged(streams)
    # A relaying worker checks its own caller, because its renewed token would end the stream within an hour.
    is_relayed = RELAYED.of(call) and call.is_super_user
    if is_following and not is_relayed:
        pieces = while_allowed(pieces, call)
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8")


async def while_allowed(pieces: AsyncGenerator[bytes, None], call: WorkerCall) -> AsyncGenerator[bytes]:
    """Yield pieces until the client loses its permission, which is reported in a final line."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + CHECK_S
    tasks = TaskSet("followed log")

    async def read() -> bytes | None:
        return await anext(pieces, None)

    piece = tasks.start(read(), "piece", awaited_elsewhere)
    try:
        while True:
            await asyncio.wait((piece,), timeout=max(due_s - loop.time(), 0))
            if loop.time() >= due_s:
                if reason := await call.ended(time.time()):
                    yield f"the log ends here: {reason}\n".encode()
                    return
                due_s = loop.time() + CHECK_S
            if piece.done():
                if (found := piece.result()) is None:
                    return
                yield found
                piece = tasks.start(read(), "piece", awaited_elsewhere)
    finally:
        await tasks.close()
        await pieces.aclose()
