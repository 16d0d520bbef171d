"""Planning and reading ranges against a broker, on good days and bad ones. No Spark, but Arrow."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pulsar
import pytest
from magnetar.errors import ConnectionLost, DataLoss, InvalidConfig, TopicNotFound
from magnetar.spark.source.options import ReadOptions, read_options
from magnetar.spark.source.range_reader import RangeReader
from magnetar.spark.source.ranges import TopicRange
from magnetar.spark.source.reader import BlockingReader
from magnetar.wire.message_id import MessageId, deserialize
from magnetar.wire.position import Position
from magnetar.wire.topic_name import parse_topic_name

from tests.spark.conftest import LEDGER_ENTRIES, BadNetwork, SmallLedgers
from tests.spark.topics import fill, numbered, options_for, planned, publish, read_all, values

pytestmark = pytest.mark.spark


def batches(count: int, rows: int) -> list[list[bytes]]:
    return [[b"%d" % number for number in range(start * rows, (start + 1) * rows)] for start in range(count)]


def reader(options: ReadOptions, wanted: TopicRange, poll_timeout_ms: int = 10_000) -> RangeReader:
    return RangeReader(wanted, replace(options, poll_timeout_ms=poll_timeout_ms))


@pytest.mark.parametrize("ranges", [1, 2, 7, 35, 100])
def test_ranges_over_many_ledgers_hold_every_message_once(broker: SmallLedgers, ranges: int) -> None:
    topic = f"{broker.topic()}-{ranges}"
    fill(broker.service_url, topic, batches(35, 3))
    options = options_for(broker.service_url, topic, minPartitions=str(ranges))
    plan = planned(options)
    assert len(plan) == min(ranges, 35)
    assert len({span.ledger_id for one in plan for span in one.spans}) == 4
    assert [row["value"] for row in read_all(options, plan)] == numbered(105)


def test_a_plan_does_not_grow_with_its_topic(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, batches(12, 2))
    options = options_for(broker.service_url, topic)
    plan = planned(options, 3)
    fill(broker.service_url, topic, [[b"later"]] * 15)
    assert [row["value"] for row in read_all(options, plan)] == numbered(24)


def test_columns_say_what_was_published(broker: SmallLedgers, topic: str) -> None:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, batching_enabled=False)
    sent = producer.send(b"a", partition_key="k", properties={"p": "1", "q": ""}, event_timestamp=1234)
    client.close()
    fill(broker.service_url, topic, [[b"b", b"cc"]])
    options = options_for(broker.service_url, topic)
    one, two, three = read_all(options, planned(options))
    assert (one["value"], one["__key"], one["__messageProperties"]) == (b"a", b"k", [("p", "1"), ("q", "")])
    assert one["__eventTime"].timestamp() == 1.234
    assert abs(one["__publishTime"].timestamp() - time.time()) < 60
    assert one["__topic"] == topic
    assert deserialize(one["__messageId"])[:2] == (sent.ledger_id(), sent.entry_id())
    assert (two["value"], two["__key"], two["__eventTime"], two["__messageProperties"]) == (b"b", None, None, None)
    entry = deserialize(two["__messageId"])
    assert deserialize(three["__messageId"]) == entry._replace(batch_index=1)
    assert (entry.batch_index, entry.batch_size, three["value"]) == (0, 2, b"cc")


def test_messages_of_one_batch_may_differ(broker: SmallLedgers, topic: str) -> None:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(5):
        key = f"k{number}" if number % 2 else None
        producer.send_async(b"x" * number, lambda *_: None, partition_key=key, properties={"n": str(number)})
    producer.flush()
    client.close()
    options = options_for(broker.service_url, topic, columns="__key,value,__messageProperties")
    rows = read_all(options, planned(options))
    assert [tuple(row) for row in rows] == [("__key", "value", "__messageProperties")] * 5
    assert [row["value"] for row in rows] == [b"x" * number for number in range(5)]
    assert [row["__key"] for row in rows] == [None, b"k1", None, b"k3", None]
    assert [row["__messageProperties"] for row in rows] == [[("n", str(number))] for number in range(5)]


@pytest.mark.parametrize("compression", ["LZ4", "ZLIB", "ZSTD", "SNAPPY"])
def test_compressed_entries_are_read(broker: SmallLedgers, compression: str) -> None:
    topic = broker.topic()
    fill(broker.service_url, topic, batches(3, 500), compression=compression)
    assert values(options_for(broker.service_url, topic)) == numbered(1500)


def test_an_empty_message_is_empty_and_not_null(broker: SmallLedgers, topic: str) -> None:
    publish(broker.service_url, topic, b"", key="k")
    fill(broker.service_url, topic, [[b"", b""]])
    assert values(options_for(broker.service_url, topic)) == [b"", b"", b""]


@pytest.mark.parametrize("entries", [1, 12])
def test_offsets_begin_and_end_inside_batches(broker: SmallLedgers, entries: int) -> None:
    topic = broker.topic()
    fill(broker.service_url, topic, batches(entries, 10))
    [whole] = planned(options_for(broker.service_url, topic))
    options = options_for(
        broker.service_url, topic, startingOffsets=f"{whole.start}:4", endingOffsets=f"{whole.end}:6", minPartitions="3"
    )
    assert values(options) == numbered(entries * 10)[4:-3]
    exact = options_for(broker.service_url, topic, startingOffsets=str(whole.end), endingOffsets=str(whole.end))
    assert values(exact) == numbered(entries * 10)[-10:]


def test_offsets_behind_the_end_read_nothing(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, batches(3, 1))
    [whole] = planned(options_for(broker.service_url, topic))
    behind = Position(whole.end.ledger_id, whole.end.entry_id + 1)
    assert planned(options_for(broker.service_url, topic, startingOffsets=str(behind))) == []
    until = options_for(broker.service_url, topic, endingOffsets=str(behind))
    assert values(until) == numbered(3)


def test_times_choose_entries(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, [[b"a"]])
    middle_ms = int(time.time() * 1000) + 1
    while time.time() * 1000 <= middle_ms + 1:
        pass
    fill(broker.service_url, topic, batches(12, 1))
    url = broker.service_url
    assert values(options_for(url, topic, startingTime=str(middle_ms))) == numbered(12)
    assert values(options_for(url, topic, endingTime=str(middle_ms))) == [b"a"]
    assert values(options_for(url, topic, startingTime=str(middle_ms * 2))) == []
    assert values(options_for(url, topic, startingTime="0", endingTime=str(middle_ms * 2))) == [b"a", *numbered(12)]
    assert values(options_for(url, topic, endingTime="5")) == []


def test_partitions_are_read_by_their_names(broker: SmallLedgers, topic: str) -> None:
    broker.create_partitioned(topic, 3)
    fill(broker.service_url, f"{topic}-partition-0", batches(2, 2))
    fill(broker.service_url, f"{topic}-partition-2", [[b"z"]])
    options = options_for(broker.service_url, topic)
    rows = read_all(options, planned(options))
    assert [(row["value"], row["__topic"][-1]) for row in rows] == [
        (b"0", "0"), (b"1", "0"), (b"2", "0"), (b"3", "0"), (b"z", "2"),
    ]  # fmt: skip
    assert [deserialize(row["__messageId"]).partition for row in rows] == [0, 0, 0, 0, 2]
    assert values(options_for(broker.service_url, f"{topic}-partition-2")) == [b"z"]
    with pytest.raises(InvalidConfig, match="is partitioned, so positions must name a partition"):
        planned(options_for(broker.service_url, topic, startingOffsets="1:1"))


def test_a_pattern_finds_topics_with_and_without_partitions(broker: SmallLedgers, topic: str) -> None:
    broker.create_partitioned(f"{topic}-many", 2)
    fill(broker.service_url, f"{topic}-many-partition-1", [[b"m"]])
    fill(broker.service_url, f"{topic}-one", [[b"o"]])
    local = parse_topic_name(topic).local
    pattern = read_options({"service.url": broker.service_url, "topicsPattern": f"public/default/{local}-.*"})
    assert [row["value"] for row in read_all(pattern, planned(pattern))] == [b"m", b"o"]
    with pytest.raises(TopicNotFound, match=r"no topic matches topicsPattern='public/default/none\.\*'"):
        planned(read_options({"service.url": broker.service_url, "topicsPattern": "public/default/none.*"}))


def test_a_topic_without_messages_is_no_rows_and_one_that_is_not_there_an_error(
    broker: SmallLedgers, topic: str
) -> None:
    fill(broker.service_url, topic, [])
    assert planned(options_for(broker.service_url, topic)) == []
    with pytest.raises(TopicNotFound):
        planned(options_for(broker.service_url, f"{topic}-not-there"))
    assert not broker.exists("not-there")


def test_a_range_survives_lost_connections(broker: SmallLedgers, topic: str, network: BadNetwork) -> None:
    # More than the network holds, so that what is cut off was not read ahead.
    rows = [b"%0100d" % number for number in range(120_000)]
    fill(broker.service_url, topic, [rows[start : start + 1000] for start in range(0, len(rows), 1000)])
    options = options_for(network.service_url, topic)
    [wanted] = planned(options)
    found = []
    for number, entry in enumerate(reader(options, wanted).entries()):
        found.append(entry.position)
        if number % 40 == 20:
            network.cut()
    expected = [Position(span.ledger_id, each) for span in wanted.spans for each in range(span.first, span.last + 1)]
    assert found == expected
    assert network.connections > 4


def test_no_entry_is_left_out_when_the_connection_is_lost_while_permits_are_sent(
    broker: SmallLedgers, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.service_url, topic, [[b"%d" % number] * 1000 for number in range(10)])
    flow = BlockingReader.flow
    calls = 0

    def flow_or_lose(self: BlockingReader, messages: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            raise ConnectionLost("cut while permits are sent")
        flow(self, messages)

    options = options_for(broker.service_url, topic)
    [wanted] = planned(options)
    monkeypatch.setattr(BlockingReader, "flow", flow_or_lose)
    found = [entry.position for entry in reader(options, wanted).entries()]
    expected = [Position(span.ledger_id, each) for span in wanted.spans for each in range(span.first, span.last + 1)]
    assert found == expected
    assert calls > 10


def test_a_broker_that_says_nothing_is_waited_for_and_given_up(
    broker: SmallLedgers, topic: str, network: BadNetwork
) -> None:
    fill(broker.service_url, topic, [[bytes(100_000)]] * 60)
    options = options_for(network.service_url, topic)
    [wanted] = planned(options)
    entries = reader(options, wanted, poll_timeout_ms=300).entries()
    next(entries)
    network.hold()
    with pytest.raises(DataLoss, match=r"did not arrive within 0\.3 s .* increase pollTimeoutMs") as error:
        list(entries)
    assert str(wanted) in str(error.value)


def test_a_broker_that_is_away_is_an_error_when_planning() -> None:
    with pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:1: .* is the broker running\?"):
        planned(options_for("pulsar://127.0.0.1:1", "in"))


def test_entries_that_retention_deleted_are_a_loss(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, batches(25, 1))
    options = options_for(broker.service_url, topic, minPartitions="2")
    plan = planned(options)
    assert len(broker.trim(topic)) == 2
    with pytest.raises(
        DataLoss,
        match=r"the next entry is .*, but .* was expected; at least 12 entries are"
        r" lost",
    ) as error:
        read_all(options, plan)
    assert "set failOnDataLoss=false" in str(error.value)
    lenient = options_for(broker.service_url, topic, minPartitions="2", failOnDataLoss="false")
    assert [row["value"] for row in read_all(lenient, plan)] == numbered(25)[2 * LEDGER_ENTRIES :]
    start = f"{plan[0].start}"
    with pytest.raises(DataLoss, match=r"does not have start position .*; it holds"):
        planned(options_for(broker.service_url, topic, startingOffsets=start))
    again = options_for(broker.service_url, topic, startingOffsets=start, failOnDataLoss="false")
    assert values(again) == numbered(25)[2 * LEDGER_ENTRIES :]


def test_a_topic_that_is_deleted_while_it_is_read_is_a_loss_and_not_made_anew(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, [[bytes(100_000)] * 5] * 60)
    options = options_for(broker.service_url, topic)
    [wanted] = planned(options)
    entries = reader(options, wanted).entries()
    next(entries)
    broker.delete(topic)
    with pytest.raises(DataLoss, match="the topic no longer exists"):
        list(entries)
    lenient = reader(options_for(broker.service_url, topic, failOnDataLoss="false"), wanted)
    assert list(lenient.entries()) == []
    assert lenient.lost_entries == 60
    assert not broker.exists(topic)


def chunked(broker: SmallLedgers, topic: str, *messages: bytes, **config: Any) -> list[MessageId]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False, **config)
    sent = [producer.send(message) for message in messages]
    client.close()
    return [MessageId(each.ledger_id(), each.entry_id()) for each in sent]


@pytest.mark.parametrize("ranges", [1, 3, 20])
def test_messages_in_chunks_are_read_once_wherever_ranges_are_cut(broker: SmallLedgers, ranges: int) -> None:
    topic = broker.topic()
    large = bytes(range(256)) * 50_000  # 12.8 MB: three chunks
    chunked(broker, topic, b"first", large, b"middle", large[::-1])
    for _ in range(3):
        chunked(broker, topic, large)
    options = options_for(broker.service_url, topic, minPartitions=str(ranges))
    plan = planned(options)
    assert len(plan) == min(ranges, 17)
    assert values(options) == [b"first", large, b"middle", large[::-1], large, large, large]


def test_compressed_messages_in_chunks_are_read(broker: SmallLedgers, topic: str) -> None:
    large = bytes(hash((number, "x")) & 255 for number in range(1_000)) * 13_000
    noise = b"".join(number.to_bytes(4, "little") for number in range(3_000_000))
    chunked(broker, topic, large, noise, compression_type=pulsar.CompressionType.LZ4)
    assert values(options_for(broker.service_url, topic)) == [large, noise]


def test_a_message_whose_first_chunks_are_gone_is_a_loss(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, batches(LEDGER_ENTRIES - 1, 1))
    chunked(broker, topic, bytes(12_000_000))
    fill(broker.service_url, topic, [[b"after"]])
    broker.trim(topic)
    options = options_for(broker.service_url, topic)
    with pytest.raises(DataLoss, match=r"the chunked message ending at \d+:\d+ lacks 1 of its chunks"):
        values(options)
    assert values(options_for(broker.service_url, topic, failOnDataLoss="false")) == [b"after"]


def test_small_ranges_make_the_broker_send_little_more(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, batches(300, 100))
    options = options_for(broker.service_url, topic, minPartitions="150")
    rows = read_all(options, planned(options)[:20])
    assert len(rows) == 20 * 200
    # A range has 200 of the 1,000 messages that are asked for before it is known how many an entry holds; planning
    # looks at one entry of each of the 30 ledgers.
    assert broker.messages_out(topic) <= 20 * 1_000 + 30 * 100


def test_a_large_batch_before_the_end_leaves_permits_for_the_last_one(broker: SmallLedgers, topic: str) -> None:
    sizes = [1, 1, 1, 1, 1, 1500, 1]
    fill(broker.service_url, topic, [[b"x"] * size for size in sizes], batch_max_messages=2000)
    options = options_for(broker.service_url, topic, pollTimeoutMs="4000")
    assert len(values(options)) == sum(sizes)
