"""`POST …/functions/{tenant}/{namespace}/{name}/reset-cursor`: have a function process its input again; ours alone."""

from __future__ import annotations

from ...errors import RequestRefused
from ...wire.strict_json import NotJson, read_json
from ..functions.cursor_reset import CursorReset, read_target
from .app import ONE_FUNCTION, WorkerCall, WorkerRoutes

BODY_BYTES_MAX = 4096


class ResetCursorRoute:
    """Handler of one worker."""

    def __init__(self, cursor_reset: CursorReset) -> None:
        self._cursor_reset = cursor_reset

    def routes(self) -> WorkerRoutes:
        """Return the route."""
        return (("POST", f"{ONE_FUNCTION}/reset-cursor", self.reset),)

    async def reset(self, call: WorkerCall) -> None:
        """Stop a function, move the cursors of its inputs to the target in the body, and start it again."""
        content = await call.body_bytes(BODY_BYTES_MAX)
        try:
            body = read_json(content)
        except NotJson as exc:
            raise RequestRefused(400, f"the request is not JSON: {exc}") from exc
        await self._cursor_reset.run(call.function, read_target(body))
