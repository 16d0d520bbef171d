"""Source and sink nats against a real server: what is theirs alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from magnetar.api.connector import Connector, Record, RecordRefused
from magnetar.api.connector_config import read_config
from magnetar.connectors.nats_connection import headers_of, properties_of
from magnetar.connectors.nats_sink import NatsSink
from magnetar.connectors.nats_source import NatsSource
from magnetar.errors import InvalidConfig

from tests.connectors.cases.nats import make_stream
from tests.connectors.direct import Direct, DirectContext, records_of
from tests.connectors.servers.nats import NatsServer

pytestmark = pytest.mark.connectors


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer.running() as server:
        yield server


@pytest.fixture(autouse=True)
def _stream(server: NatsServer) -> None:
    make_stream(server, "s")


def opened(
    server: NatsServer, connector: Connector, instance_id: int = 0, parallelism: int = 1, **configs: object
) -> Direct:
    where = {"url": server.url, "username": server.username, "password": server.password}
    return Direct(connector, {**where, **configs}, DirectContext(instance_id, parallelism))


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def test_what_is_written_again_is_dropped_and_properties_come_back(server: NatsServer) -> None:
    sink = opened(server, NatsSink(), subject="s.{properties.to}")
    records = records_of(100)
    for record in records:
        record.properties = {"to": "a", "größe": "ü", "line": "a\r\nb", "space": " x ", "pro%cent": "%41", "star*": "*"}
    sink.write(records)
    sink.write(records)
    sink.close()
    source = opened(server, NatsSource(), subject="s.>")
    found = source.read(100)
    assert source.call(source.connector.read) == []
    assert values(found) == values(records)
    assert found[7].key == "key-7"
    assert found[7].properties == {
        **records[7].properties,
        "nats.subject": "s.a",
        "Nats-Msg-Id": "persistent://public/default/in:1:7:0",
    }
    source.close()


def test_headers_that_servers_act_on_are_left_out() -> None:
    assert headers_of({"Nats-Rollup": "all", "nats-msg-id": "x", "a": "b"}) == {"a": "b"}
    assert properties_of(None) == {}


def test_what_is_not_durable_comes_again_and_nothing_else(server: NatsServer) -> None:
    sink = opened(server, NatsSink(), subject="s.a")
    sink.write(records_of(100))
    sink.close()
    source = opened(server, NatsSource(), subject="s.a", ackWaitSeconds=1)
    found = source.read(100)
    source.acknowledge(found[:60])
    source.close()
    source = opened(server, NatsSource(), subject="s.a", ackWaitSeconds=1)
    assert values(source.read(40)) == values(found[60:])
    source.close()


def test_source_takes_nothing_twice_when_the_server_is_tired_of_waiting(server: NatsServer) -> None:
    sink = opened(server, NatsSink(), subject="s.a")
    sink.write(records_of(10))
    source = opened(server, NatsSource(), subject="s.a", ackWaitSeconds=1)
    found = source.read(10)
    for _ in range(4):  # two seconds: all of it is sent again
        assert source.call(source.connector.read) == []
    source.acknowledge(found)
    source.close()
    sink.close()


def test_source_takes_again_what_is_not_durable_when_the_server_was_away(server: NatsServer) -> None:
    sink = opened(server, NatsSink(), subject="s.a")
    sink.write(records_of(10))
    source = opened(server, NatsSource(), subject="s.a", ackWaitSeconds=1)
    source.acknowledge(source.read(10)[:4])
    server.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(source.read, 11)
        assert "Connect call failed" in source.retried(2)
        server.start()
        sink.write(records_of(5, 10))
        found = waiting.result(30)
    assert sorted(int(record.properties["größe"]) for record in found) == list(range(4, 15))
    source.close()
    sink.close()


def test_sink_refuses_a_record_alone(server: NatsServer) -> None:
    sink = opened(server, NatsSink(), subject="{key}")
    bad = {
        "no stream for subject 'nowhere'": Record(b"", "nowhere"),
        "invalid subject: 's a' must not contain whitespace": Record(b"", "s a"),
        "invalid subject: 's.>' must not contain wildcards": Record(b"", "s.>"),
        "record has no key": Record(b""),
        "message size exceeds maximum allowed": Record(b"x" * 1_020_000, "s.a"),
        "bytes, with headers, exceeds the server's limit of 1048576": Record(b"x" * 1_048_500, "s.a", {"a": "b" * 100}),
    }
    for number, (text, record) in enumerate(bad.items()):
        records = records_of(3, number * 3)
        for other in records:
            other.key = "s.k"
        record.message_id = f"2:{number}"
        with pytest.raises(RecordRefused, match=text) as refused:
            sink.write([*records[:2], record, records[2]])
        assert refused.value.index == 2
        sink.write([*records[refused.value.written : 2], records[2]])
    sink.close()
    source = opened(server, NatsSource(), subject="s.>")
    assert len(source.read(18)) == 18
    source.close()


def test_core_passes_on_what_somebody_listens_to(server: NatsServer) -> None:
    readers = [opened(server, NatsSource(), number, 2, subject="core.*", mode="core") for number in range(2)]
    for reader in readers:
        reader.call(reader.connector.read)
    sink = opened(server, NatsSink(), subject="core.x", mode="core")
    sink.write(records_of(200))
    found = [record for reader in readers for record in reader.read(1, reads_max=1)]
    for reader in readers:
        found += reader.call(reader.connector.read)
        reader.close()
    assert sorted(values(found)) == sorted(values(records_of(200)))
    sink.close()


def test_bad_configurations_are_named() -> None:
    def fault(connector: Connector, **given: object) -> str:
        with pytest.raises(InvalidConfig) as refused:
            connector.check(read_config(connector.config, {"url": "localhost", "subject": "s", **given}))
        return str(refused.value)

    for url in ("", "nats://", "nats://h:x", "http://h"):
        assert "url" in fault(NatsSink(), url=url)
    assert "subject" in fault(NatsSink(), subject="a..b")
    assert "unknown placeholder {x}" in fault(NatsSink(), subject="{x}")
    assert "stream requires mode jetstream" in fault(NatsSink(), stream="s", mode="core")
    assert "keyHeader" in fault(NatsSink(), keyHeader="a b")
    assert "subject" in fault(NatsSource(), subject="a.>.b")
    assert "durable" in fault(NatsSource(), durable="a.b")
    config = read_config(NatsSink.config, {"url": "h", "subject": "s"})
    assert "duplicate window" in NatsSink().not_effectively_once(config)
