"""The whole conversation with Apache Pulsar's interface of sources and sinks, held with ours."""

from __future__ import annotations

import pytest

from .conftest import Cluster
from .golden import ask, difference, read_steps, remove_what_is_left

pytestmark = pytest.mark.slow

LEFT_OUT: dict[range, str] = {
    range(5, 7): "no connectors are installed where it was recorded",
    range(44, 46): "no connectors are installed where it was recorded",
    range(80, 99): "packages of the broker come later",
}
DIFFERENT: dict[int, tuple[int, str]] = {
    7: (404, "unknown sink 'nope': expected one of "),
    25: (400, "the part sinkConfig is not JSON: "),
    28: (400, "Sink class is not provided: set className to module.Class; the package has no subclass of Sink"),
    37: (400, "invalid package x.nar: expected a .py, .zip, .whl file"),
    46: (404, "unknown source 'nope': expected one of "),
    64: (400, "the part sourceConfig is not JSON: "),
    67: (
        400,
        "Source class is not provided: set className to module.Class; the package has no subclass of Source or"
        " BatchSource",
    ),
    73: (400, "Topic name cannot be null"),
    76: (400, "invalid package x.nar: expected a .py, .zip, .whl file"),
    77: (400, "unknown field timeoutMs: expected one of "),
}
"""Steps that ours answers better, or says in Python's words: status, and how the reason begins."""


@pytest.mark.timeout(120)
async def test_answers_are_those_of_apache_pulsar(cluster: Cluster) -> None:
    different = {number: (status, {"reason": reason}) for number, (status, reason) in DIFFERENT.items()}
    compared, wrong = 0, []
    await remove_what_is_left(cluster)
    for step in read_steps("sources-sinks.jsonl"):
        if any(step.number in numbers for numbers in LEFT_OUT):
            continue
        answer = await ask(cluster, step)
        if (found := difference(step, answer, different)) is not None:
            wrong.append(f"step {step.number} ({step.name}): {found}; {answer.text[:500]}")
        compared += 1
    assert not wrong, "\n".join(wrong)
    assert compared >= 70
