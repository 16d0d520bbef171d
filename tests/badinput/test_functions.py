"""Functions that cannot run say why, and their input waits for the corrected version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.calm import Calm
from tests.support.command import call
from tests.support.functions import Functions
from tests.support.servers import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

GOOD = "def process(text):\n    return text + '!'\n"
SAYS_WHY_S = 2.0
SEEN_AT_CREATE = {
    "wrong-class": (GOOD, "NoSuchThing", ("NoSuchThing",)),
    "syntax": ("def process(text)\n    return text\n", "process", ("line 1", ".py")),
}
SEEN_AT_START = {
    "raises-at-import": ("1 / 0\n" + GOOD, "process", "ZeroDivisionError"),
    "missing-import": ("import no_such_module_of_anyone\n" + GOOD, "process", "no_such_module_of_anyone"),
}


def config(name: str, attribute: str, **more: Any) -> dict[str, Any]:
    return {
        "className": f"{name}.{attribute}",
        "inputs": [f"{name}-in"],
        "output": f"{name}-out",
        "subscriptionPosition": "Earliest",
        **more,
    }


@pytest.mark.parametrize("case", SEEN_AT_CREATE)
def test_module_that_cannot_work_is_refused_and_the_running_version_stays(
    standalone: Server, functions: Functions, case: str
) -> None:
    source, attribute, words = SEEN_AT_CREATE[case]
    name = case.replace("-", "_")
    for word in words:
        assert word in refusal(functions.create(name, source, config(name, attribute)))
    functions.create(name, GOOD, config(name, "process")).raise_for_status()
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        output = client.subscribe(f"{name}-out", "s")
        for word in words:
            assert word in refusal(functions.update(name, source, config(name, attribute)))
        client.create_producer(f"{name}-in").send(b"kept")
        assert output.receive(30_000).data() == b"kept!"
    finally:
        client.close()
        functions.delete(name)


def refusal(answer: httpx.Response) -> str:
    """The reason of a 400, which is one line."""
    assert answer.status_code == 400, (answer.status_code, answer.text)
    reason = str(answer.json()["reason"])
    assert "\n" not in reason
    return reason


@pytest.mark.parametrize("runtime", ["process", "thread"])
@pytest.mark.parametrize("case", SEEN_AT_START)
def test_function_that_cannot_start_says_why_and_loses_nothing(
    standalone: Server, functions: Functions, case: str, runtime: str
) -> None:
    source, attribute, word = SEEN_AT_START[case]
    name = f"{case.replace('-', '_')}_{runtime}"
    functions.create(name, source, config(name, attribute, runtimeEnv=runtime)).raise_for_status()
    began = Calm()
    error = wait_for(lambda: functions.status(name)["error"], "error in status")
    assert word in error, error
    assert began.calm_s < SAYS_WHY_S, began
    logs = call("functions", "logs", "--name", name, admin_url=standalone.web_url).ok().out
    assert word in logs
    assert "Traceback" in logs
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        client.create_producer(f"{name}-in").send(b"kept")
        output = client.subscribe(f"{name}-out", "s")
        functions.update(name, GOOD, config(name, "process", runtimeEnv=runtime)).raise_for_status()
        assert output.receive(30_000).data() == b"kept!"
    finally:
        client.close()
        functions.delete(name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": ["persistent://only-a-tenant"]}, ("persistent://only-a-tenant",)),
        ({"output": "weird://public/default/t"}, ("weird",)),
        ({"parallelism": 0}, ("arallelism",)),
        ({"inputs": []}, ("nput",)),
        ({"processingGuarantees": "SOMETIMES"}, ("SOMETIMES",)),
        ({"runtimeEnv": "hamster-wheel"}, ("hamster-wheel",)),
        ({"runtimeFlags": "-X"}, ("runtimeFlags",)),
        ({"outpt": "typo"}, ("outpt", "output")),
        ({"className": ""}, ("lass",)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config_that_cannot_work_is_refused_by_name(
    functions: Functions, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    reason = refusal(functions.create("refused", GOOD, {**config("refused", "process"), **change}))
    for word in words:
        assert word in reason, reason


def test_unreadable_packages_are_refused(standalone: Server, tmp_path: Path) -> None:
    torn = tmp_path / "torn.zip"
    torn.write_bytes(b"PK\x03\x04 this is no archive")
    flags = ("--inputs", "persistent://public/default/a", "--output", "persistent://public/default/b")
    create = ("functions", "create", "--name", "unreadable", "--classname", "torn.process", *flags)
    call(*create, "--py", str(torn), admin_url=standalone.web_url).refused("torn.zip")
    call(*create, "--py", str(tmp_path / "absent.py"), admin_url=standalone.web_url).refused("absent.py")
    call(*create, "--py", str(tmp_path), admin_url=standalone.web_url).refused(str(tmp_path))
    call("functions", "get", "--name", "unreadable", admin_url=standalone.web_url).refused("unreadable")
