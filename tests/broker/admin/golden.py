"""Compares an answer with a recorded one. The rules are in `tests/golden/rest/README.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "golden" / "rest"
_CUT = "<cut"
_NAME_LISTS = re.compile(r"^(persistent|non-persistent)://|^[-=:.\w]+(/[-=:.\w]+)?$")


@dataclass(frozen=True)
class Line:
    """One recorded request; `number` counts from 1 in its file."""

    number: int
    record: dict[str, Any]

    def __getattr__(self, field: str) -> Any:
        return self.record.get(field)

    def __str__(self) -> str:
        return f"line {self.number}: {self.record['method']} {self.record['path']}"


def lines(name: str) -> Iterator[Line]:
    for number, text in enumerate((DIRECTORY / f"{name}.jsonl").read_text().splitlines(), 1):
        yield Line(number, json.loads(text))


def differences(expected: Any, got: Any, where: str = "") -> Iterator[str]:
    """Yield each difference between `got` and the recording."""
    here = where or "body"
    if isinstance(expected, str):
        if not _text_fits(expected, got):
            yield f"{here}: expected {expected!r}, got {got!r}"
    elif isinstance(expected, dict) and isinstance(got, dict):
        is_cut = any(key.startswith(_CUT) for key in expected)
        wanted = {key for key in expected if not key.startswith(_CUT)}
        for key in sorted(wanted - set(got)):
            yield f"{here}: {key} is missing"
        if not is_cut and not any("<varies>" in key for key in wanted):
            for key in sorted(set(got) - wanted):
                yield f"{here}: {key}={got[key]!r} is too much"
        for key in sorted(wanted & set(got)):
            yield from differences(expected[key], got[key], f"{where}/{key}")
    elif isinstance(expected, list) and isinstance(got, list):
        yield from _list_differences(expected, got, where)
    elif expected != got or isinstance(expected, bool) != isinstance(got, bool):  # True == 1 in Python
        yield f"{here}: expected {expected!r}, got {got!r}"


def _list_differences(expected: list[Any], got: list[Any], where: str) -> Iterator[str]:
    wanted = [item for item in expected if not (isinstance(item, str) and item.startswith(_CUT))]
    is_cut = len(wanted) < len(expected)
    if all(isinstance(item, str) and _NAME_LISTS.match(item) for item in wanted) and "<varies>" not in wanted:
        if (missing := set(wanted) - set(got)) or (not is_cut and set(got) - set(wanted)) or len(got) != len(set(got)):
            yield f"{where or 'body'}: expected {sorted(wanted)}, got {got} (missing {sorted(missing)})"
        return
    if len(got) < len(wanted) or (not is_cut and len(got) != len(wanted)):
        yield f"{where or 'body'}: expected {len(wanted)} items, got {len(got)}: {got}"
        return
    for index, item in enumerate(wanted):
        yield from differences(item, got[index], f"{where}/{index}")


def _text_fits(expected: str, got: Any) -> bool:
    if expected == "<number>":
        return isinstance(got, int | float) and not isinstance(got, bool)
    if expected == "<varies>":
        return isinstance(got, str)
    if not isinstance(got, str):
        return False
    pattern = "".join(
        {"<varies>": r"[\s\S]+?", "<number>": r"-?[0-9.]+"}.get(part, re.escape(part))
        for part in re.split(r"(<varies>|<number>)", expected.split("<cut>")[0])
    )
    return re.fullmatch(pattern + (r"[\s\S]*" if "<cut>" in expected else ""), got) is not None
