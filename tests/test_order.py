"""The order in which processes take files of tests, `tests/support/order.py`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.support.order import LONG, longest_first

ROOT = Path(__file__).parents[1]


def items_of(*node_ids: str) -> list[Any]:
    return [cast(Any, SimpleNamespace(nodeid=node_id)) for node_id in node_ids]


def test_every_long_file_is_there_once() -> None:
    assert not [file for file in LONG if not (ROOT / file).is_file()]
    assert len(set(LONG)) == len(LONG)


def test_long_files_come_first_then_those_with_most_tests() -> None:
    many = [f"tests/b.py::test_{number}" for number in range(3)]
    given = items_of("tests/a.py::test_a", *many, f"{LONG[1]}::test_x", f"{LONG[0]}::test_z", f"{LONG[0]}::test_y")
    found = [item.nodeid for item in longest_first(given)]
    assert found == [f"{LONG[0]}::test_z", f"{LONG[0]}::test_y", f"{LONG[1]}::test_x", *many, "tests/a.py::test_a"]
