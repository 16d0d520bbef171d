"""Throughput of one function instance, beside the same function as a loop on the official client.

The input lies in the topic before the function starts. The rate is the slope of the output topic's `msgInCounter`
between 10 % and 95 % of the messages, so neither start nor end counts. The outputs are compared with the expected
ones, all of them, ours in order.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.functions import Functions
from tests.support.servers import Server, descendants

from .figure import Figure
from .load import COMPARED, hold, payloads_of, publish_entries, read_outputs
from .machine import cpu_s
from .plan import Plan

SOURCE = "def process(text):\n    return text + '!'\n"
SIZE_BYTES = 100
TARGETS = {1000: 500_000, 50: 300_000, 1: 50_000}
EXPECTED_RATES = {1000: 500_000, 50: 300_000, 1: 50_000}  # only to choose how many messages a measurement needs
OFFICIAL_RATE = 25_000
LOOP_FACTOR = 18  # promised over the official loop at batches of 1000
POLL_S = 0.05
TIMEOUT_S = 120


def measure_functions(plan: Plan) -> Iterator[Figure]:
    """Function rates at three sizes of input batches."""
    for batch in (1000, 50, 1):
        with plan.server("standalone") as server:
            ours, cpu = _median_slope(plan, server, batch, int(EXPECTED_RATES[batch] * plan.seconds))
            theirs = _official_slope(server, batch, int(OFFICIAL_RATE * plan.seconds))
        yield Figure(
            name=f"function, input batches of {batch}",
            ours=ours,
            unit="messages/s",
            peer=theirs,
            peer_name="loop on the official client, our broker",
            target=TARGETS[batch],
            note=cpu,
        )
        if batch == 1000:
            yield Figure(
                name="function over the official loop, batches of 1000",
                ours=ours / theirs,
                unit="times",
                target=LOOP_FACTOR,
            )


def _median_slope(plan: Plan, server: Server, batch: int, count: int) -> tuple[float, str]:
    slopes = []
    note = ""
    for i in range(plan.repeats):
        slope, note = _our_slope(server, batch, count, i)
        slopes.append(slope)
    return sorted(slopes)[len(slopes) // 2], note


def _our_slope(server: Server, batch: int, count: int, repeat: int) -> tuple[float, str]:
    name = f"f{repeat}"
    inputs = payloads_of(SIZE_BYTES, count)
    hold(server.service_url, f"in{repeat}", "keep")
    hold(server.service_url, f"out{repeat}", COMPARED)
    publish_entries(server.service_url, f"in{repeat}", inputs, batch)
    config = {
        "className": f"{name}.process",
        "inputs": [f"in{repeat}"],
        "output": f"out{repeat}",
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
    }
    with Functions(server.web_url) as functions, Counter(server.web_url, f"out{repeat}") as counter:
        functions.create(name, SOURCE, config).raise_for_status()
        slope = counter.slope(count, server, name)
        functions.delete(name)
    compare(server, f"out{repeat}", inputs)
    return slope.rate, slope.note


def _official_slope(server: Server, batch: int, count: int) -> float:
    inputs = payloads_of(SIZE_BYTES, count)
    hold(server.service_url, "official-in", "keep")
    hold(server.service_url, "official-out", COMPARED)
    publish_entries(server.service_url, "official-in", inputs, batch)
    with (
        official_loop(server.service_url, "official-in", "official-out", batch),
        Counter(server.web_url, "official-out") as counter,
    ):
        rate = counter.slope(count, server, "").rate
    # Now and then the official client hands out two neighbours the other way round: a shared subscription may.
    compare(server, "official-out", inputs, in_order=False)
    return rate


@contextlib.contextmanager
def official_loop(service_url: str, source: str, sink: str, batch: int) -> Iterator[None]:
    """The same function as a process around the official client; see `official_loop.py`."""
    command = [sys.executable, "-m", "benchmarks.official_loop", service_url, source, sink, str(batch)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def compare(server: Server, topic: str, inputs: list[bytes], *, in_order: bool = True) -> None:
    """Compare every output with the expected one."""
    outputs = read_outputs(server.service_url, topic, len(inputs))
    if not in_order:
        outputs.sort()
    for i, (output, given) in enumerate(zip(outputs, inputs, strict=True)):
        if output != given + b"!":
            raise AssertionError(f"output {i} of {topic} is {output[:20]!r}…, expected {given[:20]!r}…!")


@dataclass(frozen=True)
class Slope:
    """Messages per second, and where the CPU time went meanwhile."""

    rate: float
    note: str


class Counter:
    """Watches `msgInCounter` of a topic."""

    def __init__(self, web_url: str, topic: str) -> None:
        self._http = httpx.Client(timeout=10)
        self._url = f"{web_url}/admin/v2/persistent/public/default/{topic}/stats"

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._http.close()

    def read(self) -> int:
        answer = self._http.get(self._url)
        return int(answer.json()["msgInCounter"]) if answer.status_code == 200 else 0

    def slope(self, count: int, server: Server, function: str) -> Slope:
        """Wait until `count` messages came out; return the slope between 10 % and 95 %."""
        samples: list[tuple[float, int]] = []
        cpu_before: dict[str, float] = {}
        cpu_after: dict[str, float] = {}
        deadline = time.monotonic() + TIMEOUT_S
        while not samples or samples[-1][1] < count:
            samples.append((time.perf_counter(), self.read()))
            if samples[-1][1] >= 0.1 * count and not cpu_before:
                cpu_before = _cpu(server, function)
            if samples[-1][1] < 0.95 * count:
                cpu_after = _cpu(server, function)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{samples[-1][1]} of {count} outputs after {TIMEOUT_S} s:\n{server.log_tail()}")
            time.sleep(POLL_S)
        inside = [s for s in samples if 0.1 * count <= s[1] <= 0.95 * count]
        if len(inside) < 2:
            raise AssertionError(f"too few samples between 10 % and 95 %: {samples[-5:]}; measure for longer")
        (t0, n0), (t1, n1) = inside[0], inside[-1]
        seconds = t1 - t0
        used = (
            f"{name} {(cpu_after[name] - cpu_before[name]) / seconds:.0%}" for name in cpu_before if name in cpu_after
        )
        return Slope((n1 - n0) / seconds, "CPU: " + ", ".join(used))


def _cpu(server: Server, function: str) -> dict[str, float]:
    found = {"broker": cpu_s(server.pid)}
    for process in descendants(server.pid):
        words = " ".join(process.cmdline())
        if function and words.startswith("magnetar instance") and f"/{function}:" in words:
            found["instance"] = cpu_s(process.pid)
    return found
