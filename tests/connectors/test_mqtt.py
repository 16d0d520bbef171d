"""Source and sink mqtt against a real broker: what is theirs alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from magnetar.api.connector import Connector, Record, RecordRefused
from magnetar.api.connector_config import read_config
from magnetar.connectors.mqtt_sink import MqttSink
from magnetar.connectors.mqtt_source import MqttSource
from magnetar.errors import InvalidConfig

from tests.connectors.direct import Direct, DirectContext, records_of
from tests.connectors.servers.mosquitto import Mosquitto

pytestmark = pytest.mark.connectors


@pytest.fixture(scope="module")
def server() -> Iterator[Mosquitto]:
    with Mosquitto.running() as server:
        yield server


def opened(
    server: Mosquitto, connector: Connector, instance_id: int = 0, parallelism: int = 1, **configs: object
) -> Direct:
    where = {"serverHost": "127.0.0.1", "serverPort": server.port}
    user = {"username": server.username, "password": server.password}
    direct = Direct(connector, {**where, **user, **configs}, DirectContext(instance_id, parallelism))
    if isinstance(connector, MqttSource):
        direct.call(connector.read)  # it is subscribed then
    return direct


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_records_come_back_with_every_quality_and_version(server: Mosquitto, qos: int, version: str) -> None:
    topic = f"t/{qos}/{version}"
    source = opened(server, MqttSource(), topics=f"{topic}/+", protocolVersion=version, qos=min(qos, 1))
    sink = opened(server, MqttSink(), topic=topic + "/{key}", qos=qos, protocolVersion=version)
    sink.write(records_of(1500))
    found = source.read(1500, acknowledges=True)
    assert [record.value for record in found] == [f"value {number}".encode() for number in range(1500)]
    last = found[-1]
    assert last.properties["mqtt.topic"] == f"{topic}/key-1499"
    if version == "5":
        assert (last.key, last.properties["größe"]) == ("key-1499", "1499")
    sink.close()
    source.close()


def test_what_is_not_durable_comes_again_and_nothing_else(server: Mosquitto) -> None:
    source = opened(server, MqttSource(), topics="again", clientId="again")
    sink = opened(server, MqttSink(), topic="again")
    sink.write(records_of(100))
    found = source.read(100)
    source.acknowledge(found[:60])
    source.close()
    where = {"serverHost": "127.0.0.1", "serverPort": server.port}
    user = {"username": server.username, "password": server.password}
    source = Direct(MqttSource(), {**where, **user, "topics": "again", "clientId": "again"})
    late = source.read(40)
    assert [record.value for record in late] == [record.value for record in found[60:]]
    source.close()
    sink.close()


def test_source_and_sink_of_one_name_and_two_instances_share(server: Mosquitto) -> None:
    readers = [opened(server, MqttSource(), number, 2, topics="shared/#") for number in range(2)]
    sink = opened(server, MqttSink(), topic="shared/x")
    sink.write(records_of(1000))
    found: list[list[Record]] = [[], []]
    for _ in range(100):
        for number, reader in enumerate(readers):
            found[number] += reader.call(reader.connector.read)
        if sum(map(len, found)) >= 1000:
            break
    values = [record.value for records in found for record in records]
    assert len(values) == len(set(values)) == 1000
    assert all(found)
    for direct in (*readers, sink):
        assert direct.session.retries == 0
        direct.close()


def test_sink_refuses_a_record_alone_and_sends_the_others_once(server: Mosquitto) -> None:
    source = opened(server, MqttSource(), topics="refused/#")
    sink = opened(server, MqttSink(), topic="refused/{key}", topicProperty="to")
    bad = {
        "invalid topic: 'refused/a\\+' must not contain wildcards": Record(b"", "a+"),
        "invalid topic: must not contain null characters": Record(b"", "a\0"),
        "record has no key": Record(b""),
        "message of 11.* bytes exceeds the broker's limit of 1100000": Record(b"x" * server.packet_max, "k"),
        "invalid property: must not contain null characters": Record(b"", "k", {"a": "\0"}),
        "invalid property: must not exceed 65535 bytes, but has 70000": Record(b"", "k", {"a": "x" * 70_000}),
        "surrogates not allowed": Record("\ud800", "k"),
    }
    for text, record in bad.items():
        records = [*records_of(2), record]
        with pytest.raises(RecordRefused, match=text) as refused:
            sink.write(records)
        assert (refused.value.index, refused.value.written) == (2, 0)
    records = records_of(3)
    records[1].properties = {"to": "refused/elsewhere"}
    sink.write(records)
    found = source.read(3)
    assert [record.properties["mqtt.topic"] for record in found] == [
        "refused/key-0",
        "refused/elsewhere",
        "refused/key-2",
    ]
    source.close()
    sink.close()


def test_a_session_that_somebody_takes_over_is_named(server: Mosquitto) -> None:
    one = opened(server, MqttSource(), topics="x", clientId="same")
    other = opened(server, MqttSource(), topics="x", clientId="same")
    one.call(one.connector.read)
    assert one.session.retries == 1
    one.close()
    other.close()


def test_bad_configurations_are_named() -> None:
    def fault(connector: Connector, **given: object) -> str:
        with pytest.raises(InvalidConfig) as refused:
            connector.check(read_config(connector.config, {"serverHost": "localhost", **given}))
        return str(refused.value)

    assert "topic: must not be empty" in fault(MqttSink(), topic="")
    assert "unknown placeholder {x}" in fault(MqttSink(), topic="{x}")
    assert "clientId must not contain null characters" in fault(MqttSink(), topic="t", clientId="\0")
    assert "sslCaFile requires sslEnabled" in fault(MqttSink(), topic="t", sslCaFile="/x")
    assert "topics must not be empty" in fault(MqttSource(), topics=[])
    assert "shared subscription" in fault(MqttSource(), topics="$share/g/t")
    assert "+ must be a complete level" in fault(MqttSource(), topics="a/b+")
    assert "qos 2" in fault(MqttSource(), topics="t", qos=2)
    config = read_config(MqttSource.config, {"serverHost": "h", "topics": "t"})
    assert "redelivered" in MqttSource().not_effectively_once(config)
