"""Connections of servers: `http` needs no authorities, `https` still checks who answers."""

from __future__ import annotations

import ssl

import httpx
import pytest
from magnetar.web import async_client


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
