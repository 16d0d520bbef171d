"""Streams that are started at once: what Spark keeps of their source is not damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.spark.spark_version import register

from tests.spark.topics import fill, numbered
from tests.support.pulsar import own_name
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STREAMS = 4


def environment_of(spark: SparkSession, form: str) -> set[str]:
    """Return the names in what Spark keeps for the Python processes of a source."""
    return set(spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource(form).dataSourceCls().envVars())


def test_streams_of_a_source_may_start_at_once(spark: SparkSession, cluster: Server, tmp_path: Path) -> None:
    from magnetar.spark.source.source import MagnetarSource

    class OtherSource(MagnetarSource):
        """One that no stream of this session has begun with, for that is when Spark changes what it keeps."""

        @classmethod
        def name(cls) -> str:
            return "started-at-once"

    topic, form = own_name("at-once"), OtherSource.name()
    fill(cluster.service_url, topic, [numbered(10)])
    register(spark, OtherSource)
    before = environment_of(spark, form)
    reader = spark.readStream.format(form).option("service.url", cluster.service_url).option("topic", topic)
    frame = reader.option("startingOffsets", "earliest").load()
    queries = [
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / str(number)))
        .trigger(availableNow=True)
        .start()
        for number in range(STREAMS)
    ]
    for query in queries:
        assert query.awaitTermination(300)
        assert sum(batch["numInputRows"] for batch in query.recentProgress) == 10
    # Where a stream adds something, another one that starts with it damages what all tasks are sent with.
    assert environment_of(spark, form) == before
