"""Writes the data directory that `test_upgrade.py` opens, with the installed version of Magnetar.

    /path/of/that/version/.venv/bin/python tests/upgrade/write_fixture.py tests/upgrade/data-<commit>.tar.xz

It runs `magnetar standalone` twice: the first life is stopped, so that its data is in ledgers and catalogue, the second
is killed, so that its data is in the journal only. What is written is constant, and stated here for the test as well.
A version that stores something new gets an archive of its own, beside those of the versions before.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import magnetar
import pulsar
from magnetar.spark.jobs.plans import Plan, PlanStore, Task
from magnetar.spark.source.ranges import Span, TopicRange
from magnetar.state.client import TableClient

PLAIN = "persistent://public/default/plain"
PLAIN_MESSAGES = [f"plain {number}" for number in range(25)]
PLAIN_ACKNOWLEDGED = {0, 1, 3, 4, 8, 15, 21}
BATCHED = "persistent://public/default/batched"
BATCH = 10
BATCHED_MESSAGES = [f"batched {number}" for number in range(3 * BATCH)]
BATCHED_ACKNOWLEDGED = {2, 5, *range(10, 20), 21, 29}
ONCE = "persistent://public/kept/once"
ONCE_PRODUCER = "the-producer"
ONCE_IDS = [1, 2, 3, 5, 8, 13]
GONE = "persistent://public/default/gone"
ENDED = "persistent://public/default/ended"
RETENTION = {"retentionTimeInMinutes": 1_000_000, "retentionSizeInMB": 100}

COUNT, EXACT, FARE = "count", "exact", "fare"
FUNCTIONS = [COUNT, EXACT, FARE]
COUNT_SOURCE = """
def process(text, context):
    for word in text.split():
        context.incr_counter(word, 1)
    context.put_state("last", text)
    return text.upper()
"""
COUNT_LINES = ["one two two", "three two"]
COUNTED = {"one": 1, "two": 3, "three": 1}
EXACT_SOURCE = """
def process(text, context):
    context.incr_counter("seen", 1)
    return text + "!"
"""
EXACT_LINES = [f"exact {number}" for number in range(12)]
RIDES = [10, 20]
RATE = 0.5

SPARK_TABLE = "public/default/sums@an-uuid"
SPARK_LIFE = "an-uuid/0"
SPARK_PLAN = Plan(
    number=1,
    run_id="a-run",
    tasks=(
        Task(0, TopicRange(PLAIN, (Span(3, 0, 19),))),
        Task(0, TopicRange(BATCHED, (Span(4, 0, 1), Span(9, 0, 0)))),
    ),
    outputs=2,
    shuffles=4,
)


def inputs(name: str) -> str:
    """Return the input topic of a function."""
    return f"persistent://public/default/{name}-in"


def outputs(name: str) -> str:
    """Return the output topic of a function."""
    return f"persistent://public/default/{name}-out"


def make_fare() -> Callable[[str, Any], str]:
    """Return a function that is pickled by value, including its closure."""
    base = 2.5

    def fare(text, context):  # type: ignore[no-untyped-def]
        return str(base + float(text) * context.get_user_config_value("rate"))

    fare.__module__ = "__main__"  # by value, wherever this is imported
    return fare


def fare_of(km: int) -> str:
    """Return the expected output of the pickled function."""
    return str(2.5 + km * RATE)


class Life:
    """One run of `magnetar standalone`.

    Args:
        directory: data directory, log and ready file are below it.
    """

    def __init__(self, directory: Path) -> None:
        self.ready = directory / "ready.json"
        self.ready.unlink(missing_ok=True)
        config = directory / "config.yml"
        config.write_text("journalMaxSizeMB: 1\n")
        flags = ["--data-dir", str(directory / "data"), "--config", str(config), "--ready-file", str(self.ready)]
        for name in ("--broker-port", "--web-port", "--worker-port", "--state-port"):
            flags += [name, str(free_port())]
        with (directory / "log").open("ab") as log:
            command = [sys.executable, "-m", "magnetar.cli", "standalone", *flags]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        wait_for(self.ready.exists)
        self.addresses = json.loads(self.ready.read_text())
        self.web = httpx.Client(base_url=self.addresses["webServiceUrl"], timeout=60)
        self.client = pulsar.Client(
            self.addresses["brokerServiceUrl"], logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, "/dev/null")
        )

    def call(self, method: str, path: str, **content: Any) -> None:
        """Send a request to the REST interface."""
        self.web.request(method, f"/admin/{path}", **content).raise_for_status()

    def close(self, end: Callable[[], None]) -> None:
        """Stop the clients, then the server."""
        self.client.close()
        self.web.close()
        end()
        self.process.wait(60)


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("waited 60 s")
        time.sleep(0.05)


def publish(life: Life, plain: list[str], batched: list[str]) -> None:
    """Publish some messages one by one and others in batches, and acknowledge part of both."""
    producer = life.client.create_producer(PLAIN)
    holes = life.client.subscribe(PLAIN, "holes", initial_position=pulsar.InitialPosition.Earliest)
    for text in plain:
        producer.send(text.encode(), properties={"of": "the old version"}, partition_key=f"key of {text}")
    acknowledge(holes, plain, {PLAIN_MESSAGES[number] for number in PLAIN_ACKNOWLEDGED})
    producer = life.client.create_producer(
        BATCHED, batching_enabled=True, batching_max_messages=BATCH, batching_max_publish_delay_ms=10_000
    )
    holes = life.client.subscribe(
        BATCHED,
        "holes",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    for start in range(0, len(batched), BATCH):
        for text in batched[start : start + BATCH]:
            producer.send_async(text.encode(), lambda *_: None)
        producer.flush()
    acknowledge(holes, batched, {BATCHED_MESSAGES[number] for number in BATCHED_ACKNOWLEDGED})


def acknowledge(consumer: pulsar.Consumer, texts: list[str], acknowledged: set[str]) -> None:
    """Receive all of ``texts`` and acknowledge the selected ones."""
    missing = set(texts)
    while missing:
        message = consumer.receive(30_000)
        text = message.data().decode()
        if text in missing and text in acknowledged:
            consumer.acknowledge(message)
        missing.discard(text)


def publish_once(life: Life, ids: list[int]) -> None:
    """Publish messages with sequence ids, each twice."""
    producer = life.client.create_producer(ONCE, producer_name=ONCE_PRODUCER, batching_enabled=False)
    for number in ids:
        for _ in range(2):
            producer.send(f"once {number}".encode(), sequence_id=number)


def feed(life: Life, name: str, texts: list[str], outs: list[str]) -> None:
    """Send input to a function and wait for its output."""
    consumer = life.client.subscribe(outputs(name), "writer", initial_position=pulsar.InitialPosition.Earliest)
    producer = life.client.create_producer(inputs(name))
    for text in texts:
        producer.send(text.encode())
    wanted = set(outs)
    while wanted:
        message = consumer.receive(60_000)
        wanted.discard(message.data().decode())
        consumer.acknowledge(message)


def create(life: Life, name: str, source: str, **config: Any) -> None:
    """Create a function through the REST interface."""
    full = {
        "tenant": "public", "namespace": "default", "name": name, "runtime": "PYTHON", "py": f"{name}.py",
        "className": f"{name}.process", "inputs": [inputs(name)], "output": outputs(name),
        "subscriptionPosition": "Earliest", **config,
    }  # fmt: skip
    files = {
        "functionConfig": (None, json.dumps(full), "application/json"),
        "data": (f"{name}.py", source.encode(), "application/octet-stream"),
    }
    life.call("POST", f"v3/functions/public/default/{name}", files=files)


def first_life(life: Life) -> None:
    """Write data that a checkpoint will move."""
    life.call("PUT", "v2/namespaces/public/kept")
    life.call("POST", "v2/namespaces/public/kept/retention", json=RETENTION)
    life.call("POST", "v2/namespaces/public/kept/deduplication", json=True)
    life.call("PUT", "v2/persistent/public/default/parts/partitions", json=3)
    for topic in (GONE, ENDED):
        life.client.create_producer(topic).send(b"before")
    publish(life, PLAIN_MESSAGES[:20], BATCHED_MESSAGES[: 2 * BATCH])
    publish_once(life, ONCE_IDS[:3])
    create(life, COUNT, COUNT_SOURCE)
    create(life, EXACT, EXACT_SOURCE, processingGuarantees="EFFECTIVELY_ONCE")
    with magnetar.Client(life.addresses["brokerServiceUrl"], admin_url=life.addresses["webServiceUrl"]) as client:
        config = {"user_config": {"rate": RATE}, "subscription_position": "Earliest"}
        client.functions.deploy(make_fare(), inputs=inputs(FARE), output=outputs(FARE), **config)
    feed(life, COUNT, COUNT_LINES[:1], [line.upper() for line in COUNT_LINES[:1]])
    feed(life, EXACT, EXACT_LINES[:7], [f"{line}!" for line in EXACT_LINES[:7]])
    feed(life, FARE, [str(RIDES[0])], [fare_of(RIDES[0])])
    with contextlib.closing(TableClient(life.addresses["stateStorageServiceUrl"])) as tables:
        store = PlanStore(tables, SPARK_TABLE, incarnation=SPARK_LIFE, owner="a-driver")
        store.load()
        store.begin(SPARK_PLAN)


def second_life(life: Life) -> None:
    """Write data that remains in the journal."""
    publish(life, PLAIN_MESSAGES[20:], BATCHED_MESSAGES[2 * BATCH :])
    publish_once(life, ONCE_IDS[3:])
    feed(life, COUNT, COUNT_LINES[1:], [line.upper() for line in COUNT_LINES[1:]])
    feed(life, EXACT, EXACT_LINES[7:], [f"{line}!" for line in EXACT_LINES[7:]])
    feed(life, FARE, [str(RIDES[1])], [fare_of(RIDES[1])])
    life.call("POST", f"v2/{ENDED.replace('://', '/')}/terminate")
    life.call("DELETE", f"v2/{GONE.replace('://', '/')}?force=true")
    time.sleep(2)  # acknowledgements without receipts are written within 50 ms


def write(archive: Path) -> None:
    """Run the server twice and pack the resulting data."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        life = Life(directory)
        first_life(life)
        life.close(life.process.terminate)
        life = Life(directory)
        second_life(life)
        life.close(life.process.kill)
        time.sleep(3)  # the children end with their parent
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for part in sorted((directory / "data").iterdir()):
                if part.name not in ("lock", "worker"):  # nothing there is the only copy of anything
                    tar.add(part, part.name)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
