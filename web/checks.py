"""Checks of every request to a web server before an application sees it.

One place for the rules that do not depend on what is asked: whom a request is for and who sent it, how long its path
may be, and that path and query are UTF-8. The applications may then decode them without checks of their own.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import Refused, refusal
from .same_site import AllowedNames, refusal_of

MAX_PATH_BYTES = 8192
MAX_QUERY_BYTES = 32 * 1024
_BAD_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")


class CheckedRequests:
    """ASGI application around the one that answers: refuses what is not meant for it."""

    def __init__(self, app: ASGIApp, names: AllowedNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # uvicorn is told to serve HTTP only
            return
        try:
            check_sender(scope, self._names)
            check_target(scope)
        except Refused as error:
            await refusal(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def check_sender(scope: Scope, names: AllowedNames) -> None:
    """Refuse with 403 what a web page of another site may have sent."""
    reason = refusal_of(scope["headers"], names)
    if reason is not None:
        raise Refused(403, reason, {"connection": "close"})


def check_target(scope: Scope) -> None:
    """Refuse a path or query that is too long, or no UTF-8 behind its escapes."""
    path: bytes = scope["raw_path"].split(b"?")[0]
    query: bytes = scope["query_string"]
    for what, text, longest in (("path", path, MAX_PATH_BYTES), ("query", query, MAX_QUERY_BYTES)):
        if len(text) > longest:
            raise Refused(414, f"the {what} of {len(text)} bytes exceeds {longest}")
        if _BAD_ESCAPE.search(text):
            raise Refused(400, f"the {what} has a % that two hexadecimal digits do not follow")
        try:
            unquote_to_bytes(text).decode()
        except UnicodeDecodeError as error:
            raise Refused(400, f"the {what} is no UTF-8: {error.reason} at byte {error.start}") from error
