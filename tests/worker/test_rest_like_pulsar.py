"""Our functions REST interface beside that of a living worker of Apache Pulsar, answer by answer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import ApachePulsar, own_name

from .conftest import worker_config
from .conversation import PYTHON, PYTHON_STEPS, STEPS, Side, Step, difference, java_package

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

SETTLE_S = 20.0
NOT_READY = "Function in trigger function is not ready"
"""Of a function that Pulsar shows as running, and that has not subscribed yet: nothing was done."""

_EMBEDDED = "an embedded worker of Pulsar answers the status of a drain with an error of its own"
_JAVA = "theirs tells of the Java virtual machine, ours of its process"
_CONNECTORS = "ours comes with connectors; Pulsar has those of which an archive is installed"
DEVIATIONS: dict[str, str] = {
    "create: no class": "Pulsar says it differently to Java and to Python; ours has the words for Python",
    "get after it did not name forwarding": "Pulsar turns forwardSourceMessageProperty on with every update that does"
    " not name it; ours leaves it",
    "update: what it is": "for Java the path of the archive counts as a change each time",
    **{f"{when}: GET /admin/v2/worker/drain": _EMBEDDED for when in ("empty", "busy")},
    **{f"{when}: GET /admin/v2/worker/leader/drain?workerId=nobody": _EMBEDDED for when in ("empty", "busy")},
    **{f"{when}: GET /admin/v2/worker-stats/metrics": _JAVA for when in ("empty", "busy")},
    **{f"{when}: GET /admin/v2/worker/connectors": _CONNECTORS for when in ("empty", "busy")},
    "connectors": _CONNECTORS,
}
"""Steps that ours answers otherwise, and why."""


@pytest.fixture
async def sides(apache_pulsar: ApachePulsar, tmp_path: Path) -> AsyncIterator[tuple[Side, Side]]:
    """Pulsar's own worker, and one of ours on the same broker."""
    if shutil.which("javac") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "no javac; on Debian: apt-get install default-jdk-headless"
        )
    async with httpx.AsyncClient(base_url=apache_pulsar.web_url, timeout=60) as http:

        async def has_worker() -> Any:
            answer = await http.get("/admin/v2/worker/cluster/leader")
            if answer.status_code == 404:
                pytest.skip(f"the Apache Pulsar at {apache_pulsar.web_url} runs no functions worker")
            return answer.json() if answer.is_success else None

        them = await eventually(has_worker, "Pulsar's own worker", timeout_s=60)
        namespaces = [f"public/{own_name(word)}" for word in ("theirs", "ours")]
        for namespace in namespaces:
            (await http.put(f"/admin/v2/namespaces/{namespace}")).raise_for_status()
    theirs = Side(
        apache_pulsar.web_url, namespaces[0], them["workerId"], them["workerHostname"],
        ("exclaim.jar", java_package(tmp_path)), {"className": "Exclaim", "jar": "exclaim.jar"},
    )  # fmt: skip
    config = worker_config(apache_pulsar, tmp_path / "worker", f"public/{own_name('functions')}", own_name("worker"))
    service = WorkerService(config)
    await service.start()
    try:
        yield theirs, Side(
            service.worker_url, namespaces[1], service.worker_id, "127.0.0.1",
            ("exclaim.py", PYTHON.encode()), {"className": "exclaim.process", "py": "exclaim.py"},
        )  # fmt: skip
    finally:
        await service.stop()


async def ask(http: httpx.AsyncClient, side: Side, step: Step) -> tuple[int, Any]:
    path, files = step.request(side)

    async def is_ready() -> httpx.Response | None:
        answer = await http.request(step.method, side.web_url + path, files=files or None)
        return None if NOT_READY in answer.text else answer

    answer = await eventually(is_ready, f"answer to {step.label}", timeout_s=SETTLE_S)
    # Compact, as both may write spaces or not.
    try:
        text = json.dumps(answer.json(), separators=(",", ":"))
    except ValueError:
        text = answer.text
    return answer.status_code, side.neutral(text)


async def compare(http: httpx.AsyncClient, sides: tuple[Side, Side], step: Step) -> str | None:
    """Return how the answers differ."""
    (status, theirs), (our_status, ours) = [await ask(http, side, step) for side in sides]
    if status != our_status:
        return f"status {status} != {our_status}: {str(theirs)[:200]!r} and {str(ours)[:200]!r}"
    if isinstance(theirs, str) and status >= 400:
        return None
    return difference(theirs, ours)


async def hold(sides: tuple[Side, Side], steps: tuple[Step, ...]) -> None:
    """Ask both, and report every deviation that is not listed, and every listed one that is none."""
    wrong: list[str] = []
    async with httpx.AsyncClient(timeout=60, follow_redirects=True) as http:
        for step in steps:
            found = await compare(http, sides, step)
            if found is not None and step.method == "GET" and step.label not in DEVIATIONS:

                async def agree(step: Step = step) -> bool:
                    return await compare(http, sides, step) is None

                try:
                    await eventually(agree, "agreement", timeout_s=SETTLE_S)
                    found = None
                except AssertionError:
                    found = await compare(http, sides, step)
            if (found is None) == (step.label in DEVIATIONS):
                wrong.append(f"{step.label}: {found or 'listed as a deviation, but the answers agree'}")
    assert not wrong, "\n".join(wrong)


def test_every_step_has_a_label_of_its_own() -> None:
    labels = [step.label for step in (*STEPS, *PYTHON_STEPS)]
    assert len(labels) == len(set(labels))
    assert set(DEVIATIONS) <= set(labels)


@pytest.mark.timeout(300)
async def test_our_worker_answers_as_pulsars_does(sides: tuple[Side, Side]) -> None:
    await hold(sides, STEPS)


@pytest.mark.timeout(300)
async def test_function_in_python_is_kept_as_pulsar_keeps_it(sides: tuple[Side, Side]) -> None:
    theirs, ours = sides
    await hold((replace(theirs, package=ours.package, own=ours.own), ours), PYTHON_STEPS)
