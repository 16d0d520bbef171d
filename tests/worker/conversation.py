"""Send requests to two functions workers, ours and Apache Pulsar's own, and compare the responses.

Both receive the same requests about the same function, each in its own namespace. Pulsar's function is in Java, because
an embedded worker of Pulsar runs Java threads. Strings, flags and counts must be equal, times and latencies must have
the same type, our reasons may be longer than Pulsar's, and for error pages and empty errors only the status counts.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JAVA = """public class Exclaim implements java.util.function.Function<String, String> {
    public String apply(String input) { return input + "!"; }
}
"""
PYTHON = "def process(input):\n    return f'{input}!'\n"
VARYING = {"averageLatency", "lastInvocationTime", "timestampMs", "avgProcessLatency", "lastInvocation", "port"}
"""Fields whose types are compared instead of their values."""
_NAMES = ("instanceId", "name", "workerId")
NOTHING: dict[str, Any] = {"className": None, "jar": None, "py": None, "inputs": None, "output": None}


@dataclass(frozen=True)
class Side:
    """One of the two workers.

    Attributes:
        web_url: URL of the REST interface.
        namespace: namespace of the functions.
        worker_id: id of the worker.
        host: advertised host name.
        package: file name and content of the function's package.
        own: config fields that describe the package.
    """

    web_url: str
    namespace: str
    worker_id: str
    host: str
    package: tuple[str, bytes]
    own: dict[str, str]

    def neutral(self, text: str) -> Any:
        """Return a response without names specific to this side."""
        swaps = {
            self.worker_id: "<worker>",
            f'"workerHostname":"{self.host}"': '"workerHostname":"<host>"',
            self.namespace.rpartition("/")[2]: "<namespace>",
            f'"className":"{self.own["className"]}"': '"className":"<class>"',
            f'"runtime":"{"JAVA" if "jar" in self.own else "PYTHON"}"': '"runtime":"<runtime>"',
        }
        for mine, neutral in swaps.items():
            text = text.replace(mine, neutral)
        try:
            return json.loads(text)
        except ValueError:
            return text


@dataclass(frozen=True)
class Step:
    """A request to both workers.

    Attributes:
        label: unique name of the step.
        path: path of the request; `{base}` is the path of the functions.
        config: fields of the part functionConfig; None sends no parts. Fields with the value None are omitted.
        package: whether to send the package.
        parts: further or other parts: name, content type, content.
    """

    label: str
    method: str
    path: str
    config: dict[str, Any] | None = None
    package: bool = False
    parts: tuple[tuple[str, str, str], ...] = field(default=())

    def request(self, side: Side) -> tuple[str, list[tuple[str, tuple[str | None, bytes, str]]]]:
        """Return path and parts for a side; `<topic>` in the config becomes a topic in the side's namespace."""
        files: list[tuple[str, tuple[str | None, bytes, str]]] = []
        if self.config is not None:
            merged = {**side.own, "inputs": ["<in>"], "output": "<out>", **self.config}
            text = json.dumps({key: value for key, value in merged.items() if value is not None})
            for name in ("in", "out", "other", "log"):
                text = text.replace(f"<{name}>", f"persistent://{side.namespace}/{name}")
            files.append(("functionConfig", (None, text.encode(), "application/json")))
        for name, content_type, content in self.parts:
            files.append((name, (None, content.replace("<ns>", side.namespace).encode(), content_type)))
        if self.package:
            files.append(("data", (*side.package, "application/octet-stream")))
        return self.path.format(base=f"/admin/v3/functions/{side.namespace}"), files


def java_package(directory: Path) -> bytes:
    """Compile the function in Java, and return its jar."""
    source = directory / "Exclaim.java"
    source.write_text(JAVA)
    subprocess.run(["javac", "--release", "17", str(source)], check=True, timeout=60, capture_output=True)
    with zipfile.ZipFile(directory / "exclaim.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        jar.write(directory / "Exclaim.class", "Exclaim.class")
    return (directory / "exclaim.jar").read_bytes()


def difference(theirs: Any, ours: Any, name: str = "answer") -> str | None:
    """Return the first difference between two neutral responses, or None; lists are compared in any order."""
    if name in VARYING:
        kinds = [type(one) in (int, float) for one in (theirs, ours)]
        return None if kinds[0] == kinds[1] and (kinds[0] or theirs == ours) else f"{name}: {theirs!r} != {ours!r}"
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if set(theirs) != set(ours):
            return f"{name}: only theirs {sorted(set(theirs) - set(ours))}, only ours {sorted(set(ours) - set(theirs))}"
        found = (difference(theirs[key], ours[key], key) for key in theirs)
        return next((one for one in found if one), None)
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        found = (difference(a, b, f"{name}[]") for a, b in zip(_sorted(theirs), _sorted(ours), strict=True))
        return next((one for one in found if one), None)
    if name == "reason" and str(ours).startswith(str(theirs)):
        return None
    if isinstance(theirs, bool) == isinstance(ours, bool) and theirs == ours:
        return None
    return f"{name}: {theirs!r} != {ours!r}"


def _sorted(items: list[Any]) -> list[Any]:
    """Sort plain values by value, and objects by their identifying field."""
    return sorted(items, key=lambda one: str([one.get(key) for key in _NAMES]) if isinstance(one, dict) else str(one))


def _missing() -> Iterator[Step]:
    one = "{base}/nope"
    for method, rest in (
        ("GET", ""), ("GET", "/status"), ("GET", "/0/status"), ("GET", "/stats"), ("GET", "/0/stats"), ("DELETE", ""),
        ("POST", "/start"), ("POST", "/stop"), ("POST", "/restart"), ("POST", "/0/start"), ("POST", "/0/stop"),
        ("POST", "/0/restart"), ("GET", "/download"),
    ):  # fmt: skip
        yield Step(f"missing: {method} {rest or 'itself'}", method, one + rest)
    yield Step("missing: trigger", "POST", f"{one}/trigger", parts=(("data", "text/plain", "x"),))
    yield Step("missing: update", "PUT", one, {}, package=True)


def _refused() -> Iterator[Step]:
    one = "{base}/bad"
    yield Step("create: no config", "POST", one, package=True)
    yield Step("create: no package", "POST", one, {})
    yield Step("create: config of another type", "POST", one, parts=(("functionConfig", "text/plain", "{}"),))
    yield Step("create: config not JSON", "POST", one, parts=(("functionConfig", "application/json", "{"),))
    yield Step("create: unknown tenant", "POST", "/admin/v3/functions/no-tenant/x/bad", {}, package=True)
    yield Step("create: unknown namespace", "POST", "/admin/v3/functions/public/no-namespace/bad", {}, package=True)
    configs: dict[str, dict[str, Any]] = {
        "no class": {"className": None},
        "no inputs": {"inputs": None},
        "empty inputs": {"inputs": []},
        "no runtime": {"jar": None, "py": None},
        "parallelism 0": {"parallelism": 0},
        "parallelism -1": {"parallelism": -1},
        "input that is no topic": {"inputs": ["a/b"]},
        "output that is no topic": {"output": "a/b"},
        "output that is an input": {"output": "<in>"},
        "log topic that is no topic": {"logTopic": "a/b"},
        "dead letters without retries": {"deadLetterTopic": "<other>"},
        "both orderings": {"retainOrdering": True, "retainKeyOrdering": True},
        "no autoAck at most once": {"autoAck": False, "processingGuarantees": "ATMOST_ONCE"},
        "negative timeout": {"timeoutMs": -1},
        "no cpu": {"resources": {"cpu": 0.0, "ram": 1, "disk": 1}},
        "negative ram": {"resources": {"cpu": 1.0, "ram": -1, "disk": 1}},
    }
    for label, config in configs.items():
        yield Step(f"create: {label}", "POST", one, config, package=True)


def _life() -> Iterator[Step]:
    one = "{base}/ex"
    yield Step("create", "POST", one, {}, package=True)
    yield Step("create again", "POST", one, {}, package=True)
    yield Step("list", "GET", "{base}")
    yield Step("get", "GET", one)
    yield Step("status", "GET", f"{one}/status")
    yield Step("status of instance 0", "GET", f"{one}/0/status")
    yield Step("status of instance 1", "GET", f"{one}/1/status")
    yield Step("status of instance -1", "GET", f"{one}/-1/status")
    yield Step("stats before a message", "GET", f"{one}/stats")
    yield Step("trigger", "POST", f"{one}/trigger", parts=(("data", "text/plain", "hello"),))
    topic = ("topic", "text/plain", "persistent://<ns>/in")
    yield Step("trigger by topic", "POST", f"{one}/trigger", parts=(("data", "text/plain", "hello"), topic))
    yield Step("trigger without data", "POST", f"{one}/trigger", parts=(topic,))
    elsewhere = (("data", "text/plain", "x"), ("topic", "text/plain", "persistent://<ns>/nope"))
    yield Step("trigger of another topic", "POST", f"{one}/trigger", parts=elsewhere)
    yield Step("status after messages", "GET", f"{one}/status")
    yield Step("stats after messages", "GET", f"{one}/stats")
    yield Step("stats of instance 0", "GET", f"{one}/0/stats")
    yield Step("stats of instance 1", "GET", f"{one}/1/stats")
    yield Step("start of what runs", "POST", f"{one}/start")
    yield Step("stop", "POST", f"{one}/stop")
    yield Step("stop again", "POST", f"{one}/stop")
    yield Step("status when stopped", "GET", f"{one}/status")
    yield Step("stats when stopped", "GET", f"{one}/stats")
    yield Step("start", "POST", f"{one}/start")
    yield Step("status when started", "GET", f"{one}/status")
    yield Step("restart", "POST", f"{one}/restart")
    yield Step("restart of instance 0", "POST", f"{one}/0/restart")
    yield Step("stop of instance 0", "POST", f"{one}/0/stop")
    yield Step("start of instance 0", "POST", f"{one}/0/start")
    yield Step("stop of instance 7", "POST", f"{one}/7/stop")
    yield Step("status after restarts", "GET", f"{one}/status")


def _updates() -> Iterator[Step]:
    one = "{base}/ex"
    yield Step("update: nothing", "PUT", one, NOTHING)
    yield Step("update: what it is", "PUT", one, {})
    yield Step("update: no parts", "PUT", one)
    configs: dict[str, dict[str, Any]] = {
        "parallelism 0": {"parallelism": 0},
        "inputs": {"inputs": ["<other>"]},
        "guarantees": {"processingGuarantees": "ATMOST_ONCE"},
        "ordering": {"retainOrdering": True},
        "autoAck": {"autoAck": False},
        "subscription name": {"subName": "other"},
        "parallelism 2": {"parallelism": 2},
        "output": {"output": "<other>"},
        "user config": {"userConfig": {"text": "x", "flag": True}},
    }
    for label, config in configs.items():
        yield Step(f"update: {label}", "PUT", one, config)
    yield Step("get after updates", "GET", one)
    yield Step("status of two instances", "GET", f"{one}/status")


def _worker(when: str) -> Iterator[Step]:
    worker, stats = "/admin/v2/worker", "/admin/v2/worker-stats"
    for method, path in (
        ("GET", f"{worker}/cluster"), ("GET", f"{worker}/cluster/leader"), ("GET", f"{worker}/cluster/leader/ready"),
        ("GET", f"{worker}/assignments"), ("GET", f"{worker}/connectors"), ("PUT", f"{worker}/rebalance"),
        ("PUT", f"{worker}/drain"), ("GET", f"{worker}/drain"), ("PUT", f"{worker}/leader/drain"),
        ("PUT", f"{worker}/leader/drain?workerId=nobody"), ("GET", f"{worker}/leader/drain?workerId=nobody"),
        ("POST", f"{worker}/rebalance"), ("GET", f"{worker}/nope"), ("GET", f"{stats}/metrics"),
        ("GET", f"{stats}/functionsmetrics"), ("GET", "/admin/v3/worker/cluster"),
    ):  # fmt: skip
        yield Step(f"{when}: {method} {path}", method, path)


def _end() -> Iterator[Step]:
    one = "{base}/ex"
    yield Step("delete", "DELETE", one)
    yield Step("delete again", "DELETE", one)
    yield Step("get after delete", "GET", one)
    yield Step("list after delete", "GET", "{base}")
    yield Step("builtins", "GET", "/admin/v3/functions/builtins")
    yield Step("connectors", "GET", "/admin/v3/functions/connectors")
    yield Step("unknown path", "GET", "{base}/ex/0/nope")


STEPS = (
    Step("list of nothing", "GET", "{base}"),
    Step("list of an unknown namespace", "GET", "/admin/v3/functions/public/no-namespace"),
    *_worker("empty"),
    *_missing(),
    *_refused(),
    *_life(),
    *_updates(),
    *_worker("busy"),
    *_end(),
)

FULL: dict[str, Any] = {
    "inputs": None,
    "inputSpecs": {"<in>": {"receiverQueueSize": 10}, "<other>": {"serdeClassName": "PickleSerDe"}},
    "outputSerdeClassName": "PickleSerDe",
    "subName": "own",
    "retainOrdering": True,
    "processingGuarantees": "ATMOST_ONCE",
    "cleanupSubscription": False,
    "subscriptionPosition": "Earliest",
    "logTopic": "<log>",
    "userConfig": {"whole": 5, "half": 0.5, "nested": {"list": [1, "x", None]}},
    "parallelism": 2,
}
PYTHON_STEPS = (
    Step("create with many fields", "POST", "{base}/full", FULL, package=True),
    Step("get with many fields", "GET", "{base}/full"),
    Step("update of another package", "PUT", "{base}/full", {**NOTHING, "userConfig": {}}, package=True),
    Step("get after it", "GET", "{base}/full"),
    Step("delete with many fields", "DELETE", "{base}/full"),
    Step("create without forwarding", "POST", "{base}/quiet", {"forwardSourceMessageProperty": False}, package=True),
    Step("get without forwarding", "GET", "{base}/quiet"),
    Step("update that does not name forwarding", "PUT", "{base}/quiet", {**NOTHING, "parallelism": 2}),
    Step("get after it did not name forwarding", "GET", "{base}/quiet"),
    Step("delete without forwarding", "DELETE", "{base}/quiet"),
    Step("create in Python", "POST", "{base}/py", {}, package=True),
    Step("get in Python", "GET", "{base}/py"),
    Step("list in Python", "GET", "{base}"),
    Step("create again in Python", "POST", "{base}/py", {}, package=True),
    Step("update of parallelism in Python", "PUT", "{base}/py", {"parallelism": 3}),
    Step("get after the update in Python", "GET", "{base}/py"),
    Step("instance out of range in Python", "GET", "{base}/py/3/status"),
    Step("download in Python", "GET", "{base}/py/download"),
    Step("stop in Python", "POST", "{base}/py/stop"),
    Step("stop again in Python", "POST", "{base}/py/stop"),
    Step("start in Python", "POST", "{base}/py/start"),
    Step("delete in Python", "DELETE", "{base}/py"),
    Step("get after delete in Python", "GET", "{base}/py"),
)
"""Requests about a function that both sides store; an embedded worker of Pulsar cannot run it."""
