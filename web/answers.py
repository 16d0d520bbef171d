"""Responses of the REST APIs in Pulsar's formats: JSON, plain text, empty, and errors with a reason."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from starlette.responses import Response, StreamingResponse

from ..errors import RequestRefused
from ..wire.printable import printable

PIECE_BYTES = 1 << 18
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class Refused(RequestRefused):
    """An error response to a request, with a status and a one-line reason.

    Attributes:
        status: HTTP status.
        reason: error message in one line; Pulsar's message if Pulsar has this error.
        headers: additional response headers.
    """

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, reason)
        self.reason = reason
        self.headers = headers


def done() -> Response:
    """Return 204, the response to most writes."""
    return Response(status_code=204)


def nothing() -> Response:
    """Return 200 without a body, Pulsar's response for an unset policy and for a few writes."""
    return Response(status_code=200)


def as_json(value: Any, status: int = 200) -> Response:
    """Return ``value`` as JSON."""
    return Response(encode(value), status, media_type="application/json")


def in_parts(parts: Iterable[bytes], media_type: str) -> Response:
    """Return a response with a large body that was rendered in parts.

    The body is sent in pieces of about `PIECE_BYTES`, yielding to the event loop after each.
    """
    pieces: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            pieces.append(b"".join(waiting))
            waiting, size = [], 0
    pieces.append(b"".join(waiting))
    if len(pieces) == 1:
        return Response(pieces[0], media_type=media_type)

    async def send() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
            await asyncio.sleep(0)

    length = {"content-length": str(sum(map(len, pieces)))}
    return StreamingResponse(send(), headers=length, media_type=media_type)


def as_text(text: str) -> Response:
    """Return a plain text response. As in Pulsar, its content type is JSON."""
    return Response(text, media_type="application/json")


def refusal(error: RequestRefused) -> Response:
    """Return the response for a rejected request."""
    # One line. Spaces within lines, and at the end of a single line, are preserved: Pulsar has them in some messages.
    lines = str(error).splitlines()
    reason = printable(" ".join(map(str.strip, lines)) if len(lines) > 1 else str(error))
    headers = error.headers if isinstance(error, Refused) else None
    return Response(encode({"reason": reason}), error.status, headers=headers, media_type="application/json")


def refusing(error: RequestRefused) -> Callable[[object], Response]:
    """Return a handler that rejects every request."""
    return lambda _: refusal(error)


def encode(value: Any) -> bytes:
    """Return compact JSON, with null for NaN and infinities."""
    try:
        return _encoder.encode(value).encode()
    except ValueError:
        return _encoder.encode(_finite(value)).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def not_supported(what: str, remedy: str) -> Refused:
    """Return the error for an unsupported feature, as no setting may be silently ignored."""
    return Refused(501, f"{what} is not supported by this broker: {remedy}")
