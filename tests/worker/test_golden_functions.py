"""The whole conversation with Apache Pulsar's functions interface, held with ours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.eventually import eventually

from .conftest import Cluster
from .golden import Step, ask, difference, read_steps, remove_what_is_left

pytestmark = pytest.mark.slow

LEFT_OUT: dict[range, str] = {
    range(47, 48): "a number as text is an HTML page of Java's",
    range(49, 54): "Java's class path; an unknown enum value is taken as none by Pulsar",
    range(54, 58): "Pulsar keeps the package of a deleted function; an unknown enum value again",
    range(74, 79): "windows are refused for Python before their numbers are looked at",
    range(81, 87): "Java's serde and schema classes",
    range(88, 95): "patterns come later; archives of Java",
    range(95, 96): "built-in functions come later",
    range(99, 103): "package names come later; Pulsar's thread runtime does not start Python",
    range(103, 106): "Go",
    range(108, 109): "Python functions have retries here",
    range(110, 114): "Go",
    range(106, 107): "EFFECTIVELY_ONCE is refused for Python by Pulsar",
    range(146, 147): "Accept text/plain is refused by Pulsar",
    range(151, 155): "the broker's answers, compared elsewhere; Java registers schemas by the types of a class",
    range(162, 165): "a restart of a stopped function starts it at Pulsar and leaves it stopped here",
    range(175, 176): "a body of another type on a command without a body is refused by Pulsar and ignored here",
    range(178, 179): "the archive's path counts as a change for Java",
    range(192, 193): "Python is the only runtime",
    range(201, 209): "limits, secrets, retries and windows come later",
    range(209, 211): "updateAuthData is refused: without authentication there is nothing that it could update",
    range(214, 235): "state, upload and download by path come later",
    range(235, 236): "no connectors are installed where it was recorded",
    range(240, 248): "windows, schemas and patterns come later",
    range(249, 250): "compared in the tests of the config",
    range(254, 266): "state comes later; legacy paths",
    range(267, 271): "functions that were left out",
    range(273, 275): "functions that were left out",
    range(278, 293): "the broker's answers about topics of functions that were left out",
}
DIFFERENT: dict[int, tuple[int, Any]] = {
    34: (400, {"reason": "Function classname cannot be null"}),
    121: (400, {"reason": "status: instance id 'x' is not a number"}),
    126: (400, {"reason": "stats: instance id 'x' is not a number"}),
    133: (400, {"reason": "start: instance id 'x' is not a number"}),
    136: (400, {"reason": "stop: instance id 'x' is not a number"}),
    137: (400, {"reason": "restart: instance id 'x' is not a number"}),
    143: (200, "from file!"),
    161: (
        408,
        {"reason": "Function ex is stopped: the message remains in its input until the function is started"},
    ),
    238: (400, {"reason": "Corrupt Function MetaData: the part functionMetaData is missing"}),
}
"""Steps that ours answers better, or says in Python's words: status and answer."""


WORKER_LEFT_OUT: dict[range, str] = {
    range(4, 5): "no connectors are installed where it was recorded",
    range(7, 8): "Pulsar's embedded worker answers the status of a drain with an error",
    range(10, 12): "Pulsar's embedded worker answers the status of a drain with an error",
    range(16, 17): "numbers of the Java virtual machine",
    range(19, 22): "an embedded worker has no /initialized and /version; ours is alone and has",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "least"), [("functions.jsonl", 120), ("worker.jsonl", 14)])
async def test_answers_are_those_of_apache_pulsar(cluster: Cluster, name: str, least: int) -> None:
    compared = 0
    await remove_what_is_left(cluster)
    left_out = LEFT_OUT if name == "functions.jsonl" else WORKER_LEFT_OUT
    for step in read_steps(name):
        if any(step.number in numbers for numbers in left_out):
            continue
        answer = await ask(cluster, step)
        found = difference(step, answer, DIFFERENT)
        if found is not None and step.method == "GET":

            async def is_settled(step: Step = step) -> bool:
                return difference(step, await ask(cluster, step), DIFFERENT) is None

            await eventually(
                is_settled, f"answer like that of step {step.number} ({step.name}): {found}; {answer.text[:1500]}"
            )
        else:
            assert found is None, f"step {step.number} ({step.name}): {found}"
        compared += 1
    assert compared >= least
