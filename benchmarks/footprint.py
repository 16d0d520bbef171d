"""Footprint of an idle standalone (start, memory, CPU), and of each additional function."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar

from tests.support.functions import Functions
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

from .figure import Figure
from .load import official
from .machine import tree, usage
from .plan import Plan

SOURCE = "def process(text):\n    return text + '!'\n"
SETTLE_S = 2.0  # time after a start until startup work is completed
IDLE_S = 8.0


def config(name: str) -> dict[str, object]:
    return {
        "className": f"{name}.process",
        "inputs": [f"{name}-in"],
        "output": f"{name}-out",
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
    }


def measure_start(plan: Plan) -> Iterator[Figure]:
    """Measure the time from the command to the first output of a function."""
    ready, output = zip(*(_start(plan.directory) for _ in range(plan.repeats)), strict=True)
    yield Figure(
        name="standalone: start to the first function output",
        ours=statistics.median(output),
        unit="s",
        target=3.0,
        more_is_better=False,
        note=f"ready line after {statistics.median(ready):.2f} s",
    )


def _start(directory: Path) -> tuple[float, float]:
    data = Path(tempfile.mkdtemp(prefix="start-", dir=directory))
    began = time.perf_counter()
    try:
        with running("standalone", data) as server:
            ready_s = time.perf_counter() - began
            with Functions(server.web_url) as functions, Probe(server, "first") as probe:
                functions.create("first", SOURCE, config("first")).raise_for_status()
                probe.ask()
            return ready_s, time.perf_counter() - began
    finally:
        shutil.rmtree(data, ignore_errors=True)


def measure_idle(plan: Plan) -> Iterator[Figure]:
    """Measure memory and CPU of an idle standalone, by process."""
    with plan.server("standalone") as server:
        time.sleep(SETTLE_S)
        processes = tree(server.pid)
        before = {p.pid: usage(p) for p in processes}
        time.sleep(IDLE_S)
        after = {p.pid: usage(p) for p in processes}
        yield Figure(
            name="standalone: idle memory of all processes (PSS)",
            ours=sum(u.pss_mib for u in after.values()),
            unit="MiB",
            target=150,
            more_is_better=False,
            note=", ".join(f"{u.name} {u.pss_mib:.0f}" for u in after.values()),
        )
        shares = {u.name: (u.cpu_s - before[pid].cpu_s) / IDLE_S * 100 for pid, u in after.items()}
        yield Figure(
            name="standalone: idle CPU of all processes",
            ours=sum(shares.values()),
            unit="% of a core",
            target=2,
            more_is_better=False,
            note=", ".join(f"{name} {share:.2f}" for name, share in shares.items()),
        )
        yield from _measure_instance(plan, server)


def _measure_instance(plan: Plan, server: Server) -> Iterator[Figure]:
    starts, added = [], []
    with Functions(server.web_url) as functions:
        for i in range(max(3, plan.repeats)):
            name = f"added{i}"
            memory_before = _pss(server)
            functions.create(name, SOURCE, config(name)).raise_for_status()
            with Probe(server, name) as probe:
                probe.ask()
                functions.post(name, "stop")
                wait_for(lambda name=name: not functions.status(name)["running"], "stopped function")  # type: ignore[misc]
                probe.send()
                began = time.perf_counter()
                functions.post(name, "start")
                probe.receive()
                starts.append((time.perf_counter() - began) * 1000)
            time.sleep(0.5)  # buffers of the first message are released
            added.append(_pss(server) - memory_before)
    yield Figure(
        name="process instance: start request to first output",
        ours=statistics.median(starts),
        unit="ms",
        target=150,
        more_is_better=False,
        note="with REST, metadata, assignment and fork",
    )
    yield Figure(
        name="process instance: added memory of all processes (PSS)",
        ours=statistics.median(added),
        unit="MiB",
        target=15,
        more_is_better=False,
    )


def _pss(server: Server) -> float:
    return sum(usage(p).pss_mib for p in tree(server.pid))


THREADS = 1000
THREADS_START_S = 60
CREATE_TIMEOUT_S = 180


def measure_threads(plan: Plan) -> Iterator[Figure]:
    """Measure a thousand idle thread functions on one worker: deployment and start time, memory per function."""
    with plan.server("standalone") as server, Functions(server.web_url) as functions:
        time.sleep(SETTLE_S)
        before = _pss(server)
        began = time.perf_counter()
        for i in range(THREADS):
            name = f"t{i}"
            functions.create(name, SOURCE, {**config(name), "runtimeEnv": "thread"}).raise_for_status()
        last = f"t{THREADS - 1}"
        wait_for(lambda: functions.status(last)["running"], "last function running", CREATE_TIMEOUT_S)
        took_s = time.perf_counter() - began
        time.sleep(SETTLE_S)
        added = _pss(server) - before
    yield Figure(
        name=f"{THREADS:,} idle thread functions: created and running",
        ours=took_s,
        unit="s",
        target=THREADS_START_S,
        more_is_better=False,
        note="one REST request after the other",
    )
    yield Figure(
        name="thread function: added memory of all processes (PSS), each",
        ours=added / THREADS,
        unit="MiB",
        target=1,
        more_is_better=False,
    )


class Probe:
    """Sends messages to a function and waits for its outputs."""

    def __init__(self, server: Server, name: str) -> None:
        self._client = official(server.service_url)
        self._consumer = self._client.subscribe(
            f"{name}-out", "probe", initial_position=pulsar.InitialPosition.Earliest
        )
        self._producer = self._client.create_producer(f"{name}-in")

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._client.close()

    def send(self) -> None:
        self._producer.send(b"x")

    def receive(self) -> None:
        message = self._consumer.receive(15_000)
        assert message.data() == b"x!"
        self._consumer.acknowledge(message)

    def ask(self) -> None:
        self.send()
        self.receive()
