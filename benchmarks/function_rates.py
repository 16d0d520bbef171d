"""Throughput of one function instance, compared with the same function as a loop on the official client.

The input is in the topic before the function starts. The rate is the slope of the output topic's `msgInCounter` between
10 % and 95 % of the messages, which excludes start and end. All outputs are verified, ours also for order.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.functions import Functions
from tests.support.servers import Server, descendants

from .figure import Figure
from .load import COMPARED, hold, read_outputs
from .machine import cpu_s
from .plan import Plan
from .real_input import APPLICATION, BATCHES, OWN, PLAIN, Input, inputs

SOURCE = "def process(text):\n    return text + '!'\n"
TARGETS = {1000: 500_000, 50: 300_000, 1: 50_000}
"""Targets for our own encoder's input."""
EXPECTED_RATES = {
    PLAIN: {1000: 200_000, 50: 150_000, 1: 45_000},
    APPLICATION: {1000: 150_000, 50: 100_000, 1: 40_000},
    OWN: {1000: 500_000, 50: 300_000, 1: 50_000},
}
"""Expected rates, only used to determine the number of messages."""
OFFICIAL_RATE = 25_000
LOOP_FACTOR = 18  # target relative to the official loop, for batches of 1000 of our own encoder's input
RISE, END = 0.1, 0.95
"""Shares of the messages between which a rate is measured."""
POLL_S = 0.05
TIMEOUT_S = 120


def measure_functions(plan: Plan) -> Iterator[Figure]:
    """Measure function rates for each input, with three batch sizes."""
    for batch in BATCHES:
        for given in inputs(plan, batch):
            with plan.server("standalone") as server:
                count = count_for(given, plan.seconds)
                slopes = [our_slope(server, given, count, repeat) for repeat in range(plan.repeats)]
                theirs = _official_slope(server, given, int(OFFICIAL_RATE * plan.seconds) // batch * batch)
            ours = statistics.median(slope.rate for slope in slopes)
            is_own = given.name == OWN
            yield Figure(
                name=f"function, {given.name}, input batches of {batch}",
                ours=ours,
                unit="messages/s",
                peer=theirs,
                peer_name="loop on the official client, our broker",
                target=TARGETS[batch] if is_own else None,
                note=slopes[-1].note,
                table=given.table,
            )
            if is_own and batch == 1000:
                yield Figure(
                    name=f"function over the official loop, {given.name}, batches of {batch}",
                    ours=ours / theirs,
                    unit="times",
                    target=LOOP_FACTOR,
                    table=given.table,
                )


def count_for(given: Input, seconds: float) -> int:
    """Return the approximate number of messages that a function processes in some seconds, in whole batches."""
    return max(1, int(EXPECTED_RATES[given.name][given.batch] * seconds) // given.batch) * given.batch


def our_slope(server: Server, given: Input, count: int, number: int, rise: float = RISE) -> Slope:
    """Return the rate of a separate function on a separate topic; `number` makes its name unique on this server."""
    name, source, output = f"f{number}", f"in{number}", f"out{number}"
    hold(server.service_url, source, "keep")
    hold(server.service_url, output, COMPARED)
    given.fill(server.service_url, source, count)
    config = {
        "className": f"{name}.process",
        "inputs": [source],
        "output": output,
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
    }
    with Functions(server.web_url) as functions, Counter(server.web_url, output) as counter:
        functions.create(name, SOURCE, config).raise_for_status()
        slope = counter.slope(count, server, name, rise)
        functions.delete(name)
    compare(server, output, given.payloads(count))
    return slope


def _official_slope(server: Server, given: Input, count: int) -> float:
    source, output = "official-in", "official-out"
    hold(server.service_url, source, "keep")
    hold(server.service_url, output, COMPARED)
    given.fill(server.service_url, source, count)
    with (
        official_loop(server.service_url, source, output, given.batch),
        Counter(server.web_url, output) as counter,
    ):
        rate = counter.slope(count, server, "").rate
    # The official client sometimes swaps two adjacent messages, as a shared subscription may.
    compare(server, output, given.payloads(count), in_order=False)
    return rate


@contextlib.contextmanager
def official_loop(service_url: str, source: str, sink: str, batch: int) -> Iterator[None]:
    """Run the same function as a loop on the official client in a separate process (see `official_loop.py`)."""
    command = [sys.executable, "-m", "benchmarks.official_loop", service_url, source, sink, str(batch)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def compare(server: Server, topic: str, inputs: Sequence[bytes], *, in_order: bool = True) -> None:
    """Compare every output with the expected one."""
    compare_outputs(server.service_url, topic, inputs, in_order=in_order)


def compare_outputs(service_url: str, topic: str, inputs: Sequence[bytes], *, in_order: bool = True) -> None:
    """Compare every output of a function on any broker with the expected one."""
    outputs = read_outputs(service_url, topic, len(inputs))
    expected = [given + b"!" for given in inputs]
    if not in_order:
        outputs.sort()
        expected.sort()
    for i, (output, right) in enumerate(zip(outputs, expected, strict=True)):
        if output != right:
            raise AssertionError(f"wrong output {i} of {topic}, {output[:120]!r}: expected {right[:120]!r}")


@dataclass(frozen=True)
class Slope:
    """Messages per second, and the CPU time used meanwhile.

    Attributes:
        rate: messages per second.
        note: CPU share used by each process.
        cpu_us: CPU time in microseconds per message.
    """

    rate: float
    note: str
    cpu_us: Mapping[str, float]


Sample = tuple[float, int]
"""Time, in seconds of `time.perf_counter`, and number of messages."""


class Counter:
    """Watches `msgInCounter` of a topic."""

    def __init__(self, web_url: str, topic: str, poll_s: float = POLL_S, timeout_s: float = TIMEOUT_S) -> None:
        self._poll_s, self._timeout_s = poll_s, timeout_s
        self._http = httpx.Client(timeout=10)
        self._url = f"{web_url}/admin/v2/persistent/public/default/{topic}/stats"

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._http.close()

    def read(self) -> int:
        answer = self._http.get(self._url)
        return int(answer.json()["msgInCounter"]) if answer.status_code == 200 else 0

    def slope(self, count: int, server: Server, function: str, rise: float = RISE, loop_pid: int = 0) -> Slope:
        """Wait until `count` messages were published; return the rate between the shares `rise` and 95 %.

        Args:
            count: total number of messages.
            server: server of the topic's broker.
            function: function that publishes them; empty if none does.
            rise: share of the messages after which measuring starts.
            loop_pid: process of the loop that publishes them; 0 for none, or if its CPU time is not needed.
        """
        cpu_before: dict[str, float] = {}
        cpu_after: dict[str, float] = {}

        def look(seen: int) -> None:
            nonlocal cpu_before, cpu_after
            if seen >= rise * count and not cpu_before:
                cpu_before = _cpu(server, function, loop_pid)
            if seen < END * count:
                cpu_after = _cpu(server, function, loop_pid)

        try:
            samples = self.samples(count, look)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{server.log_tail()}") from error
        (t0, n0), (t1, n1) = ends_of(samples, count, rise)
        seconds = t1 - t0
        used = {name: cpu_after[name] - cpu_before[name] for name in cpu_before if name in cpu_after}
        note = "CPU: " + ", ".join(f"{name} {used_s / seconds:.0%}" for name, used_s in used.items())
        return Slope((n1 - n0) / seconds, note, {name: used_s / (n1 - n0) * 1e6 for name, used_s in used.items()})

    def samples(self, count: int, look: Callable[[int], None] = lambda seen: None) -> list[Sample]:
        """Wait until `count` messages were published, calling `look` with their number; return samples of the number.

        Raises:
            TimeoutError: the messages were not published in time.
        """
        samples: list[Sample] = []
        deadline = time.monotonic() + self._timeout_s
        while not samples or samples[-1][1] < count:
            samples.append((time.perf_counter(), self.read()))
            look(samples[-1][1])
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {samples[-1][1]} of {count} outputs after {self._timeout_s:g} s")
            time.sleep(self._poll_s)
        return samples


def ends_of(samples: Sequence[Sample], count: int, rise: float) -> tuple[Sample, Sample]:
    """Return the first and the last sample between the shares `rise` and `END` of `count` messages."""
    inside = [sample for sample in samples if rise * count <= sample[1] <= END * count]
    if not inside or inside[0][1] == inside[-1][1]:
        raise AssertionError(
            f"too few samples between {rise:.0%} and {END:.0%}: {samples[-5:]}; increase the measuring time"
        )
    return inside[0], inside[-1]


def _cpu(server: Server, function: str, loop_pid: int) -> dict[str, float]:
    found = {"broker": cpu_s(server.pid)}
    if loop_pid:
        found["loop"] = cpu_s(loop_pid)
    for process in descendants(server.pid):
        words = " ".join(process.cmdline())
        if function and words.startswith("magnetar instance") and f"/{function}:" in words:
            found["instance"] = cpu_s(process.pid)
    return found
