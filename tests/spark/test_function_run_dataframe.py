"""DataFrame functions as Spark jobs: what they return is in the output topic once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from magnetar.spark.session import Session

from tests.spark.functions import Lab, Running
from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import Server
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
DAILY = Path(__file__).parents[2] / "examples" / "spark" / "daily.py"


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


COUNTS = """
from pyspark.sql import functions as f

LABEL = "times"

def label(number):
    return f"{number} {LABEL}"

def process(df, context):
    shown = f.udf(label)
    context.get_logger().info("run %s %d", context.run_id, context.run_number)
    words = df.groupBy(df.value.cast("string").alias("word")).count()
    return words.select("word", shown("count").alias("n"))
"""
FAILS_LATE = """
def process(df, context):
    from pathlib import Path
    flag = context.get_user_config_value("flag")

    def slowly(batches):
        for batch in batches:
            yield batch
            if not Path(flag).exists():
                raise ValueError("the flag is not there")

    return df.select("value").mapInArrow(slowly, "value BINARY")
"""


def words(entries: int, size: int) -> list[list[bytes]]:
    return [[b"w%d" % ((entry * size + row) % 37) for row in range(size)] for entry in range(entries)]


def test_a_returned_frame_is_written_once_as_json_where_it_has_no_value(lab: Lab) -> None:
    function = lab.function(COUNTS)
    assert function.is_dataframe
    lab.fill(words(30, 20))
    with Running(lab, function) as running:  # on a thread of its own, as in the host
        end = running.end(300)
    assert end.stage == "done", end.error
    assert (end.rows, end.lag) == (600, 0)
    expected = Counter(word.decode() for entry in words(30, 20) for word in entry)
    found = [json.loads(output) for output in lab.outputs()]
    assert len(found) == 37
    assert {row["word"]: row["n"] for row in found} == {word: f"{count} times" for word, count in expected.items()}
    assert lab.run(function, "again").rows == 0
    assert len(lab.outputs()) == 37


def test_a_run_that_failed_in_the_middle_of_writing_is_repeated_without_repetition(lab: Lab, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    function = lab.function(FAILS_LATE, user_config={"flag": str(flag)})
    rows = [[b"%d-%d" % (entry, row) for row in range(1500)] for entry in range(8)]
    lab.fill(rows)
    end = lab.run(function)
    assert (end.stage, end.is_user_error) == ("failed", True)
    assert "ValueError: the flag is not there" in end.error
    assert "plan 1 is kept" in end.error
    flag.touch()
    end = lab.run(function, "next")
    assert end.stage == "done", end.error
    assert sorted(lab.outputs()) == sorted(value for entry in rows for value in entry)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("def process(df, context):\n    return 5\n", "returned int: a DataFrame function must return a DataFrame"),
        ("def process(df):\n    raise KeyError('mine')\n", "KeyError: 'mine'"),
        ("def process(df, context):\n    context.get_message_key()\n", "is not available in a DataFrame function"),
        ("def process(df):\n    return df.select('nothing')\n", "nothing"),
    ],
)
def test_what_the_function_does_wrong_is_said(lab: Lab, code: str, what: str) -> None:
    function = lab.function(code)
    lab.fill([[b"a"]])
    end = lab.run(function)
    assert (end.stage, what in end.error) == ("failed", True), end.error


def test_a_frame_without_a_topic_to_go_to_is_refused(lab: Lab) -> None:
    function = lab.function("def process(df):\n    return df\n", output="")
    lab.fill([[b"a"]])
    end = lab.run(function)
    assert end.stage == "failed"
    assert "has no output topic: set output, or return None" in end.error


def test_a_function_in_the_middle_of_a_job_is_cancelled(lab: Lab) -> None:
    function = lab.function(
        "def process(df):\n"
        "    def sleep(batches):\n"
        "        import time\n"
        "        time.sleep(30)\n"
        "        yield from batches\n"
        "    return df.select('value').mapInArrow(sleep, 'value BINARY')\n"
    )
    lab.fill(words(4, 5))
    with Running(lab, function) as running:
        wait_for(lambda: lab.reports and lab.reports[-1].stage == "running", "the job", 200)
        function.cancel()
        end = running.end(60)
    assert (end.stage, end.error) == ("cancelled", "")


def test_the_example_aggregates_by_day(lab: Lab, session: Session, tmp_path: Path) -> None:
    function = lab.function(
        "", package=DAILY, class_name="daily.process", output="", user_config={"path": str(tmp_path / "daily")}
    )
    sales = [
        {"shop": shop, "at": f"2026-11-{day:02}T12:00:00Z", "cents": 100 * day}
        for day in (20, 21)
        for shop in ("Basel", "Bern")
        for _ in range(5)
    ]
    for _ in range(2):
        lab.fill([[json.dumps(sale).encode() for sale in sales]])
        end = lab.run(function)
        assert (end.stage, end.rows) == ("done", 20), end.error
    table = session.spark.read.parquet(str(tmp_path / "daily"))
    found = {(str(row.day), row.shop): row["sum(cents)"] for row in table.groupBy("day", "shop").sum("cents").collect()}
    assert found == {(f"2026-11-{day}", shop): 2 * 5 * 100 * day for day in (20, 21) for shop in ("Basel", "Bern")}
