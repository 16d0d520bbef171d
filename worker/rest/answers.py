"""How this interface answers: nothing with 204, JSON as JSON, every error as one line in `reason`."""

from __future__ import annotations

import logging
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ...errors import ConnectionLost, MagnetarError, OperationTimeout, PackageError, RequestRefused
from ...wire.printable import one_line

_log = logging.getLogger(__name__)


def nothing() -> Response:
    """Return 204 without a body."""
    return Response(status_code=204)


def refused(status: int, reason: str) -> JSONResponse:
    """Return an error as every Pulsar client reads it."""
    return JSONResponse({"reason": one_line(reason)}, status)


def finite(value: Any) -> Any:
    """Return the value with numbers that JSON does not have as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value


def install_error_answers(app: FastAPI) -> None:
    """Make every error leave as JSON with a reason."""

    @app.exception_handler(RequestRefused)
    async def on_refused(request: Request, exc: RequestRefused) -> Response:
        return refused(exc.status, str(exc))

    @app.exception_handler(PackageError)
    async def on_package(request: Request, exc: PackageError) -> Response:
        return refused(400, str(exc))

    @app.exception_handler(MagnetarError)
    async def on_error(request: Request, exc: MagnetarError) -> Response:
        status = 503 if isinstance(exc, ConnectionLost | OperationTimeout) else 500
        _log.warning("%s %s failed: %s", request.method, request.url.path, exc)
        return refused(status, f"{type(exc).__name__}: {exc}")

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, exc: HTTPException) -> Response:
        reasons = {404: f"no such path: {request.url.path}", 405: f"{request.method} is not allowed here"}
        answer = refused(exc.status_code, reasons.get(exc.status_code, str(exc.detail)))
        answer.headers.update(exc.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, exc: RequestValidationError) -> Response:
        first = exc.errors()[0]
        return refused(400, f"{first['loc'][-1]}: {first['msg']}")

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(request: Request, exc: ClientDisconnect) -> Response:
        return nothing()  # nobody is left to read it

    @app.exception_handler(Exception)
    async def on_bug(request: Request, exc: Exception) -> Response:
        _log.exception("%s %s failed", request.method, request.url.path)
        return refused(500, f"{type(exc).__name__}: {exc}")
