"""Answers of `pulsar-admin` in a form independent of machine and time, and their differences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parents[1] / "golden"
COMMANDS = GOLDEN / "pulsar-admin.txt"
RECORDED = GOLDEN / "pulsar-admin.jsonl"
"""What Apache Pulsar 4.0.7 answers, a command each line; `MAGNETAR_RECORD_ADMIN=1` writes it again."""
_TOOL = re.compile(r"Exit code is \d \(System.exit not called, as we are in test mode\)")
_COMPACTION = "__compaction"
"""Apache Pulsar's own subscription for compaction, created after a threshold was set. Our broker needs none."""
_LATER = "oldestBacklogMessageSubscriptionName"
"""A field that Apache Pulsar fills in once a minute."""
_UNORDERED = ("topics list ", "topics subscriptions ", "namespaces topics ")
"""Commands whose output Apache Pulsar lists in the order of a hash table."""
_VARYING = (
    (re.compile(r"\b0x[0-9a-f]{8}_0x[0-9a-f]{8}\b"), "BUNDLE"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b1\d{12}\b"), "TIME"),
    # Of a topic without entries, our broker answers -1: it opens the first ledger for the first entry.
    (re.compile(r"-?\b\d+:(-?\d+)\b"), r"LEDGER:\1"),
    (re.compile(r'("ledgerId" ?: ?)-?\d+'), r"\1LEDGER"),
    (re.compile(rf"\b{_COMPACTION}\b ?"), ""),
    (re.compile(r"\bstandalone-\d+-\d+\b"), "PRODUCER"),
)


class Answer(NamedTuple):
    """Exit code and output of a command, or only the fields and types of that output."""

    code: int
    output: Any

    def differences(self, other: Answer) -> Iterator[str]:
        """Yield each difference from another answer."""
        if self.code != other.code:
            yield f"exit code {other.code} instead of {self.code}"
        if self.output != other.output:
            yield f"output {_short(other.output)} instead of {_short(self.output)}"


def answer(command: str, code: int, output: str, names: Mapping[str, str], *, is_shape: bool) -> Answer:
    """Return an answer without its variable parts.

    Args:
        command: as it is recorded.
        code: the exit code.
        output: all that the command wrote.
        names: what stands for a name of this run, by that name.
        is_shape: only the fields of the output and their types count.
    """
    for name, stands_for in sorted(names.items(), key=lambda item: -len(item[0])):
        output = output.replace(name, stands_for)
    output = _TOOL.sub("", output).strip()
    if is_shape:
        return Answer(code, _shape(_value(output)))
    for pattern, stands_for in _VARYING:
        output = pattern.sub(stands_for, output)
    if code == 0 and command.startswith(_UNORDERED):
        output = " ".join(sorted(output.split()))
    return Answer(code, output)


def load() -> dict[str, Answer]:
    """Return the recorded answers by command."""
    rows = map(json.loads, RECORDED.read_text().splitlines())
    return {row["command"]: Answer(row["code"], row["output"]) for row in rows}


def store(answers: Mapping[str, Answer]) -> None:
    """Record answers."""
    rows = ({"command": command, **found._asdict()} for command, found in answers.items())
    RECORDED.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _value(output: str) -> Any:
    try:
        return json.loads(output)
    except json.JSONDecodeError:
        return output


def _shape(value: Any) -> Any:
    """Return the fields of a value and their types; for a list, the fields common to all items."""
    if isinstance(value, dict):
        return {name: _shape(one) for name, one in sorted(value.items()) if name not in (_COMPACTION, _LATER)}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return "null" if value is None else type(value).__name__


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(text if len(text) <= 1500 else f"{text[:1500]}…")
