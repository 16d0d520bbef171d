"""Forwarding of functions requests from the broker's web port to a live worker, streamed unmodified both ways.

`forwarded_identity` passes on the caller's identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, NamedTuple

from starlette.types import Receive, Scope, Send

from ...errors import MagnetarError
from ...tasks import FairPool, Room
from ...tasks.supervised import race
from ...web.answers import Refused, refusal
from ...web.authenticated import METHOD
from ...web.call import ROLES, caller_of
from ...web.httpx_import import import_httpx
from .forwarded_identity import Headers, Vouch, with_identity

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)
NOT_ENABLED = "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false"
NOT_READY = "Function worker service is not done initializing. Please try again in a little while."
CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 200
"""Maximum concurrent requests to workers; further requests wait for up to `POOL_TIMEOUT_S`."""
CONNECTIONS_PER_CALLER = 50
"""Limit per role, or per address for callers without a role: slow bodies and followed logs hold connections long."""
POOL_TIMEOUT_S = 20.0
_ONLY_TLS = "but brokerClientTlsEnabled requires TLS: set tlsEnabled and workerPortTls on the worker"
BEGIN_BYTES = 64 * 1024
"""Bytes of a body to read before contacting a worker, so that a stalled request holds no connection to it."""
_V2 = ("worker", "worker-stats", "functions")
_V3 = ("functions", "function", "sources", "source", "sinks", "sink")
_PREFIXES = (*(f"/admin/v2/{what}" for what in _V2), *(f"/admin/v3/{what}" for what in _V3))
NO_PACKAGES = (
    "Package Management Service is not enabled in the broker: packages are stored by Magnetar's functions workers, and"
    " none is running; start magnetar worker, or magnetar standalone without --no-functions-worker"
)
PACKAGES = "/admin/v3/packages/"
"""Path prefix of packages, forwarded to a worker if one is running."""
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host".split()
)
"""Hop-by-hop headers, which are not forwarded."""
_JUDGED = frozenset((b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user"))
"""Headers that this server used to check the origin. A worker would treat them as cross-site."""


def forwards(path: str) -> bool:
    """Return whether a path belongs to the functions worker."""
    return any(path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/") for prefix in _PREFIXES)


class WorkerTls(NamedTuple):
    """TLS settings for requests to workers.

    Attributes:
        trust_certs_file: file with trusted CA certificates; empty for the system's.
        is_required: whether workers must use TLS.
    """

    trust_certs_file: str = ""
    is_required: bool = False


class _ClientGone(Exception):
    """The client disconnected before the response was complete."""


class Forwarder:
    """ASGI application that forwards requests to a worker. Call `close` when the broker stops."""

    def __init__(
        self,
        worker_url: Callable[[], str | None],
        is_enabled: bool,
        vouch: Vouch | None = None,
        tls: WorkerTls = WorkerTls(),  # noqa: B008 (a value)
    ) -> None:
        """Create a forwarder without open connections.

        Args:
            worker_url: returns the address of a live worker, or None.
            is_enabled: False if the broker runs without functions.
            vouch: asserts to the worker the role of callers that it cannot authenticate from the request.
            tls: settings for connections to workers that use TLS.
        """
        self._tls = tls
        self._worker_url = worker_url
        self._is_enabled = is_enabled
        self._vouch = vouch
        self._client: httpx.AsyncClient | None = None
        self._connections = FairPool(MAX_CONNECTIONS, CONNECTIONS_PER_CALLER)

    async def close(self) -> None:
        """Close the connections to workers."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request and return the worker's response."""
        try:
            if not self._is_enabled:
                raise Refused(409, NOT_ENABLED)
            url = self._worker_url()
            if url is None:
                raise Refused(503, NOT_READY)
            if self._tls.is_required and not url.startswith("https:"):
                raise Refused(503, f"the functions worker at {url} has no TLS, {_ONLY_TLS}")
            await self._pass_on(url, scope, receive, send)
        except Refused as error:
            await refusal(error)(scope, receive, send)
        except _ClientGone:
            return

    def _headers(self, scope: Scope) -> Headers:
        passed = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP | _JUDGED]
        return with_identity(passed, scope.get(ROLES), scope.get(METHOD, ""), self._vouch)

    async def _pass_on(self, url: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._headers(scope)
        has_body = _has_body(scope)
        begun = await _begin(receive) if has_body else ([], False)
        client = await self._open_client()
        import httpx

        request = httpx.Request(
            scope["method"],
            httpx.URL(url).copy_with(raw_path=_target(scope)),
            headers=headers,
            content=_body(*begun, receive) if has_body else None,
        )
        caller = caller_of(scope)
        await self._take_connection(caller)
        try:
            await _exchange(client, request, url, scope, receive, send)
        finally:
            self._connections.give_back(caller)

    async def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            # Loaded on first use, as it takes 3 MB and 0.1 s, which must not block the event loop.
            await asyncio.to_thread(import_httpx)
        import httpx

        if self._client is None:
            from ...security.client_credentials import ClientCredentials
            from ...security.credentials.client_security import ClientSecurity
            from ...web.async_client import pool

            # Without the broker's certificate: a worker would treat it as the caller's, and return more than the caller
            # may see.
            credentials = ClientCredentials(ClientSecurity(tls_trust_certs_file=self._tls.trust_certs_file))
            timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
            self._client = pool(timeout, httpx.Limits(max_connections=MAX_CONNECTIONS), credentials)
        return self._client

    async def _take_connection(self, caller: str) -> None:
        """Wait until a caller may open another connection.

        Raises:
            Refused: 429 if the caller's other requests take too long, 503 if those of all callers do.
        """
        try:
            async with asyncio.timeout(POOL_TIMEOUT_S):
                await self._connections.take(caller)
        except TimeoutError:
            if self._connections.room(caller) is Room.SHARE_USED:
                reason = f"{caller} has {CONNECTIONS_PER_CALLER} requests to the functions worker in progress"
                raise Refused(429, f"{reason}: retry after some have finished") from None
            reason = f"all {MAX_CONNECTIONS} connections to the functions worker are in use"
            raise Refused(503, f"{reason}; retry shortly") from None


async def _exchange(
    client: httpx.AsyncClient, request: httpx.Request, url: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Send a request to the worker at a URL, and the worker's response to the client."""
    import httpx

    from ...web.async_client import tls_reason

    try:
        response = await client.send(request, stream=True)
    # OSError: httpx does not wrap TLS errors after the handshake. MagnetarError: from the trust file.
    except (httpx.HTTPError, OSError, MagnetarError) as error:
        reason = tls_reason(url, error) or f"{type(error).__name__}: {error}"
        raise Refused(503, f"the functions worker at {url} did not respond ({reason}); retry shortly") from error
    try:
        if _lacks_packages(scope, response):
            raise Refused(503, NO_PACKAGES)
        await _stream_answer(response, receive, send)
    except httpx.HTTPError as error:
        # The head was already sent: the only way to signal the error is to end the connection early, as a return does.
        log.warning("functions worker at %s aborted its response: %s", url, error or type(error).__name__)
    finally:
        await response.aclose()


def _lacks_packages(scope: Scope, response: httpx.Response) -> bool:
    """Return whether a worker lacks package support: Apache Pulsar's worker returns an HTML page for these paths."""
    is_page = response.headers.get("content-type", "").startswith("text/html")
    return is_page and response.status_code == 404 and scope["path"].startswith(PACKAGES)


async def _stream_answer(response: httpx.Response, receive: Receive, send: Send) -> None:
    """Stream the response. Stop immediately if the client disconnects, even while the worker sends nothing."""
    headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _HOP_BY_HOP]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    if not await race(_send_chunks(response, send), _until_disconnect(receive)):
        raise _ClientGone


async def _send_chunks(response: httpx.Response, send: Send) -> bool:
    """Forward the body and return True when it is complete."""
    async for chunk in response.aiter_raw():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    return True


async def _until_disconnect(receive: Receive) -> bool:
    """Wait until the client disconnects, and return False."""
    while (await receive())["type"] != "http.disconnect":
        continue
    return False


async def _begin(receive: Receive) -> tuple[list[bytes], bool]:
    """Return the first chunks of a body, and whether more follow."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more and size < BEGIN_BYTES:
        chunk, more = await _next(receive)
        chunks.append(chunk)
        size += len(chunk)
    return chunks, more


async def _body(chunks: list[bytes], more: bool, receive: Receive) -> AsyncIterator[bytes]:
    for chunk in chunks:
        if chunk:
            yield chunk
    while more:
        chunk, more = await _next(receive)
        if chunk:
            yield chunk


async def _next(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _ClientGone
    return message.get("body", b""), message.get("more_body", False)


def _target(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"].split(b"?")[0]
    return path + b"?" + query if query else path


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
