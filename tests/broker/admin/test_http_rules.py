"""What every endpoint shares: paths, verbs, media types, limits, and the server under it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from urllib.parse import quote

import httpx
import pytest
from magnetar.broker.admin.bodies import MAX_BODY_BYTES
from magnetar.errors import InvalidConfig
from magnetar.web.serve import serve
from starlette.types import Receive, Scope, Send

from tests.broker.admin.conftest import RunningBroker

TOPIC = "/admin/v2/persistent/public/default/t"


async def test_an_unknown_path_says_so(broker: RunningBroker) -> None:
    answer = await broker.http.get("/admin/v2/nope/at/all/x/y/z")
    assert (answer.status_code, answer.json()) == (404, {"reason": "no such path: /admin/v2/nope/at/all/x/y/z"})


async def test_a_wrong_verb_names_the_right_ones(broker: RunningBroker) -> None:
    answer = await broker.http.post("/admin/v2/brokers/version")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "HEAD,GET,OPTIONS"


async def test_a_body_over_the_limit_is_refused(broker: RunningBroker) -> None:
    answer = await broker.http.put(TOPIC, content=b" " * (MAX_BODY_BYTES + 1))
    assert (answer.status_code, answer.json()["reason"]) == (413, f"the request body exceeds {MAX_BODY_BYTES} bytes")


@pytest.mark.parametrize("name", ["test:topic", "test%3Atopic", "a b", "ä", "x.y-z", "a%25b"])
async def test_topic_names_survive_the_way_there_and_back(name: str, broker: RunningBroker) -> None:
    assert (await broker.http.put(f"/admin/v2/persistent/public/default/{name}")).status_code == 204
    (listed,) = (await broker.http.get("/admin/v2/persistent/public/default")).json()
    local = listed.removeprefix("persistent://public/default/")
    assert local == httpx.URL(f"http://x/{name}").path[1:]
    assert (await broker.http.delete(f"/admin/v2/persistent/public/default/{name}")).status_code == 204
    assert (await broker.http.get("/admin/v2/persistent/public/default")).json() == []


@pytest.mark.parametrize("name", ["-partition-0", " -partition-0", "-partition-", "...", "a-partition-x"])
async def test_topics_with_unusual_names_are_created_and_deleted(name: str, broker: RunningBroker) -> None:
    path = f"/admin/v2/persistent/public/default/{quote(name, safe='')}"
    assert (await broker.http.put(path)).status_code == 204
    assert (await broker.http.get(f"{path}/stats")).status_code == 200
    assert (await broker.http.post(f"{path}/maxMessageSize", json=1000)).status_code == 204
    assert (await broker.http.delete(path)).status_code == 204
    assert (await broker.http.get("/admin/v2/persistent/public/default")).json() == []


async def test_a_subscription_name_is_decoded_twice(broker: RunningBroker) -> None:
    await broker.http.put(TOPIC)
    assert (await broker.http.put(f"{TOPIC}/subscription/a%252Fb%2520c+d")).status_code == 204
    assert (await broker.http.get(f"{TOPIC}/subscriptions")).json() == ["a/b c d"]


async def test_health_is_ok_and_leaves_one_topic(broker: RunningBroker) -> None:
    assert (await broker.http.get("/admin/v2/brokers/health")).text == "ok"
    assert (await broker.http.get("/admin/v2/brokers/ready")).text == "ok"
    assert broker.service.topic_names("public/default") == []


async def test_ready_is_refused_once_the_broker_stops(broker: RunningBroker) -> None:
    await broker.service.stop()
    answer = await broker.http.get("/admin/v2/brokers/ready")
    assert (answer.status_code, answer.json()) == (503, {"reason": "the broker is starting or stopping"})


async def test_metrics_count_what_there_is(broker: RunningBroker) -> None:
    await broker.http.put(f'{TOPIC}"quoted"')
    await broker.http.put(f"{TOPIC}/subscription/s")
    text = (await broker.http.get("/metrics")).text
    topic = 'cluster="standalone",namespace="public/default",topic="persistent://public/default/t"'
    assert 'pulsar_topics_count{cluster="standalone",namespace="public/default"} 2.0\n' in text
    assert "# TYPE pulsar_in_messages_total gauge\npulsar_in_messages_total{" in text
    assert f"\npulsar_in_messages_total{{{topic}}} 0.0\n" in text
    of_subscription = topic.replace(",topic=", ',subscription="s",topic=')
    assert f"pulsar_subscription_back_log{{{of_subscription}}} 0.0\n" in text
    assert 'topic="persistent://public/default/t\\"quoted\\""' in text
    assert 'pulsar_broker_subscriptions_count{cluster="standalone"} 1.0\n' in text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


async def test_a_port_in_use_is_named(broker: RunningBroker) -> None:
    port = int(broker.web_url.rsplit(":", 1)[1])
    with pytest.raises(InvalidConfig, match=f"cannot serve HTTP on 127.0.0.1:{port}: .*in use: choose another port"):
        await serve(broker.app, "127.0.0.1", port)
    with pytest.raises(InvalidConfig, match=r"cannot serve HTTP on no-such-host\.invalid:0"):
        await serve(broker.app, "no-such-host.invalid", 0)


async def test_stopping_frees_the_port_though_a_client_keeps_its_connection(broker: RunningBroker) -> None:
    server, port = await serve(broker.app, "127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        assert (await http.get("/admin/v2/tenants")).status_code == 200
        async with asyncio.timeout(3):
            await server.stop()
            await server.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_a_request_under_way_is_answered_before_the_server_stops(broker: RunningBroker) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    server, port = await serve(slow, "127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        asking = asyncio.ensure_future(http.get("/"))
        await entered.wait()
        stopping = asyncio.ensure_future(server.stop())
        go.set()
        assert (await asking).text == "late"
        await stopping


async def test_an_endless_head_is_cut_off(broker: RunningBroker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(broker.web_url.rsplit(":", 1)[1]))
    writer.write(b"GET /admin/v2/tenants HTTP/1.1\r\n")
    with pytest.raises(ConnectionError):  # noqa: PT012  some megabytes stay in the kernel's buffers before it shows
        for _ in range(8192):
            writer.write(b"X-More: " + b"x" * 8192 + b"\r\n")
            await writer.drain()
    writer.close()
    with contextlib.suppress(ConnectionError):  # the reset may overtake the answer
        assert (await reader.read(64)).startswith(b"HTTP/1.1 431 ")
    assert (await broker.http.get("/admin/v2/tenants")).status_code == 200


async def test_a_large_body_between_small_heads_is_no_large_head(broker: RunningBroker) -> None:
    for _ in range(4):
        answer = await broker.http.put(TOPIC, content=b" " * (MAX_BODY_BYTES - 1))
        assert answer.status_code in (204, 409)
