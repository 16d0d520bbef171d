"""Source and sink rabbitmq against a real server: what is theirs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from magnetar.api.connector import Connector, Record, RecordRefused, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.rabbitmq_sink import RabbitSink
from magnetar.connectors.rabbitmq_source import RabbitSource
from magnetar.errors import InvalidConfig
from magnetar.instance.connectors.session import OpenFailed

from tests.connectors.direct import Direct, DirectContext, records_of
from tests.connectors.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.connectors


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitServer]:
    with RabbitServer.running() as server:
        yield server


@pytest.fixture
def channel(server: RabbitServer) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port)) as connection:
        channel = connection.channel()
        for name in ("q", "other"):
            channel.queue_delete(name)
        channel.exchange_delete("e")
        yield channel


def opened(
    server: RabbitServer, connector: Connector, instance_id: int = 0, parallelism: int = 1, **configs: object
) -> Direct:
    where = {"host": "127.0.0.1", "port": server.port}
    return Direct(connector, {**where, **configs}, DirectContext(instance_id, parallelism))


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def test_what_is_not_durable_comes_again_and_nothing_else(server: RabbitServer, channel: Any) -> None:
    source = opened(server, RabbitSource(), queueName="q")
    source.call(source.connector.read)  # makes the queue
    sink = opened(server, RabbitSink(), exchangeName="", routingKey="q")
    sink.write(records_of(3000))
    found = source.read(2000)
    assert values(found) == values(records_of(2000))
    assert (found[1].key, found[1].properties["größe"]) == ("key-1", "1")
    assert source.call(source.connector.read) == []  # no more than are acknowledged
    source.acknowledge(found[:500] + found[501:])
    source.call(source.connector.read)
    source.close()
    source = opened(server, RabbitSource(), queueName="q")
    assert values(source.read(2000)) == values(records_of(2000, 500)[:1] + records_of(2000, 501)[:1999])
    source.close()
    sink.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rabbitmq")]


def test_sink_refuses_a_record_alone_and_sends_the_others(server: RabbitServer, channel: Any) -> None:
    sink = opened(server, RabbitSink(), exchangeName="e", queueName="q", routingKey="r")
    bad = {
        "message with routing key 'nowhere' was returned: 312 NO_ROUTE": Record(b"", None, {"routingKey": "nowhere"}),
        "routing key must not exceed 255 bytes, but has 300": Record(b"", None, {"routingKey": "x" * 300}),
        "property name must not exceed 255 bytes, but has 300": Record(b"", None, {"x" * 300: ""}),
        "properties of 200\\d\\d\\d bytes": Record(b"", None, {"x": "x" * 200_000}),
        "message size 1050001 is larger": Record(b"x" * (server.message_max + 1)),
        "surrogates not allowed": Record("\ud800"),
    }
    for number, (text, record) in enumerate(bad.items()):
        records = records_of(3, number * 3)
        record.message_id = f"2:{number}"
        with pytest.raises(RecordRefused, match=text) as refused:
            sink.write([*records[:2], record, records[2]])
        assert refused.value.index == 2
        sink.write([*records[refused.value.written : 2], records[2]])
    sink.close()
    source = opened(server, RabbitSource(), queueName="q")
    found, wanted = set[bytes](), set(values(records_of(18)))
    while found != wanted:  # a message that is too large closes the channel: those before it may be there twice
        found |= set(values(source.read(1)))
        assert found <= wanted
    source.close()


def test_a_queue_that_is_full_is_waited_for(server: RabbitServer, channel: Any) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    sink = opened(server, RabbitSink(), exchangeName="", routingKey="q")
    sink.write(records_of(1))
    with pytest.raises(Retry, match=r"rejected \d messages: a queue is full"):
        sink.connector.write_batch(records_of(10, 1))
    found = [channel.basic_get("q", auto_ack=True)[2] for _ in range(5)]
    with pytest.raises(Retry, match="a queue is full"):
        sink.connector.write_batch(records_of(10, 1))
    while (body := channel.basic_get("q", auto_ack=True)[2]) is not None:
        found.append(body)
    sink.connector.write_batch(records_of(10, 1))
    while (body := channel.basic_get("q", auto_ack=True)[2]) is not None:
        found.append(body)
    assert found == values(records_of(11))
    sink.close()


def test_a_queue_that_is_deleted_is_made_again(server: RabbitServer, channel: Any) -> None:
    source = opened(server, RabbitSource(), queueName="q", exchangeName="amq.topic", routingKey="a.*")
    source.call(source.connector.read)
    channel.queue_delete("q")
    for _ in range(3):
        source.call(source.connector.read)
    assert source.session.retries == 1
    channel.basic_publish("amq.topic", "a.b", b"1", pika.BasicProperties(headers={"k": None, "n": {"a": 1}}))
    (record,) = source.read(1)
    assert (record.value, record.properties["k"], record.properties["n"]) == (b"1", "null", '{"a": 1}')
    assert record.properties["rabbitmq.routingKey"] == "a.b"
    source.close()


def test_two_sources_share_a_queue_and_one_may_have_it_alone(server: RabbitServer, channel: Any) -> None:
    channel.queue_declare("q", durable=True)
    readers = [opened(server, RabbitSource(), number, 2, queueName="q", prefetchCount=10) for number in range(2)]
    for reader in readers:
        reader.call(reader.connector.read)
    for number in range(40):
        channel.basic_publish("", "q", str(number).encode())
    found: list[list[Record]] = [[], []]
    while sum(map(len, found)) < 40:
        for reader, share in zip(readers, found, strict=True):
            records = reader.call(reader.connector.read)
            reader.acknowledge(records)
            share += records
    assert sorted(int(record.value) for share in found for record in share) == list(range(40))
    assert all(found)
    with pytest.raises(OpenFailed, match="exclusive"):
        opened(server, RabbitSource(), 0, 2, queueName="q", exclusive=True).call(lambda: None)
    for reader in readers:
        reader.close()


def test_bad_configurations_are_named() -> None:
    def fault(connector: Connector, **given: object) -> str:
        with pytest.raises(InvalidConfig) as refused:
            connector.check(read_config(connector.config, {"host": "localhost", **given}))
        return str(refused.value)

    assert "routingKey is required for the default exchange" in fault(RabbitSink(), exchangeName="")
    assert "exchangeName must not exceed 255 bytes, but has 300" in fault(RabbitSink(), exchangeName="x" * 300)
    assert "unknown placeholder {x}" in fault(RabbitSink(), exchangeName="e", routingKey="{x}")
    assert "sslCaFile requires ssl" in fault(RabbitSource(), queueName="q", sslCaFile="/x")
    assert "queueName must not be empty" in fault(RabbitSource(), queueName="")
    config = read_config(RabbitSink.config, {"host": "h", "exchangeName": "e"})
    assert "published again" in RabbitSink().not_effectively_once(config)
