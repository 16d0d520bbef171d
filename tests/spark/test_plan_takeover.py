"""Drivers that hang and wake up when others have gone on: they change nothing any more. Without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.errors import TopicNotFound
from magnetar.spark.jobs.function_run import SparkFunction
from magnetar.spark.jobs.planner import Planner, Subscription
from magnetar.spark.jobs.plans import Plan, PlanStore, RunFenced, Task
from magnetar.spark.jobs.spark_job import RunCancelled
from magnetar.spark.source.connection import Routes
from magnetar.spark.source.topic_metadata import backlog
from magnetar.state.client import TableClient
from magnetar.state.server import TableServer
from magnetar.wire.functions_pb2 import ConsumerSpec
from magnetar.wire.position import Position

from tests.spark.conftest import SmallLedgers
from tests.spark.functions import make_spec
from tests.spark.topics import fill

TABLE = "public/default/taken"
NAME = "a function"


@pytest.fixture
def tables(state: TableServer) -> Iterator[TableClient]:
    with contextlib.closing(TableClient(state.url)) as client:
        client.drop(TABLE)
        yield client


def loaded(tables: TableClient, owner: str, reset: int) -> PlanStore:
    it = PlanStore(tables, TABLE, incarnation=f"uuid/{reset}", owner=owner)
    it.load()
    return it


def subscription(broker: SmallLedgers, topic: str, *, from_earliest: bool = True) -> Subscription:
    return Subscription(Routes(broker.service_url), topic, NAME, from_earliest=from_earliest)


def finished(broker: SmallLedgers, tables: TableClient, topic: str) -> tuple[PlanStore, Position]:
    """A driver that has done its plan and not moved the subscription yet."""
    fill(broker.service_url, topic, [[b"%d" % number] for number in range(25)])
    whole = backlog(Routes(broker.service_url), topic, subscription(broker, topic).position(), None)
    assert whole is not None
    assert whole.entries == 25
    driver = loaded(tables, "one that hangs", 0)
    driver.begin(Plan(number=1, run_id="r", tasks=(Task(0, whole),)))
    driver.finish()
    return driver, whole.end


def test_a_subscription_that_was_reset_is_not_moved_by_a_driver_of_before(
    broker: SmallLedgers, tables: TableClient, topic: str
) -> None:
    driver, end = finished(broker, tables, topic)
    mine = subscription(broker, topic)
    stands = mine.position()
    assert PlanStore(tables, TABLE, incarnation="uuid/1", owner="the next").claim().ends == {}
    with pytest.raises(RunFenced, match="driver the next has taken over the function"):
        mine.move(end, driver.check)
    assert mine.position() == stands < end
    assert driver.is_fenced()


def test_a_driver_of_before_a_reset_begins_nothing(tables: TableClient) -> None:
    new = loaded(tables, "new", 10)
    new.begin(Plan(number=1, run_id="r", tasks=()))
    with pytest.raises(RunFenced, match="were reset and driver new has started over"):
        loaded(tables, "old", 9)
    new.finish()


def test_a_function_that_was_deleted_leaves_no_subscription(
    broker: SmallLedgers, tables: TableClient, topic: str
) -> None:
    driver, end = finished(broker, tables, topic)
    assert not driver.is_fenced()
    tables.drop(TABLE)
    broker.delete(topic)
    fill(broker.service_url, topic, [[b"later"]])
    assert driver.is_fenced()
    with pytest.raises(RunFenced, match="deletion of the function"):
        subscription(broker, topic).move(end, driver.check)
    with pytest.raises(KeyError):
        broker.backlog(topic, NAME)


def test_a_subscription_is_moved_by_the_driver_that_is_on(
    broker: SmallLedgers, tables: TableClient, topic: str
) -> None:
    driver, end = finished(broker, tables, topic)
    assert subscription(broker, topic).move(end, driver.check)
    assert broker.backlog(topic, NAME) == 0
    assert subscription(broker, topic).position() >= end


@pytest.mark.parametrize("is_known", [True, False])
def test_a_subscription_that_is_gone_skips_nothing_where_it_is_known_how_far_the_topic_was_read(
    broker: SmallLedgers, topic: str, is_known: bool
) -> None:
    fill(broker.service_url, topic, [[b"%d" % number] for number in range(5)])
    mine = subscription(broker, topic, from_earliest=False)
    mine.position(is_known=is_known)
    assert broker.backlog(topic, NAME) == (5 if is_known else 0)


def test_a_topic_that_is_gone_is_not_made_anew_for_its_subscription(
    broker: SmallLedgers, tables: TableClient, topic: str
) -> None:
    driver, end = finished(broker, tables, topic)
    broker.delete(topic)
    assert not subscription(broker, topic).move(end, driver.check)
    with pytest.raises(TopicNotFound):
        backlog(Routes(broker.service_url), topic, end, None)


@pytest.mark.parametrize(
    ("planned", "there", "used"), [(2, 2, 2), (2, 5, 2), (3, 2, 2), (0, 2, 2), (2, 0, 0), (0, 0, 0)]
)
def test_a_plan_goes_to_the_output_topic_that_there_is(
    broker: SmallLedgers, tables: TableClient, tmp_path: Path, planned: int, there: int, used: int
) -> None:
    """Partitions may have been added, or the topic was made anew, or is another one since an update."""
    output = broker.topic()
    if there:
        broker.create_partitioned(output, there)
    place: Any = SimpleNamespace(service_url=broker.service_url, web_url="")
    spec = make_spec(tmp_path, place, "", "", output=output)
    driver = loaded(tables, "me", 0)
    plan = Plan(number=1, run_id="r", tasks=(), outputs=planned)
    driver.begin(plan)
    said: list[str] = []
    fitted = Planner(spec, driver, said.append, lambda: None).unfinished(plan)
    assert fitted == replace(plan, outputs=used)
    assert len(said) == (planned != used)
    assert loaded(tables, "the next", 0).record.open_plan == fitted


def test_a_run_that_is_cancelled_while_spark_starts_may_go_on_elsewhere(
    broker: SmallLedgers, state: TableServer, tmp_path: Path, topic: str
) -> None:
    def open_session() -> Any:
        raise RunCancelled

    place: Any = SimpleNamespace(service_url=broker.service_url, web_url="")
    code, inputs = "def process(value):\n    return value\n", {topic: ConsumerSpec()}
    spec = make_spec(tmp_path, place, state.url, code, output="", inputs=inputs, name="starts")
    fill(broker.service_url, topic, [[b"waits"]])
    job = SparkFunction(spec, open_session)
    assert job.run("r", lambda _: None).stage == "cancelled"
    assert SparkFunction(spec, open_session).unfinished() == "r"
