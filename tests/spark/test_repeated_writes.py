"""Writes of rows that are made again after a crash: the topic holds each row once. Without Spark and a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.source.options import WriteOptions, write_options
from magnetar.spark.source.writer import pinned, write_rows

from tests.client.clusters import OurBroker
from tests.spark.topics import numbered, options_for, values

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    it = OurBroker(tmp_path_factory.mktemp("broker"), deduplication=True)
    yield it
    it.close()


class Crash(Exception):
    """The end of an attempt."""


def keyed(rows: Sequence[bytes]) -> pa.RecordBatch:
    keys = [f"k{int(row) % 7}" for row in rows]
    return pa.record_batch({"value": pa.array(rows, pa.binary()), "__key": pa.array(keys, pa.string())})


def write(options: WriteOptions, batches: Sequence[pa.RecordBatch], *, crashes: bool = False) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches
        if crashes:
            raise Crash

    write_rows(options, 0, rows())


def options_of(broker: OurBroker, topic: str) -> WriteOptions:
    given = {"service.url": broker.service_url, "topic": topic, "producer.name.prefix": "totals"}
    return pinned(write_options(given, "run"))


@pytest.mark.timeout(300)
def test_partitions_that_are_added_between_two_attempts_change_nothing(broker: OurBroker, tmp_path: Path) -> None:
    topic = broker.topic()
    broker.create_partitioned(topic, 2)
    options = options_of(broker, topic)
    rows = numbered(30_000)
    with pytest.raises(Crash):
        write(options, [keyed(rows[:20_000])], crashes=True)
    broker.add_partitions(topic, 5)
    write(options, [keyed(rows)])
    assert Counter(values(options_for(broker.service_url, topic))) == Counter(rows)


@pytest.mark.timeout(300)
def test_large_properties_do_not_make_an_entry_too_large(broker: OurBroker) -> None:
    topic = broker.topic()
    count = 1200
    column = pa.array([[("note", "x" * 6_000)]] * count, pa.map_(pa.string(), pa.string()))
    rows = numbered(count)
    write(
        replace(options_of(broker, topic), name_prefix="large"),
        [pa.record_batch({"value": pa.array(rows, pa.binary()), "__messageProperties": column})],
    )
    assert values(options_for(broker.service_url, topic)) == rows


@pytest.mark.timeout(300)
def test_a_topic_with_less_partitions_than_before_is_another_one(broker: OurBroker) -> None:
    topic = broker.topic()
    broker.create_partitioned(topic, 2)
    assert options_of(broker, topic).partitions == 2
    options = replace(options_of(broker, topic), partitions=3)
    with pytest.raises(InvalidConfig, match=r"topic.partitions=3, but .* has 2: the topic may have been recreated"):
        pinned(options)
    with pytest.raises(InvalidConfig, match=r"topic.partitions=0, but .* has 2"):
        pinned(replace(options, partitions=0))
    assert pinned(replace(options, partitions=1)).partitions == 1
    assert pinned(replace(options, topic=f"{topic}-partition-1", partitions=None)).partitions == 0
