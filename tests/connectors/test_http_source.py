"""The source http: what is answered is durable, what is too much is refused, and who may send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from magnetar.api.connector_config import read_config
from magnetar.client.client import AsyncClient
from magnetar.connectors.http_source import HttpSource, HttpSourceConfig
from magnetar.errors import InvalidConfig
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Runtime
from magnetar.wire import functions_pb2 as records

from tests.connectors.direct import Direct, DirectContext
from tests.support.eventually import until
from tests.support.function_topics import receive
from tests.support.instances import MakeSpec, any_runtime, client, make_spec, server, topic
from tests.support.ports import Reserved

__all__ = ["any_runtime", "client", "make_spec", "server", "topic"]


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other test is given."""
    reserved = Reserved(1)
    yield reserved.numbers[0]
    del reserved


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        yield http


def spec_of(make_spec: MakeSpec, port: int, **configs: object) -> InstanceSpec:
    source = {"builtin": "http", "configs": json.dumps({"port": port, **configs})}
    return make_spec("", source=source, componentType=records.FunctionDetails.SOURCE)


async def listens(http: httpx.AsyncClient, port: int) -> None:
    async def answers() -> bool:
        try:
            return (await http.get(f"http://127.0.0.1:{port}/")).status_code in (405, 404)
        except httpx.TransportError:
            return False

    await until(answers)


async def test_bodies_become_records_and_are_answered_when_durable(
    client: AsyncClient, make_spec: MakeSpec, topic: str, any_runtime: Runtime, http: httpx.AsyncClient, port: int
) -> None:
    spec = spec_of(make_spec, port, headers=["X-Event"], keyHeader="x-key")
    instance = await any_runtime.start(spec)
    await listens(http, port)

    async def post(number: int) -> httpx.Response:
        return await http.post(
            f"http://127.0.0.1:{port}/orders/ü?shop={number}",
            content=json.dumps({"number": number, "ä": None}),
            headers={"X-Event": "order", "X-Key": f"k{number}"},
        )

    answers = await asyncio.gather(*map(post, range(200)))
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"status": "stored"})] * 200
    messages = {message.key: message for message in await receive(client, f"{topic}-out", 200)}
    assert messages.keys() == {f"k{number}" for number in range(200)}
    message = messages["k7"]
    assert json.loads(message.data) == {"number": 7, "ä": None}
    assert dict(message.properties) == {"path": "/orders/ü", "query.shop": "7", "header.x-event": "order"}
    assert message.event_time_ms
    await instance.stop(10)
    with pytest.raises(httpx.TransportError):
        await http.post(f"http://127.0.0.1:{port}/", content="1")


async def test_a_port_that_is_taken_is_retried(
    make_spec: MakeSpec, any_runtime: Runtime, http: httpx.AsyncClient
) -> None:
    taken = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    instance = await any_runtime.start(spec_of(make_spec, port))

    async def retries() -> bool:
        return (
            f"retrying (1 attempt): cannot serve HTTP on 127.0.0.1:{port}" in (await instance.status()).failureException
        )

    await until(retries)
    taken.close()
    await taken.wait_closed()
    await listens(http, port)
    await instance.stop(10)


class Open:
    """A source that nobody reads but the test."""

    def __init__(self, port: int, **configs: object) -> None:
        self.direct = Direct(HttpSource(), {"port": port, **configs}, DirectContext())
        self.url = f"http://127.0.0.1:{port}"
        self.direct.session.call(lambda: None)

    async def taken(self, count: int) -> list[bytes]:
        """Return so many bodies, none of them acknowledged."""
        return [record.value for record in await self.records(count)]

    async def records(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += await asyncio.to_thread(self.direct.connector.read)
        return found

    async def close(self) -> None:
        await asyncio.to_thread(self.direct.session.close)


async def test_senders_are_refused_by_name(port: int, http: httpx.AsyncClient) -> None:
    source = Open(port, path="/in", token="geheim", maxBodyBytes=100, answer="accepted")
    token = {"Authorization": "Bearer geheim", "Host": "hooks.example.org"}

    async def answer(method: str = "POST", path: str = "/in", content: Any = "1", **headers: Any) -> tuple[int, str]:
        given = await http.request(method, source.url + path, content=content, headers=token | headers)
        return given.status_code, next(iter(given.json().values()))

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"[" * 50

    assert await answer() == (202, "accepted")
    assert await answer(path="/out") == (404, "not found: send requests to /in")
    assert (await answer("GET"))[0] == 405
    assert await answer(Authorization="Bearer x") == (401, "token is missing or invalid")
    assert (await answer(Authorization="Bearer geheimß".encode()))[0] == 401
    assert (await answer(content="x" * 101)) == (
        413,
        "body of 101 bytes exceeds maxBodyBytes (100)",
    )
    assert (await answer(content=chunks()))[0] == 413
    assert (await answer(content="{no json")) == (
        400,
        "body is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    )
    assert (await answer(content="[" * 100))[0] == 400
    assert await source.taken(1) == [b"1"]
    await source.close()


async def test_without_a_token_only_known_names_are_answered(port: int, http: httpx.AsyncClient) -> None:
    source = Open(port, answer="accepted", allowedHosts="hooks.example.org")
    for host, status in (("hooks.example.org", 202), ("evil.example.org", 403)):
        answer = await http.post(source.url, content="1", headers={"Host": host})
        assert answer.status_code == status
    assert "allowedHosts of the source" in answer.json()["reason"]
    await source.close()


async def test_what_is_too_much_is_refused_until_it_is_durable(port: int, http: httpx.AsyncClient) -> None:
    source = Open(port, maxWaiting=2, retryAfter=7)
    waiting = [asyncio.create_task(http.post(source.url, content=str(number))) for number in range(2)]
    taken = await source.records(2)
    refused = await http.post(source.url, content="2")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "7")
    assert refused.json() == {"reason": "too many pending records"}
    taken[0].acknowledge()
    taken[1].fail()
    assert sorted([(await one).status_code for one in waiting]) == [200, 503]
    third = asyncio.create_task(http.post(source.url, content="3"))
    assert [record.value for record in await source.records(1)] == [b"3"]
    await source.close()
    assert (await third).status_code == 503  # it is not known whether it is stored


async def test_bytes_on_their_way_are_bounded(port: int, http: httpx.AsyncClient) -> None:
    source = Open(port, format="raw", maxBodyBytes=1000, maxWaitingBytes=1500, answer="accepted")
    answers = [(await http.post(source.url, content=b"\xff" * 1000)).status_code for _ in range(3)]
    assert answers == [202, 503, 503]
    (record,) = await source.records(1)
    record.acknowledge()

    async def is_taken() -> bool:
        return (await http.post(source.url, content=b"\x00" * 1000)).status_code == 202

    await until(is_taken)
    await source.close()


async def test_a_record_that_is_not_durable_in_time_is_answered_so(port: int, http: httpx.AsyncClient) -> None:
    source = Open(port, timeout=0.2)
    answer = await http.post(source.url, content="1")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "record was not stored within 0.2 s, but may still be stored"
    (record,) = await source.records(1)
    record.acknowledge()
    await source.close()


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"path": "in"}, "invalid path 'in': must start with /"),
        ({"maxWaitingBytes": 10}, "maxWaitingBytes must be at least maxBodyBytes"),
        ({"token": "ß"}, "token must contain only ASCII characters"),
        ({"port": 70000}, "port must be at most 65535"),
        ({"prot": 1}, "did you mean port"),
    ],
)
def test_bad_settings_are_refused_by_name(configs: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        HttpSource().check(read_config(HttpSourceConfig, configs))


@pytest.mark.parametrize(("answer", "status"), [("durable", 422), ("accepted", 202)])
async def test_refused_record_is_an_error_for_its_sender(
    port: int, http: httpx.AsyncClient, answer: str, status: int
) -> None:
    source = Open(port, answer=answer)
    try:
        sending = asyncio.create_task(http.post(source.url, content="1"))
        (record,) = await source.records(1)
        if answer == "durable":
            record.refuse("the transform function raised")
        else:
            assert record.refuse is None  # its sender has an answer already: it goes to the dead-letter topic
        found = await sending
        assert found.status_code == status
        if answer == "durable":
            assert found.json() == {"reason": "record was rejected: the transform function raised"}
    finally:
        await source.close()
