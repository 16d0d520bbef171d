"""Message functions as Spark jobs: one session, a broker and a state store for the whole file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path

import pytest
from magnetar.api.message_id import FunctionMessageId
from magnetar.client import AsyncClient, ConsumerConfig
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.instance.batch_call import BatchCall
from magnetar.instance.function_context import FunctionContext
from magnetar.instance.identity import incarnation_of, table_of
from magnetar.instance.loading.loader import ProcessHome, load_function, load_serde
from magnetar.instance.publish_request import PublishRequest
from magnetar.instance.stats import InstanceStats
from magnetar.instance.unit import Unit
from magnetar.spark.jobs.plans import Plan, PlanStore, Task
from magnetar.spark.source.connection import Routes
from magnetar.spark.source.topic_metadata import backlog
from magnetar.state.client import TableClient

from tests.spark.functions import Lab, Running
from tests.spark.spark_cluster import Master
from tests.spark.topics import fill, numbered, options_for, values
from tests.support.calm import Calm
from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import Server
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


class Nowhere:
    def publish(self, request: PublishRequest) -> None:
        raise AssertionError("the functions of this test publish nothing")

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        raise AssertionError("the functions of this test acknowledge nothing")


def received_entries(service_url: str, topic: str) -> list[ReceivedEntry]:
    """Return all entries of a topic as a consumer gets them."""

    async def receive() -> list[ReceivedEntry]:
        async with AsyncClient(service_url) as client:
            consumer = await client.subscribe(topic, "a look", ConsumerConfig(initial_position="Earliest"))
            entries = [await consumer.receive_entry() for _ in range(2)]
            await consumer.close()
            return entries

    return asyncio.run(receive())


EXCLAIM = "def process(value):\n    return str(value) + '!'\n"


def batches(count: int, size: int) -> list[list[bytes]]:
    rows = numbered(count * size)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def test_a_run_works_off_the_backlog_once(lab: Lab) -> None:
    function = lab.function(EXCLAIM)
    lab.fill(batches(20, 50))
    end = lab.run(function)
    assert end.stage == "done", end.error
    assert (end.error, end.rows, end.lag) == ("", 1000, 0)
    assert end.tasks_done == end.tasks_total > 0
    assert sorted(lab.outputs()) == sorted(value + b"!" for value in numbered(1000))
    assert [report.stage for report in lab.reports if report.stage != "running"] == ["planning", "committing"]
    again = lab.run(function, "another")
    assert (again.stage, again.rows, again.tasks_total) == ("done", 0, 0)
    assert len(lab.outputs()) == 1000


PACKAGE = {
    "user_code.py": """
import threading

from shapes import Shape


class Describe:
    def __init__(self):
        self.lock = threading.Lock()  # a process has no trouble with it either
        self.shape = Shape("<", ">")

    def process(self, value, context):
        import late

        if value is None or str(value).endswith("3"):
            return None
        with self.lock:
            facts = (
                context.get_message_key(), context.get_message_properties(), context.get_user_config_value("word"),
                context.get_function_name(), context.get_current_message_topic_name(), context.get_output_topic(),
            )
            return late.add(self.shape.around(value), facts)
""",
    "shapes.py": "from dataclasses import dataclass\n\n@dataclass\nclass Shape:\n    left: str\n    right: str\n"
    "    def around(self, value):\n        return f'{self.left}{type(value).__name__} {value}{self.right}'\n",
    "late.py": "def add(text, facts):\n    return f'{text} {facts}'\n",
}


def test_a_package_does_what_it_does_in_a_process(lab: Lab, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name, text in PACKAGE.items():
        (package / name).write_text(text)
    function = lab.function("", package=package, class_name="user_code.Describe", user_config={"word": "w"})
    mixed = [b"one", b"12", b"3", b"4.5", b"\xff\xfe", b""]
    lab.fill([mixed, mixed])
    end = lab.run(function)
    assert end.stage == "done", end.error

    home = ProcessHome(package)
    spec = function.spec
    stats = InstanceStats(0)
    context = FunctionContext(spec, stats, Nowhere(), logging.getLogger("here"), lambda name: load_serde(home, name))
    call = BatchCall(load_function(spec, home).call, context, load_serde(home, ""))
    unit = Unit()
    for entry in received_entries(lab.service_url, lab.input):
        unit.add(entry)
    context.enter(call.place, unit, 0)
    expected = [output for output in call.run(unit.messages, load_serde(home, "")).outputs if output is not None]
    assert len(expected) == 10
    assert sorted(lab.outputs()) == sorted(expected)


WHERE = """
import shapes

def process(value):
    return f"{shapes.__file__} {value}"
"""


def test_the_package_goes_to_where_the_tasks_are(lab: Lab, master: Master, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "user_code.py").write_text(WHERE)
    (package / "shapes.py").write_text("")
    function = lab.function("", package=package)
    lab.fill([[b"a"]])
    end = lab.run(function)
    assert end.stage == "done", end.error
    [(file, value)] = [output.decode().split() for output in lab.outputs()]
    assert value == "a"
    assert file.startswith(str(package)) == (master.cluster is None)


POISON = """
def process(value):
    if str(value) == "777":
        raise ValueError("not this one")
    return f"{value}!"
"""


def test_a_poison_message_fails_the_run_and_the_repaired_function_finishes_its_plan(lab: Lab) -> None:
    function = lab.function(POISON)
    lab.fill(batches(40, 50))
    for run_id in ("first", "second"):
        end = lab.run(function, run_id)
        assert (end.stage, end.is_user_error) == ("failed", True)
        assert "ValueError: not this one" in end.error
        assert f":15:27 of persistent://public/default/{lab.input} failed" in end.error
        assert "plan 1 is kept" in end.error
        assert function.lag() == 40  # entries
    lab.fill([[b"late"]])
    end = lab.run(lab.function(EXCLAIM), "first")
    assert end.stage == "done", end.error
    assert sorted(lab.outputs()) == sorted(value + b"!" for value in numbered(2000))
    end = lab.run(lab.function(EXCLAIM), "next")
    assert (end.stage, end.rows) == ("done", 1)
    assert len(lab.outputs()) == 2001


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("context.incr_counter('n', 1)", "state is not supported with runtimeEnv spark"),
        ("context.get_state('n')", "state is not supported with runtimeEnv spark"),
        ("context.publish('elsewhere', value)", "publishing to elsewhere is not supported with runtimeEnv spark"),
    ],
)
def test_what_a_task_cannot_do_exactly_once_is_refused(lab: Lab, call: str, what: str) -> None:
    function = lab.function(f"def process(value, context):\n    {call}\n")
    lab.fill([[b"a"]])
    end = lab.run(function)
    assert (end.stage, end.is_user_error) == ("failed", True)
    assert what in end.error


SLOW = "import time\n\ndef process(value):\n    time.sleep(float({pause}))\n    return f'{{value}}!'\n"


def test_a_run_is_cancelled_within_a_second_and_its_plan_finished_by_the_next(lab: Lab) -> None:
    function = lab.function(SLOW.format(pause=30))
    lab.fill(batches(10, 10))
    with Running(lab, function) as running:
        wait_for(lambda: lab.reports and lab.reports[-1].stage == "running", "the job", 200)
        time.sleep(0.5)  # so that its tasks sleep, which nothing shows
        calm = Calm()
        function.cancel()
        end = running.end(60)
        assert calm.calm_s < 1.5
    assert (end.stage, end.error) == ("cancelled", "")
    end = lab.run(lab.function(EXCLAIM), "next")
    assert (end.stage, end.rows) == ("done", 100), end.error
    assert sorted(lab.outputs()) == sorted(value + b"!" for value in numbered(100))


def test_a_killed_python_worker_costs_nothing(lab: Lab) -> None:
    function = lab.function(SLOW.format(pause=0.003), minimum=6)
    lab.fill(batches(60, 20))
    with Running(lab, function) as running:
        wait_for(lambda: lab.reports and lab.reports[-1].tasks_done >= 1, "a task", 200)
        victims = lab.python_workers()
        assert victims
        for victim in victims:
            victim.kill()
        end = running.end(300)
    assert end.stage == "done", end.error
    assert end.rows == 1200
    assert sorted(lab.outputs()) == sorted(value + b"!" for value in numbered(1200))


def test_a_second_driver_takes_the_plan_over_and_the_first_one_stops(lab: Lab) -> None:
    slow = lab.function(SLOW.format(pause=30))
    lab.fill(batches(10, 10))
    with Running(lab, slow) as running:
        wait_for(lambda: lab.reports and lab.reports[-1].stage == "running", "the job", 200)
        with contextlib.closing(TableClient(slow.spec.state_url)) as tables:
            metadata = slow.spec.metadata
            other = PlanStore(tables, table_of(metadata), incarnation=incarnation_of(metadata), owner="another")
            assert other.load().open_plan is not None
            end = running.end(60)
            assert end.stage == "failed"
            assert "another driver has taken over plan 1" in end.error
            assert not other.is_fenced()
    end = lab.run(lab.function(EXCLAIM), "next")
    assert (end.stage, end.rows) == ("done", 100), end.error
    assert sorted(lab.outputs()) == sorted(value + b"!" for value in numbered(100))


def test_an_empty_topic_needs_no_session(lab: Lab) -> None:
    function = lab.function(EXCLAIM, session=None)
    end = lab.run(function)
    assert (end.stage, end.rows, end.tasks_total, end.lag) == ("done", 0, 0, 0)


def test_a_topic_that_is_deleted_before_its_plan_is_finished_fails_the_run_until_a_reset(lab: Lab) -> None:
    function = lab.function(POISON)
    lab.fill(batches(40, 50))
    assert lab.run(function).stage == "failed"
    lab.delete(lab.input)
    end = lab.run(lab.function(EXCLAIM), "next")
    assert (end.stage, end.is_user_error) == ("failed", False)
    assert "no longer all exist: the topic holds nothing" in end.error
    assert "functions reset-cursor discards it" in end.error
    lab.fill([[b"new"]])
    end = lab.run(lab.function(EXCLAIM, incarnation=1), "after reset")
    assert (end.stage, end.rows) == ("done", 1), end.error
    assert b"new!" in lab.outputs()


def test_partitions_keep_their_order_where_it_is_asked_for(lab: Lab) -> None:
    for topic in (lab.input, lab.output):
        lab.partition(topic, 3)
    function = lab.function("def process(value):\n    return str(value)\n", retainOrdering=True)
    for part in range(3):
        fill(lab.service_url, f"{lab.input}-partition-{part}", [[b"%d-%d" % (part, n)] for n in range(200)])
    end = lab.run(function)
    assert (end.stage, end.rows, end.tasks_total) == ("done", 600, 3), end.error
    found = [
        value for part in range(3) for value in values(options_for(lab.service_url, f"{lab.output}-partition-{part}"))
    ]
    assert len(found) == 600
    for part in range(3):
        for out in range(3):
            there = values(options_for(lab.service_url, f"{lab.output}-partition-{out}"))
            numbers = [int(value.split(b"-")[1]) for value in there if value.startswith(b"%d-" % part)]
            assert numbers == sorted(numbers)


def test_a_driver_that_died_before_it_moved_the_subscription_leaves_that_to_the_next_run(lab: Lab) -> None:
    function = lab.function(EXCLAIM)
    lab.fill(batches(10, 10))
    metadata = function.spec.metadata
    [subscription] = function.subscriptions()
    whole = backlog(Routes(function.spec.service_url), subscription.topic, subscription.position(), None)
    assert whole is not None
    with contextlib.closing(TableClient(function.spec.state_url)) as tables:
        store = PlanStore(tables, table_of(metadata), incarnation=incarnation_of(metadata), owner="dead")
        store.load()
        store.begin(Plan(number=1, run_id="r", tasks=(Task(0, whole),)))
        store.finish()
    assert function.lag() == 10  # entries
    end = lab.run(function, "next")
    assert (end.stage, end.rows, end.lag) == ("done", 0, 0)
