"""A thread function that holds the interpreter of its worker for seconds: no process function of the worker notices."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from tests.support.functions import Functions
from tests.support.servers import running

pytestmark = pytest.mark.slow

HOLDS = """
import ctypes

def process(seconds):
    ctypes.PyDLL(None).sleep(int(seconds))  # a call that keeps the interpreter to itself
    return f"held for {seconds}"
"""
WORKS = """
import os

def process(number):
    return f"{number} {os.getpid()}"
"""
HELD_S = 6
"""Twice as long as a worker that was frozen keeps its instances."""


def _config(name: str, runtime: str) -> dict[str, object]:
    return {
        "className": f"{name}.process",
        "inputs": [f"{name}-in"],
        "output": f"{name}-out",
        "runtimeEnv": runtime,
    }


def test_process_functions_go_on_while_a_thread_function_holds_the_interpreter(tmp_path: Path) -> None:
    with running("standalone", tmp_path) as server, Functions(server.web_url) as functions:
        functions.create("holds", HOLDS, _config("holds", "thread")).raise_for_status()
        functions.create("works", WORKS, _config("works", "process")).raise_for_status()
        client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            outputs = client.subscribe("works-out", "s", initial_position=pulsar.InitialPosition.Earliest)
            held = client.subscribe("holds-out", "s", initial_position=pulsar.InitialPosition.Earliest)
            producer = client.create_producer("works-in")
            client.create_producer("holds-in").send(str(HELD_S).encode())
            found: list[bytes] = []
            answer = None
            while answer is None:
                producer.send(f"n{len(found)}".encode())
                found.append(outputs.receive(30_000).data())
                try:
                    answer = held.receive(100)
                except pulsar.Timeout:
                    continue
        finally:
            client.close()
        numbers, processes = zip(*(text.decode().split() for text in found), strict=True)
        assert list(numbers) == [f"n{number}" for number in range(len(found))]
        assert len(set(processes)) == 1, "the instance was started anew"
        assert functions.status("works")["numRestarts"] == 0
        assert functions.status("holds")["numRestarts"] == 0
