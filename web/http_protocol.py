"""HTTP/1.1 protocol of all web servers: uvicorn's, with limits on slow clients.

uvicorn waits indefinitely for the rest of a request. Here a request's head has a timeout, and its body an idle timeout.
When the connection limit is reached, a new connection replaces the one that has been idle longest, so that clients that
send nothing cannot lock out others.

Invariant: a connection whose request is complete is never closed to make room for another.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.responses import Response

from ..security.open_files import HTTP_CONNECTIONS, part
from .uvicorn_import import HttpToolsProtocol

MAX_CONNECTIONS = 2048
"""`maxHttpServerConnections`; lower if the process may open few files, which storage also needs."""
CERTIFICATE = "magnetar.certificate"
"""Scope key for the client certificate in the format of `ssl.SSLSocket.getpeercert`: empty without a certificate, and
None without TLS."""
MIN_BODY_BYTES = 1024
_FLUSH_S = 5.0
"""Time that a dropped client has to read the reason."""
_TELL_S = 60.0
"""Minimum interval between log lines about too many connections."""
MAX_HEAD_BYTES = 64 * 1024
"""Maximum size of the request line and headers."""
_READ_BYTES = 256 * 1024
"""Maximum size of an event loop read, which may contain the end of a body before the head that is counted."""
_BUSY = "all connections of this server are in use; retry shortly"
_BINARY = "this is an HTTP port, but the client speaks Pulsar's binary protocol: use pulsar://host:6650"
_BINARY_SIZES_BYTES = 8
_CONNECT = b"\x08\x02\x12"
"""First bytes of the first frame of Pulsar's binary protocol, after the sizes."""
_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}

_log = logging.getLogger(__name__)


def _connections() -> int:
    return part(HTTP_CONNECTIONS, MAX_CONNECTIONS)


@dataclass(slots=True, kw_only=True)
class HttpLimits:
    """Limits for the clients of a server.

    Attributes:
        max_connections: maximum number of connections: a quarter of the open file limit, but at most 2,048.
        head_timeout_s: maximum time from connecting, or the first byte of a later request, to the end of the headers.
        body_timeout_s: period in which a body must grow by `MIN_BODY_BYTES` unless the server has paused reading.
    """

    max_connections: int = field(default_factory=_connections)
    head_timeout_s: float = 10.0
    body_timeout_s: float = 20.0
    _told_s: float = field(default=float("-inf"), init=False)

    def tell_full(self) -> None:
        """Log that the connection limit is reached, at most once a minute."""
        now_s = time.monotonic()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            _log.warning(
                "all %d connections of a web port are in use: closing the longest idle ones to accept new clients",
                self.max_connections,
            )


class HttpProtocol(HttpToolsProtocol):
    """A connection, created by uvicorn."""

    def __init__(self, *, limits: HttpLimits, **uvicorn_own: Any) -> None:
        super().__init__(**uvicorn_own)
        self._limits = limits
        self._head_bytes = 0
        self._body_bytes = 0
        self._is_in_body = False
        self._heard_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def _is_busy(self) -> bool:
        """Whether a request is in progress and not yet answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def awaits_client(self) -> bool:
        """Whether the server waits for the client to send a request or its body, or to read a response."""
        return not self._is_busy or self._awaits_body or self.flow.write_paused

    @property
    def _awaits_body(self) -> bool:
        return self._is_in_body and not self.flow.read_paused and not self.cycle.waiting_for_100_continue

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection. If the limit is exceeded, close the connection that has been idle longest."""
        super().connection_made(transport)
        self._heard_s = time.monotonic()
        if len(self.connections) > self._limits.max_connections:
            self._limits.tell_full()
            others = (one for one in self.connections if isinstance(one, HttpProtocol) and one is not self)
            oldest = min((one for one in others if one.awaits_client), key=lambda one: one._heard_s, default=None)
            if oldest is None:
                self.app = Response(_reason(_BUSY), 503, {"connection": "close"}, "application/json")
            else:
                oldest.give_up(503, "all connections are in use, and this one was idle longest: retry")
        self._expect_within(self._limits.head_timeout_s, self._look_at_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def give_up(self, status: int, reason: str) -> None:
        """Close the connection, with an error response if a request is incomplete and no response has started."""
        self.connections.discard(self)
        self._stop_waiting()
        if self.transport.is_closing():
            return
        waits_for_body = self._is_in_body and self._is_busy and not self.cycle.response_started
        if waits_for_body or (self._head_bytes and not self._is_busy and not self._is_in_body):
            content = _reason(reason)
            head = (
                f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
            self.transport.close()
            self.loop.call_later(_FLUSH_S, self.transport.abort)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse received data unless the request head is too large."""
        if self.transport.is_closing():
            return
        self._heard_s = time.monotonic()
        if self._is_in_body:
            self._body_bytes += len(data)
        else:
            if not self._head_bytes and data.startswith(_CONNECT, _BINARY_SIZES_BYTES):
                self._head_bytes = len(data)
                _log.info("%s: %s", self.client, _BINARY)
                self.give_up(400, _BINARY)
                return
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES + _READ_BYTES:
                self.give_up(431, f"the request head exceeds {MAX_HEAD_BYTES} bytes")
                return
        super().data_received(data)
        if self._deadline is None and not self._is_busy and not self._is_in_body:
            # Blank lines before a request: uvicorn has stopped its timer, and no message has started.
            self._expect_within(self._limits.head_timeout_s, self._look_at_head)

    def on_message_begin(self) -> None:
        """Start counting the head of a request."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[CERTIFICATE] = self.transport.get_extra_info("peercert")
        self._expect_within(self._limits.head_timeout_s, self._look_at_head)

    def on_headers_complete(self) -> None:
        """Record that the head is complete and the body follows."""
        self._is_in_body = True
        self._body_bytes = 0
        super().on_headers_complete()
        self._expect_within(self._limits.body_timeout_s, self._look_at_body)

    def on_message_complete(self) -> None:
        """Record that the request is complete and the head of the next one follows."""
        self._is_in_body = False
        self._head_bytes = 0
        self._stop_waiting()
        super().on_message_complete()

    def _expect_within(self, timeout_s: float, look: Callable[[], None]) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(timeout_s, look)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _look_at_head(self) -> None:
        """Close the connection if the head is incomplete, unless another response is in progress."""
        timeout_s = self._limits.head_timeout_s
        if self._is_busy:
            self._expect_within(timeout_s, self._look_at_head)
        else:
            self.give_up(408, f"the request head was not complete within {timeout_s:g} s")

    def _look_at_body(self) -> None:
        """Close the connection if the body does not grow, unless the server has paused reading."""
        timeout_s, grown = self._limits.body_timeout_s, self._body_bytes
        self._body_bytes = 0
        if self._awaits_body and grown < MIN_BODY_BYTES:
            self.give_up(408, f"the request body was too slow: received {grown} bytes in {timeout_s:g} s")
        else:
            self._expect_within(timeout_s, self._look_at_body)


def _reason(text: str) -> bytes:
    return json.dumps({"reason": text}).encode()
