"""The names of tables: those that exist, by their beginning, however many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from magnetar.state.client import Put, TableClient


def test_names_are_those_of_existing_tables_with_the_prefix(tables: TableClient, write: Callable[..., None]) -> None:
    for name in ("t/n/f@2", "t/n/f@1", "t/n/g"):
        write(Put(b"k", b"v"), table=name)
    assert tables.tables("t/n/f@") == ["t/n/f@1", "t/n/f@2"]
    assert tables.tables() == ["t/n/f@1", "t/n/f@2", "t/n/g"]
    tables.drop("t/n/f@1")
    assert tables.tables("t/n/f@") == ["t/n/f@2"]
    assert tables.tables("nothing") == []


def test_more_names_than_an_answer_has_come_in_several(
    tables: TableClient, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.state.store.NAMES_PER_ANSWER", 2)
    monkeypatch.setattr("magnetar.state.client.NAMES_PER_ANSWER", 2)
    names = [f"t/n/f{number}" for number in range(5)]
    for name in names:
        write(Put(b"k", b"v"), table=name)
    assert tables.tables("t/n/") == names
