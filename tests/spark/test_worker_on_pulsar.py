"""Spark functions that our worker runs on Apache Pulsar, their plans in our state store: created, triggered, exact."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import magnetar
import pulsar
import pytest
from magnetar.cli.demo import demo_spark_function

from tests.spark.deployed import create, functions, host, run_of, slow_function
from tests.spark.topics import options_for, planned, read_all
from tests.support.pulsar import ApachePulsar, own_name
from tests.support.servers import Server, running, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.pulsar, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]
READINGS = Path(magnetar.__file__).parent / "examples" / "spark" / "readings.py"
WORDS = Path(demo_spark_function.__file__)
RUN_S = 180.0  # the first one starts a JVM, beside that of Pulsar
STOPS = ("done", "failed", "cancelled")


@dataclass
class Place:
    """A worker of ours on Apache Pulsar, and its command line."""

    worker: Server
    broker: ApachePulsar

    @property
    def web_url(self) -> str:
        return self.worker.worker_url

    @property
    def service_url(self) -> str:
        return self.broker.service_url

    def create(self, name: str, code: Path, function: str, *flags: str) -> None:
        create(self, name, code, function, "--runtime", "spark", *flags).ok()

    def run(self, name: str) -> dict[str, Any]:
        """Trigger a run; return its record at its end."""
        functions(self, "trigger", "--name", name, "--no-wait").ok()
        return self.end_of_run(name)

    def end_of_run(self, name: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            run = run_of(self, name)
            return run if run["stage"] in STOPS else None

        return wait_for(ended, f"end of the run of {name}", RUN_S)

    def outputs(self, name: str) -> list[dict[str, Any]]:
        options = options_for(self.broker.service_url, f"{name}-out")
        return read_all(options, planned(options))

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        url = f"{self.broker.web_url}/admin/v2/persistent/public/default/{path}"
        answer = httpx.request(method, url, json=body, timeout=20).raise_for_status()
        return answer.json() if answer.content else None

    def publish(self, topic: str, payloads: list[bytes], **options: Any) -> None:
        """By the official client, in batches."""
        client = pulsar.Client(self.broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_messages=100, batching_max_publish_delay_ms=1_000,
            block_if_queue_full=True, compression_type=pulsar.CompressionType.LZ4,
        )  # fmt: skip
        results: list[Any] = []
        for payload in payloads:
            producer.send_async(payload, lambda result, _: results.append(result), **options)
        producer.flush()
        client.close()
        assert results == [pulsar.Result.Ok] * len(payloads)


@pytest.fixture(scope="module")
def place(apache_pulsar: ApachePulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("spark-on-pulsar")
    with running("state-store", directory / "state") as state:
        config = directory / "functions_worker.yml"
        config.write_text(
            f"pulsarFunctionsNamespace: public/{own_name('functions')}\n"
            f"stateStorageServiceUrl: {state.addresses['stateStorageServiceUrl']}\n"
            "sparkMaster: local[2]\nsparkDriverMemory: 512m\n"
        )
        with running(
            "worker", directory / "worker", "--config", str(config),
            "--service-url", apache_pulsar.service_url, "--admin-url", apache_pulsar.web_url,
        ) as worker:  # fmt: skip
            yield Place(worker, apache_pulsar)


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


def test_a_message_function_works_off_what_has_come(place: Place) -> None:
    name = own_name("readings")
    place.create(name, READINGS, "to_fahrenheit", "--min-partitions", "4")
    readings = [
        json.dumps({"sensor": f"s{number % 7}", "celsius": number / 10 - (1000 if number % 100 == 0 else 0)}).encode()
        for number in range(5_000)
    ]
    expected = sorted(
        json.dumps({"sensor": f"s{number % 7}", "fahrenheit": round(number / 10 * 1.8 + 32, 2)}).encode()
        for number in range(5_000)
        if number % 100
    )
    place.publish(f"{name}-in", readings, properties={"from": "there"})
    place.admin("PUT", f"{name}-in/unload")
    run = place.run(name)
    assert (run["stage"], run["rows"], run["tasksDone"]) == ("done", 5_000, run["tasksTotal"]), run
    assert run["tasksTotal"] >= 4
    rows = place.outputs(name)
    assert sorted(row["value"] for row in rows) == expected
    assert all(row["__messageProperties"] == [("from", "there")] for row in rows)
    [subscription] = place.admin("GET", f"{name}-in/stats")["subscriptions"].values()
    assert subscription["msgBacklog"] == 0
    assert place.run(name)["rows"] == 0
    place.publish(f"{name}-in", [b'{"sensor": "new", "celsius": 0}'])
    assert place.run(name)["rows"] == 1
    found = sorted(row["value"] for row in place.outputs(name))
    assert found == sorted([*expected, b'{"sensor": "new", "fahrenheit": 32.0}'])
    functions(place, "delete", "--name", name).ok()


def test_a_dataframe_function_counts_over_partitions(place: Place) -> None:
    name = own_name("words")
    for topic in (f"{name}-in", f"{name}-out"):
        place.admin("PUT", f"{topic}/partitions", 3)
    place.create(name, WORDS, "process")
    lines = [b"w%d w%d all" % (number % 13, number % 5) for number in range(3_000)]
    for key in ("a", "b", "c", "d"):
        place.publish(f"{name}-in", lines, partition_key=key)
    run = place.run(name)
    assert (run["stage"], run["rows"]) == ("done", 12_000), run
    expected = Counter(word for line in lines * 4 for word in line.split())
    found = place.outputs(name)
    assert len(found) == len(expected)
    assert {row["__key"]: int(row["value"]) for row in found} == expected
    functions(place, "delete", "--name", name).ok()


def test_a_killed_driver_leaves_nothing_out_and_nothing_twice(place: Place, tmp_path: Path) -> None:
    name = own_name("killed")
    place.create(name, slow_function(tmp_path, "slow"), "process", "--min-partitions", "6")
    place.publish(f"{name}-in", numbers(0, 20_000))
    (tmp_path / "slow").touch()
    functions(place, "trigger", "--name", name, "--no-wait").ok()
    wait_for(lambda: (tmp_path / "begun").exists(), "a call of the function", RUN_S)
    driver = host(place.worker)
    family = [driver, *driver.children(recursive=True)]
    driver.send_signal(signal.SIGKILL)
    (tmp_path / "slow").unlink()
    run = place.end_of_run(name)
    assert run["stage"] == "done", run
    assert survivors(family, 10) == []
    assert sorted(row["value"] for row in place.outputs(name)) == sorted(b"%s!" % one for one in numbers(0, 20_000))
    functions(place, "delete", "--name", name).ok()


def test_a_message_that_raises_is_named_and_nothing_behind_it_is_lost(place: Place, tmp_path: Path) -> None:
    name = own_name("poison")
    code = tmp_path / "poison.py"
    code.write_text("def process(message):\n    return str(100 // int(message))\n")
    place.create(name, code, "process")
    place.publish(f"{name}-in", [b"1", b"2", b"0", b"5"])
    run = place.run(name)
    assert run["stage"] == "failed"
    assert "ZeroDivisionError" in run["error"]
    assert f"{name}-in" in run["error"]
    code.write_text("def process(message):\n    return str(100 // (int(message) or 50))\n")
    functions(place, "update", "--name", name, "--py", str(code), "--classname", "poison.process").ok()
    run = place.run(name)
    assert run["stage"] == "done", run
    assert sorted(row["value"] for row in place.outputs(name)) == [b"100", b"2", b"20", b"50"]
    functions(place, "delete", "--name", name).ok()
