"""Where a read ended is where the next one begins: nothing is missing between the two, and nothing there twice."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.source.options import read_options
from magnetar.spark.source.streaming.places import to_json
from magnetar.spark.source.topic_metadata import plan_with_ends
from magnetar.spark.spark_version import installed_spark
from magnetar.wire.message_id import deserialize

from tests.spark.topics import fill, numbered, options_for, publish, read_all
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import SmallLedgers

ENTRIES, ROWS_PER_ENTRY = 25, 4
KEEPS_PLANS = (installed_spark() or (4, 1)) >= (4, 1)


def ended(broker: SmallLedgers, topic: str, **options: str) -> str:
    """Where a read of a topic ends, as the next one takes it."""
    return json.dumps(to_json(plan_with_ends(options_for(broker.service_url, topic, **options), 3, 1).ends))


def rows_of(broker: SmallLedgers, topic: str, **options: str) -> list[bytes]:
    chosen = options_for(broker.service_url, topic, **options)
    return [row["value"] for row in read_all(chosen, plan_with_ends(chosen, 3, 1).ranges)]


def fill_numbers(broker: SmallLedgers, topic: str, first: int, entries: int) -> None:
    rows = numbered(first + entries * ROWS_PER_ENTRY)[first:]
    fill(broker.service_url, topic, [rows[at : at + ROWS_PER_ENTRY] for at in range(0, len(rows), ROWS_PER_ENTRY)])


@pytest.mark.spark
def test_reads_that_follow_each_other_have_each_message_once(broker: SmallLedgers, topic: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    found: list[bytes] = []
    offsets, written = "{}", 0
    for least in (1, 0, 0, 0, 0, 0):
        entries = chance.randrange(least, ENTRIES)  # none at times; a ledger ends every ten
        fill_numbers(broker, topic, written, entries)
        written += ROWS_PER_ENTRY * entries
        found += rows_of(broker, topic, startingOffsets=offsets)
        offsets = ended(broker, topic, startingOffsets=offsets)
    assert found == numbered(written)


@pytest.mark.spark
def test_a_read_up_to_a_message_in_a_batch_ends_behind_it(broker: SmallLedgers, topic: str) -> None:
    fill_numbers(broker, topic, 0, 3)
    [ledger] = {span.ledger_id for wanted in plan(broker, topic) for span in wanted.spans}
    end = ended(broker, topic, endingOffsets=f"{ledger}:1:2")
    assert json.loads(end) == {f"persistent://public/default/{topic.rpartition('/')[2]}": f"{ledger}:1:3"}
    assert rows_of(broker, topic, startingOffsets=end) == numbered(12)[7:]
    last_of_its_batch = ended(broker, topic, endingOffsets=f"{ledger}:1:3")
    assert rows_of(broker, topic, startingOffsets=last_of_its_batch) == numbered(12)[8:]


def plan(broker: SmallLedgers, topic: str) -> list[Any]:
    return plan_with_ends(options_for(broker.service_url, topic), 3, 1).ranges


@pytest.mark.spark
def test_a_read_without_messages_ends_where_it_began(broker: SmallLedgers, topic: str) -> None:
    fill_numbers(broker, topic, 0, 3)
    end = ended(broker, topic)
    assert ended(broker, topic, startingOffsets=end) == end
    assert ended(broker, topic, startingOffsets=json.dumps({topic: "latest"})) == end
    much_later = ended(broker, topic, startingTime=str(2**42))
    fill_numbers(broker, topic, 12, 1)
    assert rows_of(broker, topic, startingOffsets=end) == numbered(16)[12:]
    assert rows_of(broker, topic, startingOffsets=much_later) == numbered(16)[12:]


@pytest.mark.spark
def test_topics_without_messages_are_read_from_their_beginning_next(broker: SmallLedgers) -> None:
    one, other = broker.topic(), broker.topic()
    fill_numbers(broker, one, 0, 1)
    fill(broker.service_url, other, [])
    options = {"service.url": broker.service_url, "topics": f"{one},{other}"}
    ends = to_json(plan_with_ends(read_options(options), 3, 1).ends)
    assert len(ends) == 1
    fill_numbers(broker, other, 0, 2)
    chosen = read_options({**options, "startingOffsets": json.dumps(ends)})
    assert [row["value"] for row in read_all(chosen, plan_with_ends(chosen, 3, 1).ranges)] == numbered(8)


@pytest.mark.spark
def test_columns_of_positions_are_those_of_the_message_id(broker: SmallLedgers, topic: str) -> None:
    fill_numbers(broker, topic, 0, 12)  # in two ledgers
    publish(broker.service_url, topic, b"48")
    [first, *_] = plan(broker, topic)
    names = "value,__messageId,__partition,__ledgerId,__entryId,__batchIndex"
    start = f"{first.start.ledger_id}:1:2"
    chosen = options_for(broker.service_url, topic, columns=names, startingOffsets=start)
    rows = read_all(chosen, plan_with_ends(chosen, 3, 1).ranges)
    assert [row["value"] for row in rows] == numbered(49)[6:]
    for row in rows:
        id_ = deserialize(row["__messageId"])
        assert (row["__ledgerId"], row["__entryId"]) == (id_.ledger_id, id_.entry_id)
        assert row["__batchIndex"] == (id_.batch_index if id_.batch_index >= 0 else None)
        assert row["__partition"] is None
    assert rows[-1]["__batchIndex"] is None
    parts = broker.topic()
    chosen = options_for(broker.service_url, f"{parts}-partition-3", columns="__partition")
    fill(broker.service_url, f"{parts}-partition-3", [[b"x", b"y"]])
    assert read_all(chosen, plan_with_ends(chosen, 3, 1).ranges) == [{"__partition": 3}] * 2


def read(spark: SparkSession, cluster: Server, topic: str, **options: str) -> DataFrame:
    return spark.read.format("magnetar").option("service.url", cluster.service_url).options(**options).load(topic)


@pytest.mark.spark
@pytest.mark.slow
def test_the_end_of_a_frame_is_that_of_its_plan_whatever_came_since(spark: SparkSession, cluster: Server) -> None:
    from magnetar.spark import end_of

    fill(cluster.service_url, "ending", [numbered(10)])
    frame = read(spark, cluster, "ending")
    if not KEEPS_PLANS:
        with pytest.raises(
            InvalidConfig, match=r"Spark 4\.0 plans a read again for each action, so a read has no single end"
        ):
            end_of(frame)
        return
    end = end_of(frame)
    fill(cluster.service_url, "ending", [numbered(7)])
    assert frame.count() == 10
    assert end_of(frame.groupBy("value").count().where("count > 1")) == end
    following = read(spark, cluster, "ending", startingOffsets=end)
    assert following.count() == 7
    with pytest.raises(InvalidConfig, match=r"ending is read twice, up to .*: call end_of for each read separately"):
        end_of(frame.union(following))
    with pytest.raises(InvalidConfig, match="the DataFrame does not read a topic with format magnetar"):
        end_of(spark.range(3))


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_goes_on_where_a_stream_ended(spark: SparkSession, cluster: Server, tmp_path: Path) -> None:
    from magnetar.spark import end_of

    fill(cluster.service_url, "streamed", [numbered(10)])
    stream = spark.readStream.format("magnetar").option("service.url", cluster.service_url)
    query = stream.option("startingOffsets", "earliest").load("streamed").writeStream.format("noop")
    running = query.option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    running.awaitTermination(120)
    fill(cluster.service_url, "streamed", [numbered(3)])
    names = "__ledgerId,__entryId,__batchIndex,__partition"
    rows = read(spark, cluster, "streamed", startingOffsets=end_of(running), columns=names).collect()
    assert [tuple(row)[1:] for row in rows] == [(rows[0][1], index, None) for index in range(3)]
