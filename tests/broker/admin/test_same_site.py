"""Who may ask: names of the server, and pages of its own."""

from __future__ import annotations

import httpx
import pytest
from magnetar.errors import InvalidConfig
from magnetar.web.same_site import AllowedNames, allowed_names, refusal_of
from magnetar.web.serve import serve
from starlette.types import Receive, Scope, Send

from tests.broker.admin.conftest import RunningBroker

LOCAL = AllowedNames(frozenset({"127.0.0.1", "devbox"}))
CONFIGURED = AllowedNames(frozenset({"127.0.0.1"}), frozenset({"pulsar.example.com"}))
OPEN = AllowedNames(frozenset({"devbox"}), is_loopback=False)


def refusal(names: AllowedNames, **headers: str) -> str | None:
    return refusal_of([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()], names)


@pytest.mark.parametrize(
    ("names", "headers"),
    [
        (LOCAL, {}),
        (LOCAL, {"host": ""}),
        (LOCAL, {"host": "localhost:8080"}),
        (LOCAL, {"host": "LOCALHOST."}),
        (LOCAL, {"host": "app.localhost:8080"}),
        (LOCAL, {"host": "127.0.0.1:8080"}),
        (LOCAL, {"host": "[::1]:8080"}),
        (LOCAL, {"host": "192.168.1.7:8080"}),  # through a port that is forwarded
        (LOCAL, {"host": "devbox:8080"}),
        (LOCAL, {"host": "localhost:8080", "origin": "http://localhost:8080", "sec_fetch_site": "same-origin"}),
        (LOCAL, {"host": "127.0.0.1:8080", "origin": "http://localhost:8080", "sec_fetch_site": "cross-site"}),
        (LOCAL, {"host": "localhost", "origin": "http://localhost:80"}),
        (LOCAL, {"host": "localhost:8080", "sec_fetch_site": "none"}),
        (CONFIGURED, {"host": "pulsar.example.com"}),
        (
            CONFIGURED,
            {"host": "127.0.0.1:8080", "origin": "https://pulsar.example.com", "sec_fetch_site": "cross-site"},
        ),
        (OPEN, {"host": "broker:8080"}),
        (OPEN, {"host": "10.0.0.3:8080", "origin": "http://devbox:8080"}),
    ],
)
def test_requests_that_are_answered(names: AllowedNames, headers: dict[str, str]) -> None:
    assert refusal(names, **headers) is None


@pytest.mark.parametrize(
    ("names", "headers"),
    [
        (LOCAL, {"host": "evil.example:8080"}),
        (LOCAL, {"host": "broker:8080"}),
        (LOCAL, {"host": "localhost.evil.example"}),
        (LOCAL, {"host": "127.0.0.1.evil.example"}),
        (LOCAL, {"host": "127.1"}),
        (LOCAL, {"host": "evil.example@localhost"}),
        (LOCAL, {"host": "localhost:80:80"}),
        (LOCAL, {"host": "[]"}),
        (LOCAL, {"host": "localhost:8080", "origin": "http://evil.example"}),
        (LOCAL, {"host": "localhost:8080", "origin": "http://localhost:3000"}),
        (LOCAL, {"host": "localhost:8080", "origin": "null"}),
        (LOCAL, {"host": "localhost:8080", "origin": ""}),
        (LOCAL, {"host": "localhost:8080", "origin": "file://"}),
        (LOCAL, {"host": "localhost:8080", "origin": "https://localhost"}),
        (LOCAL, {"host": "localhost:8080", "sec_fetch_site": "cross-site"}),
        (LOCAL, {"host": "localhost:8080", "sec_fetch_site": "same-site"}),
        (LOCAL, {"origin": "http://evil.example"}),
        (CONFIGURED, {"host": "pulsar.example.com.evil.example"}),
        (CONFIGURED, {"host": "localhost", "origin": "http://example.com"}),
        (OPEN, {"host": "evil.example"}),
        (OPEN, {"host": "broker:8080", "origin": "http://localhost:8080"}),
    ],
)
def test_requests_that_are_not(names: AllowedNames, headers: dict[str, str]) -> None:
    reason = refusal(names, **headers)
    assert reason is not None
    assert "\n" not in reason


def test_two_hosts_are_refused() -> None:
    assert (
        refusal_of([(b"host", b"localhost"), (b"host", b"evil.example")], LOCAL) == "the request has two Host headers"
    )


def test_names_follow_from_the_address_and_the_settings() -> None:
    names = allowed_names("0.0.0.0", ["Pulsar.Example.com."], "worker-1.internal")
    assert not names.is_loopback
    assert {"worker-1.internal"} <= names.own
    assert "0.0.0.0" not in names.own
    assert names.configured == {"pulsar.example.com"}
    assert allowed_names("127.0.0.3").is_loopback
    assert allowed_names("localhost").is_loopback
    assert not allowed_names("broker.internal").is_loopback


@pytest.mark.parametrize("name", ["http://a", "a:80", "", "*", "a b", "a,b"])
def test_a_setting_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=r"webServiceAllowedHosts .--allowed-hosts.: .* is not a valid host name"):
        allowed_names("127.0.0.1", [name])


async def test_a_page_elsewhere_changes_nothing(broker: RunningBroker) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    foreign = {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}
    for headers in (foreign, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for method, path in (("PUT", topic), ("GET", "/metrics"), ("OPTIONS", topic), ("GET", "/no/such/path")):
            answer = await broker.http.request(method, path, headers=headers)
            assert answer.status_code == 403
            assert list(answer.json()) == ["reason"]
    assert (await broker.http.get("/admin/v2/persistent/public/default")).json() == []
    assert (await broker.http.put(topic, headers={"Origin": broker.web_url})).status_code == 204


async def test_a_worker_sees_a_request_that_the_broker_has_judged(broker: RunningBroker) -> None:
    seen: list[dict[bytes, bytes]] = []

    async def worker(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    server, port = await serve(worker, "127.0.0.1", 0)
    try:
        broker.worker_url = f"http://127.0.0.1:{port}"
        own = {"Origin": broker.web_url, "Sec-Fetch-Site": "same-origin"}
        answer = await broker.http.post("/admin/v3/functions/public/default/f", headers=own)
        assert answer.status_code == 204
        assert b"origin" not in seen[0]
        assert b"sec-fetch-site" not in seen[0]
        async with httpx.AsyncClient() as http:
            evil = await http.post(broker.worker_url, headers={"Origin": "http://evil.example"})
        assert evil.status_code == 403
        assert len(seen) == 1
    finally:
        await server.stop()
