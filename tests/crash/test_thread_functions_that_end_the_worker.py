"""A thread function whose call ends the worker: its message is counted and given up, and no other function's is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pulsar
import pytest

from tests.official.talk import send_all
from tests.support.functions import Functions
from tests.support.servers import Server
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

RETRIES = 2
KILLER = """
def process(text):
    with open({visits!r}, "a") as file:
        file.write(text + "\\n")
    if text == "poison":
        {statement}
    return text
"""
ASYNC_KILLER = KILLER.replace("def process", "import asyncio\nasync def process").replace(
    "    with open", "    await asyncio.sleep(0)\n    with open"
)
NEIGHBOUR = """
import time
def process(text):
    time.sleep(0.05)
    return text
"""
STATEMENTS = {"exit": "import os; os._exit(7)", "crash in C": "import ctypes; ctypes.string_at(0)"}


def is_running(functions: Functions, name: str) -> bool:
    return bool(functions.status(name)["running"])


def config(name: str) -> dict[str, object]:
    return {
        "className": f"{name}.process",
        "inputs": [f"{name}-in"],
        "output": f"{name}-out",
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "thread",
        "maxMessageRetries": RETRIES,
        "deadLetterTopic": f"{name}-letters",
    }


@pytest.mark.parametrize(("code", "statement"), [(KILLER, "exit"), (ASYNC_KILLER, "crash in C")])
def test_only_the_message_that_ends_the_worker_is_given_up(
    standalone: Server, tmp_path: Path, code: str, statement: str
) -> None:
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    names = ("neighbour", "killer")
    inputs = {name: client.create_producer(f"{name}-in") for name in names}
    outputs = {name: client.subscribe(f"{name}-out", "s") for name in names}
    letters = {name: client.subscribe(f"{name}-letters", "s") for name in names}
    visits = tmp_path / "visits"
    killer = code.format(visits=str(visits), statement=STATEMENTS[statement])
    with Functions(standalone.web_url) as functions:
        functions.create("neighbour", NEIGHBOUR, config("neighbour")).raise_for_status()
        functions.create("killer", killer, config("killer")).raise_for_status()
        for name in names:
            wait_for(partial(is_running, functions, name), f"running {name}")
        send_all(inputs["neighbour"], [b"n%d" % number for number in range(300)])
        send_all(inputs["killer"], [b"a", b"poison", b"b"])

        letter = letters["killer"].receive(200_000)
        assert letter.data() == b"poison"
        assert "the worker's process ended" in letter.properties()["EXCEPTION"]
        for name, expected in (("killer", {b"a", b"b"}), ("neighbour", {b"n%d" % number for number in range(300)})):
            seen: set[bytes] = set()
            while seen != expected:
                seen.add(outputs[name].receive(60_000).data())
        with pytest.raises(pulsar.Timeout):
            letters["neighbour"].receive(100)
    # The first end of the worker is charged when the second shows the message; one more may be charged to no message.
    assert RETRIES + 1 <= visits.read_text().split().count("poison") <= RETRIES + 2
    client.close()
