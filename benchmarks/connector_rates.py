"""Sources and sinks: lines of a file through a function into Parquet, and the memory of an idle connector.

The rate counts records that the sink has acknowledged, and so synced, between 10 % and 95 % of all. The contents of the
Parquet files are compared with all lines, in order.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.functions import Functions
from tests.support.servers import Server
from tests.support.waiting import wait_for

from .figure import Figure
from .footprint import SETTLE_S
from .machine import tree, usage
from .plan import Plan

PASS_ON = "def process(text):\n    return text\n"
EXPECTED_RATE = 60_000  # only used to determine the number of lines
POLL_S = 0.05
TIMEOUT_S = 120
IDLE_CONNECTORS = 3


def measure_connectors(plan: Plan) -> Iterator[Figure]:
    """Measure file source → function → Parquet sink, and idle connectors."""
    count = int(EXPECTED_RATE * plan.seconds)
    rates = []
    for _ in range(plan.repeats):
        with plan.server("standalone") as server, Connectors(server.web_url) as connectors:
            rates.append(_rate(server, connectors, count))
    lines_per_s = statistics.median(rate for rate, _ in rates)
    yield Figure(name="file source → function → Parquet sink", ours=lines_per_s, unit="lines/s")
    yield Figure(
        name="file source → function → Parquet sink, bytes of lines",
        ours=lines_per_s * statistics.median(size for _, size in rates) / 1e6,
        unit="MB/s",
    )
    with plan.server("standalone") as server, Connectors(server.web_url) as connectors:
        time.sleep(SETTLE_S)
        yield _idle(server, connectors)


def _lines(count: int) -> list[bytes]:
    return [
        json.dumps({"id": number, "name": f"sensor {number % 97}", "value": number / 8, "note": "x" * 40}).encode()
        for number in range(count)
    ]


def _rate(server: Server, connectors: Connectors, count: int) -> tuple[float, float]:
    """Return lines per second and bytes per line."""
    from pyarrow import parquet

    lines = _lines(count)
    files, out = server.directory / "files", server.directory / "out"
    files.mkdir()
    (files / ".lines").write_bytes(b"\n".join(lines))
    (files / ".lines").rename(files / "lines")
    config = {
        "className": "pass_on.process",
        "inputs": ["lines"],
        "output": "passed",
        "subscriptionPosition": "Earliest",
    }
    with Functions(server.web_url) as functions:
        functions.create("pass_on", PASS_ON, {**config, "runtimeEnv": "process"}).raise_for_status()
        sink = {"path": str(out), "format": "parquet", "rollSeconds": 1}
        connectors.create(
            "sink", "keep", {"inputs": ["passed"], "sourceSubscriptionPosition": "Earliest", "configs": sink}
        )
        wait_for(lambda: functions.status("pass_on")["running"], "running function", TIMEOUT_S)
        source = {"path": str(files), "keepFile": True}
        connectors.create("source", "feed", {"topicName": "lines", "configs": source})
        rate = connectors.slope("passed", "public/default/keep", count)

    def numbers() -> list[int]:
        return [n for path in sorted(out.glob("[!.]*.parquet")) for n in parquet.read_table(path)["id"].to_pylist()]

    wait_for(lambda: len(numbers()) >= count, "all rows", TIMEOUT_S)
    if numbers() != list(range(count)):
        raise AssertionError(f"the Parquet files do not contain the {count} lines")
    return rate, sum(map(len, lines)) / count + 1


def _idle(server: Server, connectors: Connectors) -> Figure:
    added = []
    for number in range(IDLE_CONNECTORS):
        directory = server.directory / f"idle{number}"
        directory.mkdir()
        before = _pss(server)
        connectors.create("source", f"idle{number}", {"topicName": "idle", "configs": {"path": str(directory)}})
        connectors.wait_until_running("source", f"idle{number}")
        time.sleep(SETTLE_S)
        added.append(_pss(server) - before)
    return Figure(
        name="idle connector, process instance: added memory of all processes (PSS)",
        ours=statistics.median(added),
        unit="MiB",
        target=15,
        more_is_better=False,
        note="a file source",
    )


def _pss(server: Server) -> float:
    return sum(usage(process).pss_mib for process in tree(server.pid))


class Connectors(contextlib.AbstractContextManager["Connectors"]):
    """REST client for the sources and sinks of public/default."""

    def __init__(self, web_url: str) -> None:
        self._http = httpx.Client(base_url=web_url, timeout=60)

    def __exit__(self, *_exc: object) -> None:
        self._http.close()

    def create(self, kind: str, name: str, config: dict[str, Any]) -> None:
        """Create a built-in file source or sink, as a process."""
        full = {
            "tenant": "public", "namespace": "default", "name": name, "archive": "builtin://file",
            "customRuntimeOptions": '{"runtimeEnv": "process"}', **config,
        }  # fmt: skip
        part = {f"{kind}Config": (None, json.dumps(full), "application/json")}
        answer = self._http.post(f"/admin/v3/{kind}s/public/default/{name}", files=part)
        if answer.is_error:
            raise AssertionError(f"{kind} {name}: {answer.status_code} {answer.text}")

    def wait_until_running(self, kind: str, name: str) -> None:
        """Wait until all instances of a connector are running."""

        def runs() -> bool:
            status = self._http.get(f"/admin/v3/{kind}s/public/default/{name}/status").raise_for_status().json()
            return bool(status["numRunning"] == status["numInstances"] > 0)

        wait_for(runs, f"running {kind} {name}", TIMEOUT_S)

    def slope(self, topic: str, subscription: str, count: int) -> float:
        """Wait until a subscription has acknowledged `count` messages; return the rate between 10 % and 95 %."""
        samples: list[tuple[float, int]] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while not samples or samples[-1][1] < count:
            samples.append((time.perf_counter(), self._acknowledged(topic, subscription)))
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"only {samples[-1][1]} of {count} records after {TIMEOUT_S} s")
            time.sleep(POLL_S)
        inside = [one for one in samples if 0.1 * count <= one[1] <= 0.95 * count]
        if len(inside) < 2:
            raise AssertionError(f"too few samples between 10 % and 95 %: {samples[-5:]}; increase the measuring time")
        (began_s, first), (ended_s, last) = inside[0], inside[-1]
        return (last - first) / (ended_s - began_s)

    def _acknowledged(self, topic: str, subscription: str) -> int:
        answer = self._http.get(f"/admin/v2/persistent/public/default/{topic}/stats")
        if answer.status_code != 200:
            return 0
        found = answer.json()["subscriptions"].get(subscription)
        return int(found["msgOutCounter"] - found["unackedMessages"]) if found else 0
