"""Topics as streams, in a Spark session of this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import magnetar
import pytest

from tests.spark.topics import fill, numbered
from tests.support.pulsar import BROKERS, Broker, own_name
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
AVAILABLE = {"availableNow": True}


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{own_name('streams')}"


class Stream:
    """A query that collects the values of each of its batches, and may be started again."""

    def __init__(self, spark: SparkSession, cluster: Broker, directory: Path, topic: str, **options: str) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.runs: list[int] = []
        self.fails_at: int | None = None
        reader = spark.readStream.format("magnetar").option("service.url", cluster.service_url)
        self._frame = reader.option("topic", topic).options(**{"startingOffsets": "earliest", **options}).load()
        self.checkpoint = directory / "checkpoint"

    def _take(self, frame: DataFrame, number: int) -> None:
        values = [bytes(row["value"]) for row in frame.select("value").collect()]
        self.runs.append(number)
        if number == self.fails_at:
            raise RuntimeError("the sink is away")
        self.batches[number] = values

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger).start()

    def run(self, **trigger: Any) -> StreamingQuery:
        query = self.start(**trigger)
        assert query.awaitTermination(300)
        return query

    @property
    def values(self) -> list[bytes]:
        return [value for number in sorted(self.batches) for value in self.batches[number]]

    def offsets(self) -> list[Any]:
        """What the checkpoint says after each batch."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return [json.loads(file.read_text().splitlines()[-1]) for file in files]


Open = Callable[..., Stream]


@pytest.fixture
def begin(spark: SparkSession, cluster: Broker, tmp_path: Path, topic: str) -> Open:
    return lambda **options: Stream(spark, cluster, tmp_path, topic, **options)


def test_a_run_over_what_is_available_is_cut_by_the_limit(begin: Open, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [[value] for value in numbered(25)])
    stream = begin(maxOffsetsPerTrigger="10")
    query = stream.run(**AVAILABLE)
    assert [len(stream.batches[number]) for number in sorted(stream.batches)] == [10, 10, 5]
    assert stream.values == numbered(25)
    places = [offset[topic] for offset in stream.offsets()]
    assert [place.split(":")[1] for place in places] == ["10", "20", "25"]
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress["sources"][0]["latestOffset"]) == {topic: places[-1]}
    fill(cluster.service_url, topic, [[b"25"]])
    again = begin(maxOffsetsPerTrigger="10")
    again.run(once=True)
    assert again.batches == {3: [b"25"]}


def test_a_running_stream_follows_its_topic(begin: Open, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [numbered(5)])
    stream = begin()
    query = stream.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert stream.values == numbered(5)
        fill(cluster.service_url, topic, [[b"5", b"6"], [b"7"]])
        query.processAllAvailable()
        assert stream.values == numbered(8)
    finally:
        query.stop()


def test_a_batch_that_failed_is_run_again_with_the_same_rows(begin: Open, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [[value] for value in numbered(20)])
    stream = begin(maxOffsetsPerTrigger="10", predefinedSubscription="spark")
    stream.fails_at = 1
    with pytest.raises(Exception, match="the sink is away"):
        stream.run(**AVAILABLE)
    fill(cluster.service_url, topic, [[value] for value in numbered(25)[20:]])
    stream.fails_at = None
    stream.run(**AVAILABLE)
    assert stream.runs == [0, 1, 1, 2]
    assert stream.values == numbered(25)
    import httpx

    stats = httpx.get(f"{cluster.web_url}/admin/v2/{topic.replace('://', '/')}/stats").raise_for_status().json()
    assert stats["subscriptions"]["spark"]["msgBacklog"] == 0


def test_rows_of_a_stream_are_those_of_a_batch(
    spark: SparkSession, cluster: Broker, topic: str, tmp_path: Path
) -> None:
    fill(cluster.service_url, topic, [numbered(100)[at : at + 7] for at in range(0, 100, 7)])
    options = {"service.url": cluster.service_url, "topics": topic, "startingOffsets": "earliest"}
    streamed = spark.readStream.format("pulsar").options(**options, minPartitions="3").load()
    query = (
        streamed.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(300)
    batch = spark.read.format("magnetar").options(**options).load()
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.count() == 100
    columns = [name for name in batch.columns if name != "__messageProperties"]  # maps cannot be compared
    assert found.select(columns).exceptAll(batch.select(columns)).count() == 0


def test_errors_of_streams_reach_the_user(begin: Open, cluster: Broker, topic: str) -> None:
    with pytest.raises(Exception, match="does not exist"):
        begin().run(**AVAILABLE)
    with pytest.raises(Exception, match="did you mean maxOffsetsPerTrigger"):
        begin(maxOffsetPerTrigger="5")


def test_the_example_of_the_documentation_runs(
    spark: SparkSession, cluster: Broker, topic: str, tmp_path: Path
) -> None:
    page = (Path(magnetar.__file__).parent / "docs" / "how-to" / "spark-stream.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    code = code.replace("pulsar://127.0.0.1:6650", cluster.service_url).replace('"orders"', repr(topic))
    fill(cluster.service_url, topic, [numbered(10)])
    names: dict[str, Any] = {}
    exec(code, names)
    for _ in range(2):  # the second run finds nothing new
        assert names["bronze"](spark, tmp_path).awaitTermination(300)
    found = spark.read.parquet(str(tmp_path / "bronze")).collect()
    assert sorted(int(row["value"]) for row in found) == list(range(10))
