"""Streams that are started at once: what Spark keeps of their source is not damaged."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.spark.spark_version import register

from tests.spark.topics import fill, numbered
from tests.support.pulsar import own_name
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STREAMS, ROUNDS = 4, 4


def environment_of(spark: SparkSession, form: str) -> set[str]:
    """Return the names in what Spark keeps for the Python processes of a source."""
    return set(spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource(form).dataSourceCls().envVars())


def start_at_once(spark: SparkSession, form: str, url: str, topic: str, directory: Path) -> list[StreamingQuery]:
    """Start streams that read what is there, each in a thread of its own."""
    ready = threading.Barrier(STREAMS)
    queries: list[StreamingQuery] = []

    def start(number: int) -> None:
        reader = spark.readStream.format(form).option("service.url", url).option("topic", topic)
        writer = reader.option("startingOffsets", "earliest").load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(directory / f"{form}-{number}")).trigger(availableNow=True)
        ready.wait(60)
        queries.append(writer.start())

    threads = [threading.Thread(target=start, args=(number,)) for number in range(STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queries) == STREAMS
    return queries


def test_streams_of_a_source_may_start_at_once(spark: SparkSession, cluster: Server, tmp_path: Path) -> None:
    from magnetar.spark.source.source import MagnetarSource

    topic = own_name("at-once")
    fill(cluster.service_url, topic, [numbered(10)])
    for number in range(ROUNDS):
        form = f"at-once-{number}"
        # A source of its own for each round: Spark changes what it keeps of one when its first streams start.
        register(spark, type("OtherSource", (MagnetarSource,), {"name": classmethod(lambda _, form=form: form)}))
        before = environment_of(spark, form)
        for query in start_at_once(spark, form, cluster.service_url, topic, tmp_path):
            assert query.awaitTermination(300)
            assert sum(batch["numInputRows"] for batch in query.recentProgress) == 10
        assert environment_of(spark, form) == before
