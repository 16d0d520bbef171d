"""The connectors `kafka`: what they make of a record, where they go on, and what becomes of what Kafka refuses."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from magnetar.api.connector import Record, RecordRefused, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.kafka_sink import KafkaSink
from magnetar.connectors.kafka_source import KafkaSource
from magnetar.errors import InvalidConfig, MagnetarError
from magnetar.instance.connectors.session import OpenFailed

from tests.connectors.direct import Direct, DirectContext, records_of
from tests.connectors.servers.kafka import PASSWORD, TIMEOUT_S, USER, KafkaServer
from tests.support.waiting import wait_for

library: Any = pytest.importorskip("confluent_kafka")
Consumer, Producer, TopicPartition = library.Consumer, library.Producer, library.TopicPartition
pytestmark = pytest.mark.connectors
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    with KafkaServer.running() as kafka:
        yield kafka


def source(kafka: KafkaServer, topic: str, context: DirectContext | None = None, **more: Any) -> Direct:
    configs = {"bootstrapServers": kafka.bootstrap_servers, "topic": topic, "groupId": f"g-{topic}", **more}
    return Direct(KafkaSource(), configs, context)


def sink(kafka: KafkaServer, topic: str, **more: Any) -> Direct:
    return Direct(KafkaSink(), {"bootstrapServers": kafka.bootstrap_servers, "topic": topic, **more})


def put(kafka: KafkaServer, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def numbered(first: int, end: int) -> list[bytes]:
    return [f"{number}".encode() for number in range(first, end)]


def contents(kafka: KafkaServer, topic: str, partitions: int = 1) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "log_level": 0})
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    missing = sum(consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places)
    consumer.assign(places)
    found: list[Any] = []
    while len(found) < missing:
        got = consumer.consume(missing - len(found), TIMEOUT_S)
        assert got, f"{len(found)} of {missing} records can be read"
        found += got
    consumer.close()
    return found


def committed(kafka: KafkaServer, topic: str, offset: int | None = None) -> Any:
    """Return the group's offset; set it before, as an operator does, if one is given."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"g-{topic}", "log_level": 0})

    def is_set() -> bool:  # not while the group has a member
        return bool(consumer.commit(offsets=[TopicPartition(topic, 0, offset or 0)], asynchronous=False))

    if offset is not None:
        wait_for(is_set, "a group without members")
    (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return place


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def restarted(before: Direct) -> DirectContext:
    """What the next instance begins with."""
    context = DirectContext()
    context.position = before.connector.snapshot()
    return context


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jaas", "login"),
    [
        (f'{PLAIN} required username="u" password="p";', ("u", "p")),
        (f"{PLAIN}  required\n password='a\"b' username=u ;", ("u", 'a"b')),
        ('ScramLoginModule required username="ü x" password="p=;q";', ("ü x", "p=;q")),
    ],
)
def test_user_and_password_are_read_out_of_jaas(jaas: str, login: tuple[str, str]) -> None:
    mechanism = "SCRAM-SHA-512" if jaas.startswith("Scram") else ""
    given = {
        "bootstrapServers": "h:1",
        "topic": "t",
        "groupId": "g",
        "saslJaasConfig": jaas,
        "saslMechanism": mechanism,
    }
    assert read_config(KafkaSource.config, given).login() == login


@pytest.mark.parametrize(
    "jaas", ["secret words", f'{PLAIN} required username="u";', f'{PLAIN} required username="secret', "X required a=b;"]
)
def test_jaas_that_cannot_be_read_is_refused_without_showing_it(jaas: str) -> None:
    given = {"bootstrapServers": "h:1", "topic": "t", "groupId": "g", "securityProtocol": "SASL_SSL"}
    config = read_config(KafkaSource.config, {**given, "saslJaasConfig": jaas})
    with pytest.raises(InvalidConfig, match=r"^(invalid )?saslJaasConfig") as caught:
        KafkaSource().check(config)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"saslMechanism": "SCRAM-SHA-256"},
            "saslMechanism does not match PlainLoginModule in saslJaasConfig: expected PLAIN",
        ),
        ({"saslUsername": "u"}, "saslJaasConfig excludes saslUsername and saslPassword"),
        ({"securityProtocol": "SSL"}, "securityProtocol SSL does not support a user"),
        (
            {"consumerConfigProperties": {"ssl.keystore.password": "p"}},
            "ssl.keystore.password would be shown",
        ),
        ({"consumerConfigProperties": {"plugin.library.paths": "x"}}, "plugin.library.paths: loading code"),
        ({"consumerConfigProperties": {"fetch.max.wait.ms": "soon"}}, 'configuration property "fetch.wait.max.ms"'),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change: dict[str, Any], text: str) -> None:
    given = {"bootstrapServers": "h:1", "topic": "t", "groupId": "g", "securityProtocol": "SASL_SSL"}
    jaas = f'{PLAIN} required username="u" password="p";'
    config = read_config(KafkaSource.config, {**given, "saslJaasConfig": jaas, **change})
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        KafkaSource().check(config)


def test_only_one_partition_can_be_effectively_once(kafka: KafkaServer) -> None:
    topic = kafka.create_topic(cleanup_policy="compact")
    connection = {"bootstrapServers": kafka.bootstrap_servers, "topic": topic}
    config = read_config(KafkaSource.config, {**connection, "groupId": "g"})
    assert "set partition" in KafkaSource().not_effectively_once(config)
    assert "redelivered" in KafkaSink().not_effectively_once(read_config(KafkaSink.config, connection))
    context = DirectContext()
    context.is_exact = True
    exact = source(kafka, topic, context, partition=0)
    with pytest.raises(OpenFailed, match="is compacted"):
        exact.read(1)
    exact.close()
    assert KafkaSource().not_parallel(read_config(KafkaSource.config, {**connection, "groupId": "g", "partition": 0}))
    assert not KafkaSource().not_parallel(config)


def test_a_user_is_let_in_and_another_password_is_retried_with_its_cause(kafka: KafkaServer) -> None:
    topic = kafka.create_topic()
    login: dict[str, Any] = {"bootstrapServers": kafka.sasl_servers, "securityProtocol": "SASL_PLAINTEXT"}
    jaas = f'{PLAIN} required username="{USER}" password="{{}}";'
    good = sink(kafka, topic, **login, saslJaasConfig=jaas.format(PASSWORD))
    good.write(records_of(3))
    good.close()
    assert len(contents(kafka, topic)) == 3
    reader = source(kafka, topic, **login, saslUsername=USER, saslPassword=PASSWORD)
    assert len(reader.read(3)) == 3
    reader.close()
    bad = sink(kafka, topic, **login, saslJaasConfig=jaas.format("wrong"))
    with pytest.raises(Retry, match="Authentication failed") as caught:
        bad.connector.open(bad.session._config, bad.context)
    assert "wrong" not in str(caught.value)
    bad.close()


# -- records ----------------------------------------------------------------------------------------------------------


def test_records_without_value_and_without_utf8_arrive_as_they_were(kafka: KafkaServer) -> None:
    first, second = kafka.create_topic(), kafka.create_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    odd = b"\xff\x00odd"
    producer.produce(first, None, key="deleted", timestamp=17)
    producer.produce(first, b"", key=b"", timestamp=18)
    producer.produce(first, odd, key=odd, headers=[("h", odd), ("n", None), ("ä", "ü".encode())], timestamp=19)
    assert producer.flush(TIMEOUT_S) == 0
    reader = source(kafka, first, copyHeadersEnabled=True)
    records = reader.read(3)
    reader.close()
    assert [(record.value, record.key, record.event_time_ms) for record in records] == [
        (None, "deleted", 17), (b"", "", 18), (odd, "/wBvZGQ=", 19),
    ]  # fmt: skip
    assert records[2].properties == {
        "__kafka_topic": first, "__kafka_partition": "0", "__kafka_offset": "2",
        "__kafka_base64": "h", "__kafka_base64_key": "true", "h": "/wBvZGQ=", "n": "", "ä": "ü",
    }  # fmt: skip
    writer = sink(kafka, second, copyHeadersEnabled=True)
    writer.write(records)
    writer.close()
    copied = contents(kafka, second)
    assert [(message.value(), message.key(), message.timestamp()[1]) for message in copied] == [
        (None, b"deleted", 17), (b"", b"", 18), (odd, odd, 19),
    ]  # fmt: skip
    assert copied[2].headers() == [("h", odd), ("n", b""), ("ä", "ü".encode())]


def test_what_kafka_refuses_is_refused_alone(kafka: KafkaServer) -> None:
    topic = kafka.create_topic(max_message_bytes="20000", cleanup_policy="compact")
    # With compression it is Kafka that refuses, and what is beside it in a batch with it.
    packed = {"compression.type": "gzip", "linger.ms": 50}
    writer = sink(kafka, topic, producerConfigProperties=packed, batchSize=100_000)
    noise = b"".join(uuid.uuid4().bytes for _ in range(2000))
    records = records_of(20)
    records[7].value = noise
    with pytest.raises(RecordRefused, match="rejected by Kafka") as refusal:
        writer.write(records)
    assert (refusal.value.index, refusal.value.written) == (7, 0)
    del records[7]
    writer.write(records)  # those that are there already are not sent again
    keyless = Record(b"v", message_id="1:99:0")
    with pytest.raises(RecordRefused, match="record has no key") as caught:
        writer.write([*records_of(1, 50), keyless])
    assert caught.value.index == 1
    writer.close()
    assert sorted(message.value() or b"" for message in contents(kafka, topic)) == sorted(values(records))


# -- where a source goes on -------------------------------------------------------------------------------------------


def test_source_goes_on_behind_what_was_durable(kafka: KafkaServer) -> None:
    topic = kafka.create_topic()
    put(kafka, topic, numbered(0, 10))
    first = source(kafka, topic, autoCommitEnabled=False)
    first.acknowledge(first.read(10))
    put(kafka, topic, numbered(10, 20))
    assert values(first.read(10)) == numbered(10, 20)  # never durable
    first.close()
    assert (committed(kafka, topic).offset, committed(kafka, topic).metadata) == (10, "magnetar")
    second = source(kafka, topic)
    assert values(second.read(10)) == numbered(10, 20)
    second.close()


def test_offset_that_an_operator_sets_wins_over_the_position_once(kafka: KafkaServer) -> None:
    topic = kafka.create_topic()
    put(kafka, topic, numbered(0, 10))
    first = source(kafka, topic, sessionTimeoutMs=1500, heartbeatIntervalMs=300)
    first.acknowledge(first.read(10))
    first.close()
    committed(kafka, topic, 4)
    second = source(kafka, topic, restarted(first))
    assert values(second.read(6)) == numbered(4, 10)
    second.close()  # before anything was durable, so the group's offset is still the operator's
    put(kafka, topic, numbered(10, 12))
    third = source(kafka, topic, restarted(second))
    assert values(third.read(2)) == numbered(10, 12)
    third.close()


def test_operator_can_set_the_same_offset_again(kafka: KafkaServer) -> None:
    topic = kafka.create_topic()
    put(kafka, topic, numbered(0, 10))
    session: dict[str, Any] = {"sessionTimeoutMs": 1500, "heartbeatIntervalMs": 300, "autoCommitEnabled": False}
    reader = source(kafka, topic, **session)
    reader.acknowledge(reader.read(10))
    reader.close()
    stale = restarted(reader)
    for _ in range(3):
        committed(kafka, topic, 4)
        reader = source(kafka, topic, restarted(reader), **session)
        records = reader.read(6)
        assert values(records) == numbered(4, 10)
        reader.acknowledge(records)
        reader.close()
    committed(kafka, topic, 4)
    reader = source(kafka, topic, restarted(reader), **session)
    records = reader.read(6)
    reader.acknowledge(records[:0])
    reader.close()  # the group is at 4 by our own commit, and nothing that was read is durable
    other = source(kafka, topic, stale, **session)  # whose position is from before the operator
    assert values(other.read(6)) == numbered(4, 10)
    other.close()


def test_topic_that_was_made_anew_is_read_from_its_beginning(kafka: KafkaServer) -> None:
    topic = kafka.create_topic()
    put(kafka, topic, numbered(0, 5))
    first = source(kafka, topic)
    first.acknowledge(first.read(5))
    first.close()
    kafka.delete_topic(topic)
    kafka.create_named(topic)
    put(kafka, topic, numbered(100, 110))
    second = source(kafka, topic, restarted(first))
    assert values(second.read(10)) == numbered(100, 110)
    second.close()
    exact = restarted(first)
    exact.is_exact = True
    third = source(kafka, topic, exact, partition=0)
    with pytest.raises(MagnetarError, match="deleted and recreated"):
        third.read(1)
    third.close()


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_records_that_kafka_has_deleted_are_named(
    kafka: KafkaServer, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create_topic()
    put(kafka, topic, numbered(0, 10))
    first = source(kafka, topic)
    first.acknowledge(first.read(10))
    first.close()
    context = restarted(first)
    put(kafka, topic, numbered(10, 20))
    client = kafka.admin()
    (deleting,) = client.delete_records([TopicPartition(topic, 0, 15)]).values()
    deleting.result(TIMEOUT_S)
    second = source(kafka, topic, context, autoOffsetReset=policy)
    if policy == "none":
        with pytest.raises(MagnetarError, match=r"offset 10 of .* is out of range 15 to 20"):
            second.read(1)
    elif policy == "earliest":
        assert values(second.read(5)) == numbered(15, 20)
        assert "records may be lost; continuing with autoOffsetReset earliest" in caplog.text
    else:
        assert second.call(second.connector.read) is None
        put(kafka, topic, numbered(20, 22))
        assert values(second.read(2)) == numbered(20, 22)
    second.close()


def test_members_of_a_group_share_the_partitions_and_take_over(kafka: KafkaServer) -> None:
    topic = kafka.create_topic(4)
    quick = {"sessionTimeoutMs": 1500, "heartbeatIntervalMs": 300, "autoCommitEnabled": False}
    members = [source(kafka, topic, DirectContext(number, 2), **quick) for number in range(2)]
    seen: list[set[str]] = [set(), set()]
    read: list[Record] = []
    for round_number in range(200):
        for partition in range(4):
            put(kafka, topic, [f"{round_number}-{partition}".encode()], partition)
        for number, member in enumerate(members):
            records = member.call(member.connector.read) or []
            member.acknowledge(records)
            read += records
            if records:
                seen[number] = {record.partition for record in records}
        if len(seen[0]) == len(seen[1]) == 2 and not seen[0] & seen[1]:
            break
    else:
        raise AssertionError(f"the partitions are not shared: {seen}")
    rounds = round_number + 1
    members[0].close()
    expected = {f"{one}-{partition}".encode() for one in range(rounds) for partition in range(4)}
    expected |= {f"{partition}".encode() for partition in range(4)}
    for partition in range(4):
        put(kafka, topic, [f"{partition}".encode()], partition)
    for _ in range(200):
        read += members[1].call(members[1].connector.read) or []
        if {record.value for record in read} == expected:
            break
    members[1].close()
    assert {record.value for record in read} == expected
    for partition in range(4):  # the order within a partition is kept
        firsts = dict.fromkeys(
            int(r.value.split(b"-")[0]) for r in read if r.partition == str(partition) and b"-" in r.value
        )
        assert list(firsts) == sorted(firsts)


def retried(call: Callable[[], object]) -> Retry:
    """Call until it says that Kafka is away."""
    for _ in range(50):
        try:
            call()
        except Retry as error:
            return error
    raise AssertionError("Kafka is not said to be away")


def test_nothing_is_lost_or_doubled_while_kafka_is_away(kafka: KafkaServer) -> None:
    topic = kafka.create_topic()
    writer, reader = sink(kafka, topic), source(kafka, topic)
    writer.write(records_of(100))
    first = reader.read(100)  # not durable yet
    kafka.kill()
    for one, call in (
        (writer, lambda: writer.connector.write_batch(records_of(5, 100))),
        (reader, reader.connector.read),
    ):
        assert "Connection refused" in str(retried(call))
        one.connector.close()
        one.session.is_open = False
        with pytest.raises(Retry, match="Connection refused"):
            one.connector.open(one.session._config, one.context)
    kafka.start()
    writer.write(records_of(100, 100))
    second = reader.read(100)
    assert values([*first, *second]) == values(records_of(200))
    writer.close()
    reader.close()
