"""Batches of a stream that are written again after a crash: the topic holds each row once. Without Spark and a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import httpx
import pyarrow as pa
import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.source.streaming.epochs import CheckpointBehind, RowsDiffer
from magnetar.spark.source.streaming.sink import EpochTask, write_epoch
from magnetar.spark.source.streaming.sink_options import StreamWriteOptions, stream_write_options
from magnetar.spark.source.streaming.sort_rows import check_sort_columns, sorted_rows
from magnetar.spark.source.writer import Written

from tests.spark.topics import numbered, options_for, values
from tests.support.pulsar import BROKERS, Broker, own_name
from tests.support.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Crash(Exception):
    """The end of an attempt."""


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


@pytest.fixture
def topic(cluster: Broker) -> str:
    name = own_name("sink")
    httpx.put(f"{cluster.web_url}/admin/v2/persistent/public/default/{name}/partitions", json=2).raise_for_status()
    return f"persistent://public/default/{name}"


def options_of(cluster: Broker, topic: str, **more: str) -> StreamWriteOptions:
    order = {} if "sortBy" in more or "effectivelyOnce" in more else {"unshuffled": "true"}
    given = {"service.url": cluster.service_url, "admin.url": cluster.web_url, "topic": topic, **order, **more}
    return stream_write_options(given)


def keyed(rows: Sequence[bytes]) -> pa.RecordBatch:
    keys = [f"k{int(row) % 7}" for row in rows]
    return pa.record_batch({"value": pa.array(rows, pa.binary()), "__key": pa.array(keys, pa.string())})


def write(options: StreamWriteOptions, epoch: int, rows: Sequence[bytes], *, crashes: bool = False) -> Written:
    def batches() -> Iterator[pa.RecordBatch]:
        if rows:
            yield keyed(rows)
        if crashes:
            raise Crash

    return write_epoch(options, EpochTask("query", epoch, 0), batches())


def stored(cluster: Broker, topic: str) -> list[bytes]:
    return values(options_for(cluster.service_url, topic))


def test_an_epoch_that_is_written_again_is_stored_once(cluster: Broker, topic: str) -> None:
    options = options_of(cluster, topic)
    rows = numbered(12_000)
    with pytest.raises(Crash):
        write(options, 0, rows[:9_000], crashes=True)
    assert sum(write(options, 0, rows)) == len(rows)
    assert write(options, 0, rows) == Written(0, len(rows))  # its commit was lost
    assert write(options, 1, []) == Written(0, 0)
    assert write(options, 2, rows[:5]) == Written(5, 0)  # the same rows, and another batch
    assert Counter(stored(cluster, topic)) == Counter(rows + rows[:5])


def test_rows_that_differ_and_old_checkpoints_are_refused_with_nothing_stored(cluster: Broker, topic: str) -> None:
    options = options_of(cluster, topic)
    rows = numbered(50)
    write(options, 3, rows)
    for others in (rows[::-1], rows[:49], []):
        with pytest.raises(RowsDiffer, match="batch 3 of producer spark-query-stream-0"):
            write(options, 3, others)
    with pytest.raises(CheckpointBehind, match=r"has batch 3 of producer .*, so batch 2 cannot be written"):
        write(options, 2, rows)
    assert Counter(stored(cluster, topic)) == Counter(rows)


def test_partitions_that_are_added_before_an_epoch_is_repeated_are_noticed(cluster: Broker, topic: str) -> None:
    rows = numbered(50)
    write(options_of(cluster, topic), 0, rows)
    url = f"{cluster.web_url}/admin/v2/{topic.replace('://', '/')}/partitions"
    httpx.post(url, json=4).raise_for_status()
    with pytest.raises(RowsDiffer, match=r"option topic\.partitions of the sink"):
        write(options_of(cluster, topic), 0, rows)
    pinned = options_of(cluster, topic, **{"topic.partitions": "2"})
    assert write(pinned, 0, rows) == Written(0, 50)
    assert write(options_of(cluster, topic), 1, rows[:9]) == Written(9, 0)
    assert Counter(stored(cluster, topic)) == Counter(rows + rows[:9])


def test_at_least_once_drops_nothing_on_a_topic_that_is_deduplicated(cluster: Broker, topic: str) -> None:
    rows = numbered(50)
    write(options_of(cluster, topic), 0, [])  # switches it on
    loose = options_of(cluster, topic, effectivelyOnce="false")
    write(loose, 0, rows)
    write(loose, 0, rows[::-1])
    assert Counter(stored(cluster, topic)) == Counter(rows + rows)


def test_rows_that_are_sorted_by_a_key_may_come_in_any_order(cluster: Broker, topic: str) -> None:
    rows = numbered(3_000)
    options = options_of(cluster, topic, sortBy="value")
    assert write(options, 0, rows) == Written(3_000, 0)
    assert write(options, 0, rows[::-1]) == Written(0, 3_000)
    with pytest.raises(InvalidConfig, match="1 of 3 rows have the same value as another row of their task"):
        write(options, 1, [b"1", b"2", b"1"])
    assert Counter(stored(cluster, topic)) == Counter(rows)


def test_a_key_is_checked_and_columns_for_sorting_are_dropped() -> None:
    batches = [pa.record_batch({"id": [3, 1], "value": ["c", "a"]}), pa.record_batch({"id": [2], "value": ["b"]})]
    [found] = sorted_rows(batches, ["id"], ["id"])
    assert found.to_pydict() == {"value": ["a", "b", "c"]}
    assert list(sorted_rows([], ["id"])) == []
    with pytest.raises(InvalidConfig, match="id is null in 1 of 1 rows"):
        list(sorted_rows([pa.record_batch({"id": pa.array([None], pa.int64())})], ["id"]))
    with pytest.raises(InvalidConfig, match="exceed 8 bytes"):
        list(sorted_rows(batches, ["id"], max_bytes=8))
    with pytest.raises(InvalidConfig, match="sortBy names 'key', but the DataFrame only has value"):
        check_sort_columns([("value", "string")], ["key"])
    with pytest.raises(InvalidConfig, match="of type double: cast it"):
        check_sort_columns([("x", "double")], ["x"])
