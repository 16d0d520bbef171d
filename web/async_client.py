"""REST calls in an event loop, on httpx; answers, errors, forms and redirects are those of `client`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx

from .client import MAX_REDIRECTS, Answer, AnswerTimeout, NoAnswer, Unreachable, encode_body, redirected

LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


def connections(timeout_s: float, connect_timeout_s: float | None = None) -> httpx.AsyncClient:
    """Return a pool of connections; close it in the loop that uses it.

    It goes through no proxy: one for the internet is not the way to a broker.
    """
    return pool(httpx.Timeout(timeout_s, connect=connect_timeout_s or timeout_s))


def pool(timeout: httpx.Timeout, limits: httpx.Limits = LIMITS) -> httpx.AsyncClient:
    """Return connections that go through no proxy; close them in the loop that uses them.

    The authorities of the internet are read at the first `https` request: that takes 30 ms and 1 MB for each pool, and
    most talk to a broker or a worker beside them only.

    Args:
        timeout: of requests that have no other.
        limits: of connections to `http` addresses, and of those to `https` addresses.
    """
    make = partial(httpx.AsyncHTTPTransport, limits=limits, trust_env=False)
    trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        timeout=timeout, trust_env=False, transport=make(verify=trusts_nobody), mounts={"https://": _AtFirstUse(make)}
    )


class _AtFirstUse(httpx.AsyncBaseTransport):
    """A transport that is made when there is a request for it."""

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._make = make
        self._made: httpx.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        if self._made is None:
            self._made = self._make()
        return await self._made.handle_async_request(request)

    async def aclose(self) -> None:
        """See httpx."""
        if self._made is not None:
            await self._made.aclose()


async def request(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: httpx.Timeout | None = None,
) -> Answer:
    """Make a request and return the answer.

    Args:
        http: connections.
        method: of HTTP.
        url: of the resource.
        body: a `Form`, or sent as JSON; None sends nothing.
        headers: further ones.
        timeout: instead of that of `http`.

    Cancellation: the server may carry the request out nevertheless.

    Raises:
        NoAnswer: there is no answer; a subclass where it is known why.
    """
    content, own_headers = encode_body(body)
    target = url
    sent = {**own_headers, **(headers or {})}
    limit = timeout or httpx.USE_CLIENT_DEFAULT
    try:
        for _ in range(MAX_REDIRECTS):
            response = await http.request(method, target, content=content, headers=sent, timeout=limit)
            following = redirected(target, response.status_code, response.headers.get("location"))
            if following is None:
                status, phrase = response.status_code, response.reason_phrase
                return Answer(method, urlsplit(url).path, status, phrase, response.headers, response.content)
            target = following
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(method, target, str(error) or type(error).__name__) from error
    except httpx.TimeoutException as error:
        raise AnswerTimeout(method, target, str(error) or type(error).__name__) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(method, target, str(error) or type(error).__name__) from error
    raise NoAnswer(method, url, f"it was redirected {MAX_REDIRECTS} times")
