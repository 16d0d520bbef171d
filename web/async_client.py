"""REST client for event loops, based on httpx. Responses, errors, forms and redirects work as in `client`.

Credentials are added to each request that has none, including redirected requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from ..security.client_credentials import ClientCredentials
from ..security.tls_failure import tls_failure
from .client import (
    MAX_REDIRECTS,
    TLS_ENDED,
    Answer,
    AnswerTimeout,
    NoAnswer,
    NoTls,
    Unreachable,
    encode_body,
    redirected,
)

if TYPE_CHECKING:
    import ssl

_OF_SOCKET = ("getpeername", "getsockname")
"""Socket attributes that anyio reads from a new connection. They are missing if it was lost meanwhile."""
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


def connections(
    timeout_s: float, connect_timeout_s: float | None = None, credentials: ClientCredentials | None = None
) -> httpx.AsyncClient:
    """Return a connection pool, which must be closed in the loop that uses it.

    Proxy settings are ignored: an internet proxy does not reach a broker.

    Args:
        timeout_s: maximum time to wait for data from the server.
        connect_timeout_s: timeout for connecting; ``timeout_s`` by default.
        credentials: credentials and TLS settings; None sends none and trusts the system's authorities.
    """
    return pool(httpx.Timeout(timeout_s, connect=connect_timeout_s or timeout_s), credentials=credentials)


def pool(
    timeout: httpx.Timeout, limits: httpx.Limits = LIMITS, credentials: ClientCredentials | None = None
) -> httpx.AsyncClient:
    """Return a connection pool without a proxy, which must be closed in the loop that uses it.

    Args:
        timeout: default request timeout.
        limits: limits, applied separately to `http` and `https` connections.
        credentials: credentials and TLS settings; None sends none and trusts the system's authorities.
    """
    transport = CredentialsTransport(credentials or ClientCredentials(), limits)
    return httpx.AsyncClient(timeout=timeout, transport=transport, trust_env=False)


class CredentialsTransport(httpx.AsyncBaseTransport):
    """Transport that adds credentials to each request, and opens connections with the current certificates.

    Certificate authorities are loaded on the first `https` request, because this takes 30 ms and 1 MB per pool, and
    most processes only communicate with a broker or worker on the same machine.
    """

    def __init__(self, credentials: ClientCredentials, limits: httpx.Limits) -> None:
        """Create a transport without reading any file yet."""
        self._credentials = credentials
        self._make = partial(httpx.AsyncHTTPTransport, limits=limits, trust_env=False)
        self._plain = self._make(verify=False)  # for http only
        self._context: ssl.SSLContext | None = None
        self._secure: list[httpx.AsyncHTTPTransport] = []
        """Transports, of which the last has the current certificates. The previous one may have pending requests."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response.

        Raises:
            MagnetarError: the credentials or a certificate file cannot be read.
            httpx.TransportError: no response was received.
        """
        if self._credentials.authentication is not None and "Authorization" not in request.headers:
            request.headers.update(await asyncio.to_thread(self._credentials.headers))
        transport = self._plain if request.url.scheme == "http" else await self._secured()
        try:
            return await transport.handle_async_request(request)
        except AttributeError as error:
            if error.name not in _OF_SOCKET:
                raise
            raise httpx.ConnectError("the connection was lost immediately after it was established") from error

    async def _secured(self) -> httpx.AsyncHTTPTransport:
        context = await asyncio.to_thread(self._credentials.context)
        if context is not self._context:
            self._context = context
            self._secure.append(self._make(verify=context))
            while len(self._secure) > 2:
                await self._secure.pop(0).aclose()
        return self._secure[-1]

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (self._plain, *self._secure):
            await transport.aclose()


async def request(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: httpx.Timeout | None = None,
) -> Answer:
    """Send a request and return the response.

    Args:
        http: client with the connection pool.
        method: HTTP method.
        url: URL of the resource.
        body: a `Form`, or a value sent as JSON; None sends no body.
        headers: additional headers.
        timeout: overrides the timeout of `http`.

    Cancellation: the server may still execute the request.

    Raises:
        NoAnswer: no response was received; a subclass if the cause is known.
        MagnetarError: the credentials of ``http`` cannot be read or fetched.
    """
    content, own_headers = encode_body(body)
    target = url
    sent = {**own_headers, **(headers or {})}
    limit = timeout or httpx.USE_CLIENT_DEFAULT
    try:
        for _ in range(MAX_REDIRECTS):
            response = await http.request(method, target, content=content, headers=sent, timeout=limit)
            following = redirected(method, target, response.status_code, response.headers.get("location"))
            if following is None:
                status, phrase = response.status_code, response.reason_phrase
                return Answer(method, urlsplit(url).path, status, phrase, response.headers, response.content)
            target = following
    # OSError: httpx does not translate TLS errors after the handshake.
    except (httpx.ConnectError, httpx.ReadError, httpx.WriteError, OSError) as error:
        if failure := tls_reason(target, error):
            raise NoTls(method, target, failure) from error
        kind = Unreachable if isinstance(error, httpx.ConnectError) else NoAnswer
        is_ended = isinstance(error, httpx.ReadError) and target.startswith("https:")
        reason = str(error) or (TLS_ENDED if is_ended else type(error).__name__)
        raise kind(method, target, reason) from error
    except httpx.ConnectTimeout as error:
        raise Unreachable(method, target, str(error) or type(error).__name__) from error
    except httpx.TimeoutException as error:
        raise AnswerTimeout(method, target, str(error) or type(error).__name__) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(method, target, str(error) or type(error).__name__) from error
    raise NoAnswer(method, url, f"too many redirects: {MAX_REDIRECTS}")


def tls_reason(url: str, error: BaseException) -> str:
    """Return the TLS cause of an httpx error, taken from the underlying socket error, or an empty string."""
    cause: BaseException | None = error
    while cause is not None:
        if failure := tls_failure(urlsplit(url).netloc, cause):
            return str(failure)
        cause = cause.__cause__ or cause.__context__
    return ""
