"""The sinks of table formats: exactness across instances, schemas that grow, and values that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.api.connector import Record, RecordRefused, Retry, SinkContext
from magnetar.api.connector_config import read_config
from magnetar.connectors.delta_sink import DeltaSink
from magnetar.connectors.iceberg_sink import IcebergSink
from magnetar.connectors.table_sink import TableSink

pytestmark = pytest.mark.connectors
for library in ("pyarrow", "deltalake", "pyiceberg"):
    pytest.importorskip(library)

Open = Callable[..., TableSink]


@pytest.fixture(params=[DeltaSink, IcebergSink])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return an opener of sinks of one table."""

    def open_one(*, is_exact: bool = False, incarnation: str = "public/default/s@1", **given: Any) -> TableSink:
        sink: TableSink = request.param()
        if isinstance(sink, DeltaSink):
            place: dict[str, Any] = {"tablePath": str(tmp_path / "t")}
        else:
            catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
            place = {"table": "n.t", "catalogProperties": catalog}
        config = read_config(sink.config, {**place, **given})
        sink.check(config)
        context = cast(SinkContext, SimpleNamespace(is_exact=is_exact, incarnation=incarnation))
        sink.open(config, context)
        request.addfinalizer(sink.close)
        return sink

    return open_one


def record(value: Any, number: int = 0) -> Record:
    return Record(json.dumps(value), topic="persistent://public/default/t", sequence=number)


def give(sink: TableSink, records: list[Record]) -> list[tuple[Any, str]]:
    """Give a batch as an instance does; return what was refused, with the cause."""
    refused = []
    while True:
        try:
            sink.write_batch(records)
        except RecordRefused as error:
            wrong = records[error.index]
            refused.append((json.loads(wrong.value), str(error)))
            records = [one for one in records if one is not wrong][error.written :]
        else:
            return refused


def rows(sink: TableSink) -> list[dict[str, Any]]:
    table = sink._table  # type: ignore[attr-defined]
    found = table.to_pyarrow_table() if isinstance(sink, DeltaSink) else table.refresh().scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def test_nothing_is_committed_twice(opened: Open) -> None:
    records = [record({"id": number}, number) for number in range(10)]
    give(opened(is_exact=True), records[:6])
    sink = opened(is_exact=True)
    give(sink, records[4:])
    give(sink, records)
    assert [row["id"] for row in rows(sink)] == list(range(10))


def test_a_sink_that_is_created_again_begins_anew(opened: Open) -> None:
    give(opened(is_exact=True), [record({"id": 1}, 1)])
    sink = opened(is_exact=True, incarnation="public/default/s@2")
    give(sink, [record({"id": 1}, 1)])
    assert len(rows(sink)) == 2


def test_at_least_once_writes_what_comes(opened: Open) -> None:
    sink = opened()
    give(sink, [record({"id": 2}, 9)])
    give(sink, [record({"id": 1}, 3)])  # of another instance that died
    assert [row["id"] for row in rows(sink)] == [1, 2]


def test_an_instance_that_was_taken_for_dead_commits_nothing(opened: Open) -> None:
    give(opened(is_exact=True), [record({"id": 0}, 0)])
    late, other = opened(is_exact=True), opened(is_exact=True)
    give(other, [record({"id": 1}, 1)])
    with pytest.raises(Retry):
        late.write_batch([record({"id": 1}, 1)])
    assert [row["id"] for row in rows(opened(is_exact=True))] == [0, 1]


def test_two_instances_write_to_one_table(opened: Open) -> None:
    give(opened(), [record({"id": 0})])
    one, other = opened(), opened()
    for number in (1, 3):
        give(one, [record({"id": number})])
        give(other, [record({"id": number + 1})])
    assert [row["id"] for row in rows(opened())] == [0, 1, 2, 3, 4]


def test_values_that_do_not_fit_are_refused_alone(opened: Open) -> None:
    kinds = {"id": "long", "d": "date", "t": "timestamp", "p": "decimal(4,2)", "b": "boolean", "f": "double"}
    sink = opened(schema=kinds)
    good: list[Any] = [
        {"id": 1, "d": "2024-02-29", "t": "2024-02-29T12:00:00.5+02:00", "p": "1.25", "b": True, "f": 1},
        {"id": 2, "unknown": None, "other": []},
        {"id": 3, "f": None},
    ]
    bad: list[Any] = [
        {"id": "4"}, {"id": 1.5}, {"id": 1 << 63}, {"id": 4, "d": "2024-02-30"}, {"id": 4, "d": "2024-02-28T01:00:00"},
        {"id": 4, "t": 5}, {"id": 4, "p": "1.255"}, {"id": 4, "p": "100.00"}, {"id": 4, "b": "true"},
        {"id": 4, "new": 1}, {"id": 4, "b": "\ud800"}, [], "text",
    ]  # fmt: skip
    records = [record(value) for pair in zip(good * 5, bad, strict=False) for value in pair]
    refused = give(sink, records)
    assert sorted(str(value) for value, _ in refused) == sorted(map(str, bad))
    assert any("no column 'new'" in cause for _, cause in refused)
    assert all(cause and "\n" not in cause for _, cause in refused)
    found = rows(sink)
    assert [row["id"] for row in found] == sorted(value["id"] for value in (good * 5)[: len(bad)])
    assert found[0]["d"].isoformat() == "2024-02-29"
    assert found[0]["t"].isoformat() == "2024-02-29T10:00:00.500000+00:00"


def test_columns_are_added_left_out_or_refused(opened: Open) -> None:
    give(opened(), [record({"id": 1, "inner": {"a": 1, "nothing": None}, "empty": []})])
    assert give(opened(), [record({"id": 2, "more": [1]})]) == [({"id": 2, "more": [1]}, "table has no column 'more'")]
    assert not give(opened(schemaEvolution="IGNORE"), [record({"id": 3, "more": [1]})])
    sink = opened(schemaEvolution="MERGE")
    assert not give(sink, [record({"id": 4, "more": ["a"], "inner": {"a": 2}, "empty": [2.5]})])
    assert not give(sink, [record({"id": 5, "inner": {}})])
    assert rows(sink)[2] == {"id": 4, "inner": {"a": 2}, "more": ["a"], "empty": [2.5]}
    assert rows(sink)[0] == {"id": 1, "inner": {"a": 1}, "more": None, "empty": None}


def test_a_table_that_is_not_there_is_waited_for(opened: Open) -> None:
    with pytest.raises(Retry, match="table does not exist"):
        opened(createTable=False)
    with pytest.raises(Retry, match="no record has a non-null field"):
        opened().write_batch([record({"a": None})])
