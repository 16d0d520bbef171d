"""Topics that the official client has written, read by Spark: on our broker and on Apache Pulsar the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pulsar
import pytest
from magnetar.errors import DataLoss
from magnetar.spark.source.reader import BlockingReader, LastMessage
from magnetar.wire.message_id import MessageId, deserialize

from tests.spark.topics import numbered, options_for, planned, read_all
from tests.support.pulsar import BROKERS, Broker, own_name
from tests.support.servers import Server
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
COMPRESSIONS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
EVENT_MS = 1_763_700_000_123
RECEIPT_S = 20.0


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


@pytest.fixture
def client(cluster: Broker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def admin(cluster: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{cluster.web_url}/admin/v2/persistent/public/default/", timeout=20) as it:
        yield it


@pytest.fixture
def name(client: pulsar.Client) -> str:
    """A topic of this test's own; a subscription keeps its ledgers, which else go as soon as they are closed."""
    name = own_name("official")
    client.subscribe(name, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    return name


def read(spark: SparkSession, cluster: Broker, name: str, **options: str) -> DataFrame:
    return spark.read.format("magnetar").option("service.url", cluster.service_url).options(**options).load(name)


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row["value"]) for row in frame.select("value").collect()]


def send_batch(producer: pulsar.Producer, payloads: list[bytes], **options: Any) -> list[MessageId]:
    """Send all without waiting in between; return their ids."""
    ids: list[MessageId] = []
    for payload in payloads:
        producer.send_async(payload, lambda result, id_: ids.append(id_of(id_)), **options)
    producer.flush()
    wait_for(lambda: len(ids) == len(payloads), "receipts", RECEIPT_S)
    return ids


def id_of(id_: Any) -> MessageId:
    return MessageId(id_.ledger_id(), id_.entry_id(), batch_index=id_.batch_index())


def row_id(row: Row) -> MessageId:
    found = deserialize(bytes(row["__messageId"]))
    return MessageId(found.ledger_id, found.entry_id, batch_index=found.batch_index)


def in_ledgers(client: pulsar.Client, admin: httpx.Client, name: str, ledgers: int, each: int) -> list[MessageId]:
    """Publish numbers, each as an entry of its own, into so many ledgers; return their ids."""
    ids: list[MessageId] = []
    for number in range(ledgers):
        if number:
            admin.put(f"{name}/unload").raise_for_status()
        producer = client.create_producer(name, batching_enabled=False)
        ids += [id_of(producer.send(b"%d" % (number * each + row))) for row in range(each)]
        producer.close()
    assert len({id_.ledger_id for id_ in ids}) == ledgers
    return ids


def test_every_way_of_publishing_gives_its_rows(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, name: str
) -> None:
    expected = []
    for compression in COMPRESSIONS:
        kind = getattr(pulsar.CompressionType, compression)
        for is_batching in (True, False):
            producer = client.create_producer(
                name, batching_enabled=is_batching, batching_max_publish_delay_ms=5_000, compression_type=kind
            )
            # Larger than what clients leave uncompressed.
            payloads = [f"{compression} {is_batching} {row} ".encode() * 40 for row in range(30)]
            facts: dict[str, Any] = {"properties": {"by": compression, "empty": ""}, "event_timestamp": EVENT_MS}
            for key, more in ((f"key of {compression}", facts), (None, {})):
                chosen = payloads if key else [b"plain " + payload for payload in payloads]
                options = more | ({"partition_key": key} if key else {})
                sent = send_batch(producer, chosen, **options)
                expected += [(payload, key, more, id_) for payload, id_ in zip(chosen, sent, strict=True)]
            producer.close()
    rows = read(spark, cluster, name).collect()
    assert [bytes(row["value"]) for row in rows] == [payload for payload, *_ in expected]
    for row, (_, key, facts, id_) in zip(rows, expected, strict=True):
        assert row["__key"] == (key.encode() if key else None)
        assert row["__messageProperties"] == facts.get("properties")
        assert (row["__eventTime"] is None) == (not facts)
        if facts:
            assert row["__eventTime"].timestamp() == EVENT_MS / 1000
        assert abs(row["__publishTime"].timestamp() - time.time()) < 120
        assert row["__topic"] == f"persistent://public/default/{name}"
        assert row_id(row)[:2] == id_[:2]
    assert {row_id(row).batch_index for row in rows} > {-1, 0, 29}


@pytest.mark.parametrize("parts", ["1", "4"])
def test_messages_in_chunks_are_rows(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, name: str, parts: str
) -> None:
    large = bytes(range(256)) * 50_000  # 12.8 MB: three chunks
    noise = b"".join(number.to_bytes(4, "little") for number in range(3_000_000))
    for payload, compression in ((large, "NONE"), (b"between", "NONE"), (noise, "LZ4"), (large[::-1], "ZSTD")):
        producer = client.create_producer(
            name, chunking_enabled=True, batching_enabled=False,
            compression_type=getattr(pulsar.CompressionType, compression),
        )  # fmt: skip
        producer.send(payload)
        producer.close()
    assert values(read(spark, cluster, name, minPartitions=parts)) == [large, b"between", noise, large[::-1]]


def test_partitions_are_read_whoever_chose_them(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client
) -> None:
    name = own_name("partitioned")
    admin.put(f"{name}/partitions", json=3).raise_for_status()
    producer = client.create_producer(name, batching_enabled=True)
    for row in range(300):
        producer.send_async(b"%d" % row, lambda *_: None, partition_key=f"k{row % 11}")
    producer.flush()
    producer.close()
    rows = read(spark, cluster, name).collect()
    assert sorted(int(row["value"]) for row in rows) == list(range(300))
    by_key: dict[bytes, set[str]] = {}
    for row in rows:
        partition = deserialize(bytes(row["__messageId"])).partition
        assert row["__topic"] == f"persistent://public/default/{name}-partition-{partition}"
        by_key.setdefault(bytes(row["__key"]), set()).add(row["__topic"])
    assert len(by_key) == 11
    assert all(len(topics) == 1 for topics in by_key.values())
    some = read(spark, cluster, f"{name}-partition-1").collect()
    assert [row["value"] for row in some] == [row["value"] for row in rows if row["__topic"].endswith("-1")]


def test_a_pattern_finds_the_topics_of_a_namespace(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client
) -> None:
    base = own_name("pattern")
    admin.put(f"{base}-parts/partitions", json=2).raise_for_status()
    for name in (f"{base}-parts", f"{base}-one", base):
        producer = client.create_producer(name)
        producer.send(name.encode())
        producer.close()
    spark_read = spark.read.format("magnetar").option("service.url", cluster.service_url)
    found = spark_read.option("topicsPattern", f"public/default/{base}-.*").load()
    assert sorted(values(found)) == [f"{base}-one".encode(), f"{base}-parts".encode()]


@pytest.mark.matrix
@pytest.mark.parametrize("with_rest", [False, True])
@pytest.mark.parametrize("parts", ["1", "3", "7", "100"])
def test_ranges_over_several_ledgers_hold_every_message_once(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str, parts: str,
    with_rest: bool,
) -> None:  # fmt: skip
    in_ledgers(client, admin, name, 4, 6)
    admin.put(f"{name}/unload").raise_for_status()
    options = {"minPartitions": parts} | ({"admin.url": cluster.web_url} if with_rest else {})
    frame = read(spark, cluster, name, **options)
    found = frame.rdd.glom().collect()
    assert len(found) == min(int(parts), 24)
    assert [bytes(row["value"]) for part in found for row in part] == numbered(24)


def test_offsets_bound_a_read(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    ids = in_ledgers(client, admin, name, 3, 5)
    first, last = (f"{id_.ledger_id}:{id_.entry_id}" for id_ in (ids[3], ids[11]))
    assert values(read(spark, cluster, name, startingOffsets=first, endingOffsets=last)) == numbered(15)[3:12]
    assert values(read(spark, cluster, name, startingOffsets=last)) == numbered(15)[11:]
    producer = client.create_producer(name, batching_enabled=True, batching_max_publish_delay_ms=5_000)
    send_batch(producer, numbered(10))
    producer.close()
    *_, entry = read(spark, cluster, name).collect()
    start = deserialize(bytes(entry["__messageId"]))
    inside = f"{start.ledger_id}:{start.entry_id}"
    bounds = {"startingOffsets": f"{inside}:4", "endingOffsets": f"{inside}:6"}
    assert values(read(spark, cluster, name, **bounds)) == numbered(10)[4:7]


def test_offsets_are_the_ids_of_the_official_client(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    in_ledgers(client, admin, name, 2, 5)
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    ids = [reader.read_next(10_000).message_id() for _ in range(10)]
    reader.close()

    def offsets(id_: Any) -> str:
        return json.dumps({f"persistent://public/default/{name}": list(id_.serialize())})

    frame = read(spark, cluster, name, startingOffsets=offsets(ids[2]), endingOffsets=offsets(ids[7]))
    assert values(frame) == numbered(10)[2:8]


def test_times_bound_a_read(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    in_ledgers(client, admin, name, 2, 4)
    time.sleep(0.01)  # apart in publish times, which are milliseconds
    admin.put(f"{name}/unload").raise_for_status()
    producer = client.create_producer(name, batching_enabled=False)
    for row in range(8, 12):
        producer.send(b"%d" % row)
    producer.close()
    rows = read(spark, cluster, name).collect()
    times = [round(row["__publishTime"].timestamp() * 1000) for row in rows]
    assert times[7] < times[8]
    assert values(read(spark, cluster, name, startingTime=str(times[8]))) == numbered(12)[8:]
    assert values(read(spark, cluster, name, endingTime=str(times[8] - 1))) == numbered(8)
    both = read(spark, cluster, name, startingTime=str(times[7] + 1), endingTime=str(times[11]))
    assert values(both) == numbered(12)[8:]
    assert values(read(spark, cluster, name, startingTime=str(times[11] + 60_000))) == []


def test_what_was_trimmed_is_a_loss_unless_it_may_be(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    ids = in_ledgers(client, admin, name, 3, 5)
    options = options_for(cluster.service_url, name, minPartitions="2")
    plan = planned(options)
    assert sum(one.entries for one in plan) == 15
    # A new ledger, and nobody left who needs those before it.
    admin.put(f"{name}/unload").raise_for_status()
    producer = client.create_producer(name, batching_enabled=False)
    last = id_of(producer.send(b"15"))
    producer.close()
    admin.delete(f"{name}/subscription/keep").raise_for_status()

    def is_trimmed() -> bool:
        admin.post(f"{name}/trim").raise_for_status()
        ledgers = admin.get(f"{name}/internalStats").raise_for_status().json()["ledgers"]
        return [ledger["ledgerId"] for ledger in ledgers] == [last.ledger_id]

    wait_for(is_trimmed, "topic that has lost its first ledgers", 30)
    with pytest.raises(DataLoss, match=r"are lost; set failOnDataLoss=false"):
        read_all(options, plan)
    lenient = options_for(cluster.service_url, name, minPartitions="2", failOnDataLoss="false")
    assert read_all(lenient, plan) == []
    start = f"{ids[0].ledger_id}:{ids[0].entry_id}"
    with pytest.raises(Exception, match=r"does not have start position .*; it holds"):
        read(spark, cluster, name, startingOffsets=start).count()
    assert values(read(spark, cluster, name, startingOffsets=start, failOnDataLoss="false")) == [b"15"]
    assert values(read(spark, cluster, name)) == [b"15"]


def test_a_topic_that_is_unloaded_while_it_is_planned_is_looked_at_again(
    cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_ledgers(client, admin, name, 3, 5)
    original, unloads = BlockingReader.last_message, 0

    def last_message(reader: BlockingReader) -> LastMessage:
        nonlocal unloads
        if unloads < 2:
            unloads += 1
            admin.put(f"{name}/unload").raise_for_status()
        return original(reader)

    monkeypatch.setattr(BlockingReader, "last_message", last_message)
    assert [span.entries for one in planned(options_for(cluster.service_url, name)) for span in one.spans] == [5] * 3
    assert unloads == 2


def test_a_topic_that_is_deleted_after_planning_is_a_loss_and_stays_deleted(
    cluster: Broker, client: pulsar.Client, admin: httpx.Client, name: str
) -> None:
    in_ledgers(client, admin, name, 2, 5)
    options = options_for(cluster.service_url, name)
    plan = planned(options)
    admin.delete(name, params={"force": True}).raise_for_status()
    with pytest.raises(DataLoss, match="the topic no longer exists"):
        read_all(options, plan)
    assert read_all(options_for(cluster.service_url, name, failOnDataLoss="false"), plan) == []
    assert f"persistent://public/default/{name}" not in admin.get("").raise_for_status().json()


def test_a_topic_without_messages_is_empty_and_one_that_is_missing_stays_missing(
    spark: SparkSession, cluster: Broker, admin: httpx.Client, name: str
) -> None:
    assert values(read(spark, cluster, name)) == []
    with pytest.raises(Exception, match="does not exist"):
        read(spark, cluster, f"{name}-missing").count()
    assert f"persistent://public/default/{name}-missing" not in admin.get("").raise_for_status().json()
