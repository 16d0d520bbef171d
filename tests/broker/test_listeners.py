"""Advertised addresses, listeners and bind addresses: what lookups name, and which settings are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pulsar
import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.listeners import BindAddress, check_host, read_bind_addresses, read_listeners
from magnetar.client import AsyncClient, ClientConfig
from magnetar.errors import InvalidConfig, NotAllowed
from magnetar.wire import pulsar_api_pb2 as pb

from ..support.ports import Reserved
from .brokers import running_broker
from .raw import Raw

TOPIC = "persistent://public/default/t"
LISTENERS = read_listeners(
    "internal:pulsar://inside:6650, external:pulsar://out.example.com:16650, internal:pulsar+ssl://inside:6651"
)


async def lookup(port: int, **fields: Any) -> pb.CommandLookupTopicResponse:
    raw = await Raw.connected(port)
    raw.send("LOOKUP", topic=TOPIC, request_id=1, authoritative=False, **fields)
    answer: pb.CommandLookupTopicResponse = (await raw.receive()).command.lookupTopicResponse
    await raw.close()
    return answer


async def test_lookup_names_the_advertised_address(tmp_path: Path) -> None:
    async with running_broker(tmp_path, advertised_address="broker.example.com") as broker:
        answer = await lookup(broker.port)
        assert answer.brokerServiceUrl == f"pulsar://broker.example.com:{broker.port}"
        assert not answer.proxy_through_service_url
        assert not answer.HasField("brokerServiceUrlTls")
        assert broker.broker_id == f"broker.example.com:{broker.config.web_port}"


async def test_lookup_names_the_listener_that_is_asked_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path, advertised_listeners=LISTENERS, internal_listener="internal") as broker:
        for asked in ({}, {"advertised_listener_name": ""}, {"advertised_listener_name": "internal"}):
            answer = await lookup(broker.port, **asked)
            urls = (answer.brokerServiceUrl, answer.brokerServiceUrlTls)
            assert urls == ("pulsar://inside:6650", "pulsar+ssl://inside:6651")
            assert not answer.proxy_through_service_url
        answer = await lookup(broker.port, advertised_listener_name="external")
        assert answer.brokerServiceUrl == "pulsar://out.example.com:16650"
        assert not answer.HasField("brokerServiceUrlTls")


async def test_advertised_address_counts_for_schemes_that_no_listener_has(tmp_path: Path) -> None:
    listeners = read_listeners("a:http://inside:8080")
    settings: dict[str, Any] = {"advertised_listeners": listeners, "advertised_address": "broker.example.com"}
    async with running_broker(tmp_path, **settings) as broker:
        answer = await lookup(broker.port)
        assert answer.brokerServiceUrl == f"pulsar://broker.example.com:{broker.port}"
        assert not answer.HasField("brokerServiceUrlTls")  # the broker has no such port


async def test_first_listener_is_internal_by_default(tmp_path: Path) -> None:
    async with running_broker(tmp_path, advertised_listeners=LISTENERS) as broker:
        assert (await lookup(broker.port)).brokerServiceUrl == "pulsar://inside:6650"
        assert broker.broker_id.startswith("inside:")


@pytest.mark.parametrize("settings", [{}, {"advertised_listeners": LISTENERS}, {"advertised_address": "inside"}])
async def test_unknown_listener_is_refused_in_pulsars_words(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with running_broker(tmp_path, **settings) as broker:
        answer = await lookup(broker.port, advertised_listener_name="nope")
        assert answer.response == pb.CommandLookupTopicResponse.Failed
        assert (answer.error, answer.message) == (pb.ServiceNotReady, "the broker do not have nope listener")


async def test_connection_by_a_bind_address_belongs_to_its_listener(tmp_path: Path) -> None:
    port = Reserved(1).numbers[0]
    bound = read_bind_addresses(f"external:pulsar://127.0.0.1:{port}")
    async with running_broker(tmp_path, advertised_listeners=LISTENERS, bind_addresses=bound) as broker:
        assert (await lookup(port)).brokerServiceUrl == "pulsar://out.example.com:16650"
        assert (await lookup(port, advertised_listener_name="internal")).brokerServiceUrl == "pulsar://inside:6650"
        assert (await lookup(broker.port)).brokerServiceUrl == "pulsar://inside:6650"


async def test_official_and_own_client_connect_to_their_listener(tmp_path: Path) -> None:
    reserved = Reserved(2)
    internal, external = reserved.numbers
    listeners = read_listeners(f"in:pulsar://127.0.0.1:{internal},out:pulsar://localhost:{external}")
    bound = (BindAddress("out", "pulsar", "127.0.0.1", external),)
    settings: dict[str, Any] = {"advertised_listeners": listeners, "bind_addresses": bound}
    async with running_broker(tmp_path, **settings) as broker:
        # Nothing listens on the internal address: only clients of the external listener get through.
        url = f"pulsar://127.0.0.1:{broker.port}"
        assert await asyncio.to_thread(official_round_trip, url, "out") == b"official"
        async with AsyncClient(url, ClientConfig(listener_name="out")) as client:
            address = await client.lookup("t")
            assert str(address.physical) == f"localhost:{external}"
            producer = await client.create_producer("t")
            await producer.send(b"own")
        with pytest.raises(pulsar.PulsarException):
            await asyncio.to_thread(official_round_trip, url, None)


def official_round_trip(url: str, listener: str | None) -> bytes:
    client = pulsar.Client(url, listener_name=listener, operation_timeout_seconds=5)
    try:
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"official")
        return bytes(consumer.receive(10_000).data())
    finally:
        client.close()


async def test_unknown_listener_fails_at_once_in_our_client(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        url = f"pulsar://127.0.0.1:{broker.port}"
        async with AsyncClient(url, ClientConfig(listener_name="nope", operation_timeout_s=600)) as client:
            with pytest.raises(
                NotAllowed, match=r"listener_name 'nope' is not a listener of the broker at 127\.0\.0\.1"
            ):
                await client.create_producer("t")


def test_official_client_reports_an_unknown_listener(tmp_path: Path) -> None:
    async def attempt() -> None:
        async with running_broker(tmp_path) as broker:
            url = f"pulsar://127.0.0.1:{broker.port}"
            with pytest.raises(pulsar.PulsarException):
                await asyncio.to_thread(official_round_trip, url, "nope")

    asyncio.run(attempt())


def test_listeners_are_read_in_order() -> None:
    assert LISTENERS == {
        "internal": {"pulsar": "pulsar://inside:6650", "pulsar+ssl": "pulsar+ssl://inside:6651"},
        "external": {"pulsar": "pulsar://out.example.com:16650"},
    }
    assert list(LISTENERS) == ["internal", "external"]
    assert read_listeners("a:pulsar://[::1]:6650") == {"a": {"pulsar": "pulsar://[::1]:6650"}}
    assert read_bind_addresses("a:pulsar://0.0.0.0:7, b:https://[::1]:8") == (
        BindAddress("a", "pulsar", "0.0.0.0", 7),
        BindAddress("b", "https", "::1", 8),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pulsar://h:6650", "'pulsar://h:6650' is malformed (missing listener name)"),
        (":pulsar://h:6650", "missing listener name"),
        ("a", "missing listener name"),
        ("a:ftp://h:1", "the scheme is not one of pulsar, pulsar+ssl, http, https"),
        ("a:h:6650", "the scheme is not one of"),
        ("a:pulsar://h", "the address is not scheme://host:port"),
        ("a:pulsar://h:6650/x", "the address is not scheme://host:port"),
        ("a:pulsar://:6650", "the address is not scheme://host:port"),
        ("a:pulsar://h:6650#x", "the address is not scheme://host:port"),
        ("a:pulsar://:secret@h:6650", "the address is not scheme://host:port"),
        ("a:pulsar://[10.0.0.1:80]:6650", "is malformed"),
        ("a:pulsar://h:99999", "port out of range 0-65535"),
        ("a:pulsar://h:x", "is malformed"),
        ("a:pulsar://h:0", "clients cannot connect to port 0"),
        ("magnetar:pulsar://h:1", "the listener name 'magnetar' is reserved"),
        ("a:pulsar://h:1,a:pulsar://h:2", "listener 'a' has two pulsar:// addresses: remove one"),
        ("a:pulsar://h:1,b:pulsar://h:1", "h:1 is the address of both 'a' and 'b'"),
    ],
)
def test_malformed_listeners_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_listeners(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pulsar://h:6650", "missing listener name"),
        ("a:pulsar://h", "the address is not scheme://host:port"),
        ("a b:pulsar://h:1", "missing listener name"),
        ("a:pulsar://h:1,b:http://h:1", "h:1 is listed twice"),
    ],
)
def test_malformed_bind_addresses_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_bind_addresses(text)
    assert reason in str(caught.value)


def test_names_of_listeners_must_be_advertised() -> None:
    with pytest.raises(
        InvalidConfig, match="internalListenerName 'x' is not in advertisedListeners: expected one of int"
    ):
        BrokerConfig(advertised_listeners=LISTENERS, internal_listener="x")
    with pytest.raises(
        InvalidConfig, match="bindAddresses: listener 'x' is not in advertisedListeners: expected one of in"
    ):
        BrokerConfig(advertised_listeners=LISTENERS, bind_addresses=read_bind_addresses("x:pulsar://h:1"))
    with pytest.raises(InvalidConfig, match="listener 'x' is not in advertisedListeners, which is not set"):
        BrokerConfig(bind_addresses=read_bind_addresses("x:pulsar://h:1"))


@pytest.mark.parametrize("host", ["10.0.0.1:6650", "a:80", "1:2", "h:6650", "pulsar://h", "a b", "-a", "", "a/b"])
def test_advertised_address_is_a_host_alone(host: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a host name or an IP address: remove any scheme or port"):
        check_host("advertisedAddress", host)


def test_loopback_is_proxied_through_the_service_url_only_where_it_is_named() -> None:
    assert BrokerConfig().is_local_address
    assert BrokerConfig(host="0.0.0.0", advertised_address="localhost").is_local_address
    assert not BrokerConfig(advertised_address="broker.example.com").is_local_address
    assert not BrokerConfig(advertised_listeners=LISTENERS).is_local_address
