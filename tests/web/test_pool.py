"""Connections of servers: `http` needs no authorities, `https` still checks who answers."""

from __future__ import annotations

import ssl
from typing import Any, cast

import httpx
import pytest
from magnetar.web import async_client
from magnetar.web.client import Unreachable


async def test_authorities_are_read_at_the_first_https_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    make = httpx.AsyncHTTPTransport

    def counted(*, verify: ssl.SSLContext | bool = True, **others: object) -> httpx.AsyncHTTPTransport:
        made.append(verify is not False)
        return make(verify=verify, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", counted)
    async with async_client.connections(1.0) as http:
        for url, expected in (
            ("http://127.0.0.1:1/", [False]),
            ("https://127.0.0.1:1/", [False, True]),
            ("https://127.0.0.1:1/", [False, True]),
        ):
            with pytest.raises(httpx.ConnectError):
                await http.get(url)
            assert made == expected


async def test_a_connection_that_breaks_as_soon_as_it_is_made_is_no_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        gone: Any = None  # as anyio has it, whose stream has lost its socket
        return cast(httpx.Response, gone.getpeername() if request.url.path == "/broken" else gone.other())

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", broken)
    async with async_client.connections(10) as http:
        with pytest.raises(Unreachable, match="the connection was lost immediately after it was established"):
            await async_client.request(http, "GET", "http://127.0.0.1:1/broken")
        with pytest.raises(AttributeError):
            await async_client.request(http, "GET", "http://127.0.0.1:1/other")
