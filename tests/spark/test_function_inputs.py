"""Several inputs of a DataFrame function, each by its name; and statements, which have them as views."""

from __future__ import annotations

import json

import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.session import Session
from magnetar.wire.functions_pb2 import ConsumerSpec

from tests.spark.functions import Lab
from tests.spark.topics import fill
from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]
CODE = """
def process(df, context):
    left, right = context.get_input_topics()
    both = df.groupBy("__topic").count().count()
    one = context.table(left).selectExpr("'left' AS side", "value")
    other = context.table(right.replace("-", "_")).selectExpr("'right' AS side", "value")
    if context.get_user_config_value("absent"):
        context.table("absent")
    counted = one.union(other).groupBy("side").count()
    return counted.selectExpr(f"concat(side, ' ', count, ' of {both}') AS value")
"""


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


def two_inputs(lab: Lab) -> dict[str, ConsumerSpec]:
    """A topic without partitions and one with two of them, both with messages."""
    right = f"{lab.input}-right"
    lab.partition(right, 2)
    lab.fill([[b"l%d-%d" % (entry, row) for row in range(10)] for entry in range(4)])
    fill(lab.service_url, f"{right}-partition-0", [[b"r0", b"r1"], [b"r2"]])
    fill(lab.service_url, f"{right}-partition-1", [[b"r3"]])
    return {lab.input: ConsumerSpec(), right: ConsumerSpec()}


def test_each_input_is_a_frame_of_its_own(lab: Lab) -> None:
    inputs = two_inputs(lab)
    failing = lab.function(CODE, inputs=inputs, user_config={"absent": True})
    end = lab.run(failing, "first")
    assert end.stage == "failed"
    assert f"'absent' is not an input of the function: expected one of {lab.input}, " in end.error
    function = lab.function(CODE, inputs=inputs)
    end = lab.run(function)
    assert (end.stage, end.rows, end.lag) == ("done", 44, 0), end.error
    assert sorted(lab.outputs()) == [b"left 40 of 3", b"right 4 of 3"]
    # Nothing is new in the other one.
    lab.fill([[b"more"]])
    end = lab.run(function, "again")
    assert (end.stage, end.rows) == ("done", 1), end.error
    assert sorted(lab.outputs()) == [b"left 1 of 1", b"left 40 of 3", b"right 4 of 3"]


WRONG = (
    ("SELECT value,\nFROM {view} one two", "line 2, pos"),
    ("SELECT nothing FROM {view}", "nothing"),
    ("SELECT * FROM absent", "`absent` cannot be found"),
    ("WITH a AS (SELECT 1 AS n) INSERT INTO {view} SELECT n FROM a", "INSERT"),
    ("FROM {view} INSERT INTO {view} SELECT *", "INSERT"),
    ("SELECT count(*) AS value FROM {view}", "column value has type bigint: cast it to"),
    ("SELECT value, 1 AS n FROM {view}", "column n cannot be written to a message"),
)


def test_a_wrong_statement_is_found_without_a_run_and_by_one(lab: Lab, session: Session) -> None:
    view = lab.input.replace("-", "_")
    lab.fill([[b"a", b"b"]])

    def statement(text: str) -> dict[str, str]:
        return {"customRuntimeOptions": json.dumps({"runtimeEnv": "spark", "sql": text.format(view=view)})}

    for text, reason in WRONG:
        function = lab.function("", class_name="sql", **statement(text))
        with pytest.raises(InvalidConfig) as caught:
            function.check(session)
        said = str(caught.value)
        assert reason in said, said
        assert "\n" not in said
    end = lab.run(lab.function("", class_name="sql", **statement("SELECT nothing FROM {view}")))
    assert end.stage == "failed"
    assert end.error.splitlines()[0].count("nothing") >= 1, end.error
    right = lab.function("", class_name="sql", **statement("SELECT value FROM {view} -- as it is"))
    right.check(session)
    end = lab.run(right, "right")
    assert (end.stage, end.rows) == ("done", 2), end.error
    assert lab.outputs() == [b"a", b"b"]
