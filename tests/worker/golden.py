"""Replay recorded conversations against a Python worker, and compare the responses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .conftest import Cluster

DIRECTORY = Path(__file__).parent.parent / "golden" / "rest-functions"

SOURCE = b"""
class ExclamationFunction:
    def process(self, input, context):
        return input + "!"

class LoggingFunction:
    def process(self, input, context):
        print(input)

class VoidFunction:
    def process(self, input, context):
        return None
"""
"""Placeholder for the archive of Java examples."""


@dataclass(frozen=True)
class Step:
    """One recorded line."""

    number: int
    name: str
    method: str
    path: str
    request: Any
    content_type: str | None
    status: int
    response_content_type: str | None
    response: Any


def read_steps(name: str) -> Iterator[Step]:
    """Yield the requests of a recording, without CLIENT and WAIT lines."""
    for number, line in enumerate((DIRECTORY / name).read_text().splitlines()):
        found = json.loads(line)
        if found["method"] in ("CLIENT", "WAIT"):
            continue
        yield Step(
            number, found["step"], found["method"], found["path"], found["request"], found["content_type"],
            found["status"], found["response_content_type"], found["response"],
        )  # fmt: skip


def parts(request: Any) -> list[tuple[str, tuple[str | None, bytes, str | None]]]:
    """Return the parts of a recorded multipart request, with Python code instead of the Java archive."""
    found: list[tuple[str, tuple[str | None, bytes, str | None]]] = []
    for part in request["parts"]:
        content, file_name = part["content"], part.get("filename")
        if isinstance(content, dict):
            content = as_python(content) if part["name"].endswith("Config") else content
        if content == "<the Java examples jar>":
            content, file_name = SOURCE.decode(), "examples.py"
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        found.append((part["name"], (file_name, data, part.get("content_type"))))
    return found


def as_python(config: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded config with `py` instead of `jar`, and a class of `examples.py`."""
    python = {name: value for name, value in config.items() if name != "jar"}
    if "jar" in config:
        python["py"] = "examples.py"
    if config.get("runtime") == "JAVA":
        python["runtime"] = "PYTHON"
    class_name = config.get("className") or ""
    if class_name.startswith("org.apache.pulsar.functions.api.examples."):
        python["className"] = "examples." + class_name.rpartition(".")[2]
    return python


async def ask(cluster: Cluster, step: Step) -> httpx.Response:
    """Send a recorded request to the worker or the broker."""
    base = cluster.service.worker_url if re.match(r"/admin/(v3|v2/worker)", step.path) else cluster.broker.web_url
    options: dict[str, Any] = {}
    if isinstance(step.request, dict) and "parts" in step.request:
        options["files"] = parts(step.request)
    elif isinstance(step.request, str):
        options["content"] = step.request
    elif step.request is not None:
        options["json"] = step.request
    if step.content_type and "files" not in options:
        options["headers"] = {"content-type": step.content_type}
    return await cluster.http.request(step.method, base + step.path, **options)


async def remove_what_is_left(cluster: Cluster) -> None:
    """Remove objects that another recording left on the broker, because both use the same tenant."""
    admin = f"{cluster.broker.web_url}/admin/v2"
    for topic in (await cluster.http.get(f"{admin}/persistent/golden/fn")).json():
        if isinstance(topic, str):  # else it is the reason why there is no such namespace
            await cluster.http.delete(f"{admin}/{topic.replace('://', '/')}", params={"force": "true"})
    for path in ("namespaces/golden/fn", "tenants/golden"):
        answer = await cluster.http.delete(f"{admin}/{path}")
        assert answer.status_code in (204, 404), answer.text


def difference(step: Step, answer: httpx.Response, different: Mapping[int, tuple[int, Any]]) -> str | None:
    """Return how a response differs from the recorded or the expected one, by the step's number."""
    status, theirs = _expected(step, different)
    if answer.status_code != status:
        return f"status {answer.status_code} instead of {status}: {answer.text[:200]}"
    if isinstance(theirs, str) and theirs.startswith("<html>"):
        return None
    try:
        ours = answer.json() if answer.content else None
    except ValueError:
        ours = answer.text
    return differs(theirs, ours)


def _expected(step: Step, different: Mapping[int, tuple[int, Any]]) -> tuple[int, Any]:
    if step.number in different and step.path.startswith("/admin/v3/"):
        return different[step.number]
    text = json.dumps(step.response)
    text = text.replace("org.apache.pulsar.functions.api.examples.", "examples.").replace('"JAVA"', '"PYTHON"')
    return step.status, json.loads(text)


def differs(theirs: Any, ours: Any, path: str = "") -> str | None:
    """Return the first difference between a recorded response and ours, or None.

    Our reasons may be longer, and lists of names may have another order.
    """
    if theirs == "<varies>" and isinstance(ours, str):
        return None
    if theirs == "<number>" and isinstance(ours, int | float):
        return None
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if set(theirs) != set(ours) and "<varies>" not in theirs:
            return f"{path}: keys {sorted(set(theirs) ^ set(ours))}"
        pairs = zip(theirs.values(), ours.values(), strict=True) if "<varies>" in theirs else (
            (theirs[key], ours[key]) for key in theirs
        )  # fmt: skip
        return next((found for a, b in pairs if (found := differs(a, b, path + "/"))), None)
    if isinstance(theirs, list) and isinstance(ours, list):
        if all(isinstance(item, str) for item in theirs):
            return None if set(theirs) == set(ours) else f"{path}: {theirs} != {ours}"
        if len(theirs) != len(ours):
            return f"{path}: {len(theirs)} != {len(ours)} items"
        return next((found for a, b in zip(theirs, ours, strict=True) if (found := differs(a, b, path + "[]"))), None)
    if isinstance(theirs, str) and isinstance(ours, str) and path == "/" and ours.startswith(theirs):
        return None
    return (
        None
        if theirs == ours and isinstance(theirs, bool) == isinstance(ours, bool)
        else f"{path}: {theirs!r} != {ours!r}"
    )
