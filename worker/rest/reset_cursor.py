"""`POST …/functions/{tenant}/{namespace}/{name}/reset-cursor`: have a function process its input again; ours alone."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...errors import RequestRefused
from ...wire.strict_json import NotJson, read_json
from ..functions.cursor_reset import CursorReset, read_target
from ..functions.service import FunctionName
from .answers import nothing

BODY_BYTES_MAX = 4096


class ResetCursorRoute:
    """The handler; made once per worker."""

    def __init__(self, cursor_reset: CursorReset) -> None:
        self._cursor_reset = cursor_reset

    def router(self) -> APIRouter:
        """Return the route."""
        router = APIRouter(prefix="/admin/v3/functions", tags=["functions"])
        path = "/{tenant}/{namespace}/{name}/reset-cursor"
        router.add_api_route(path, self.reset, methods=["POST"], response_model=None)
        return router

    async def reset(self, request: Request, tenant: str, namespace: str, name: str) -> Response:
        """Stop a function, move the cursors of its inputs to the target in the body, and start it again."""
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > BODY_BYTES_MAX:
                raise RequestRefused(413, f"the request has more than {BODY_BYTES_MAX} bytes")
        try:
            body = read_json(content)
        except NotJson as exc:
            raise RequestRefused(400, f"the request is not JSON: {exc}") from exc
        await self._cursor_reset.run(FunctionName(tenant, namespace, name), read_target(body))
        return nothing()
