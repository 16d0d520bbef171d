"""The sink ``file`` by itself: full disks, files that were left, names, and what a row is."""

from __future__ import annotations

import csv
import json
import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from magnetar.api.connector import Record, RecordRefused, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.file_sink import COLUMNS_MAX, FileSink, FileSinkConfig
from magnetar.errors import InvalidConfig

from tests.connectors.direct import DirectContext


def opened(directory: Path, instance_id: int = 0, name: str = "public/default/keep", **configs: Any) -> FileSink:
    sink = FileSink()
    config = read_config(FileSinkConfig, {"path": str(directory), **configs})
    sink.check(config)
    context = DirectContext()
    context.name, context.instance_id = name, instance_id
    sink.open(config, context)
    return sink


def rows(numbers: range, text: str = "") -> list[Record]:
    return [Record(json.dumps({"n": number, "text": text}).encode()) for number in numbers]


def names(directory: Path, pattern: str = "[!.]*") -> list[Path]:
    return sorted(directory.glob(pattern))


def numbers(directory: Path) -> list[int]:
    return [json.loads(line)["n"] for path in names(directory) for line in path.read_bytes().splitlines()]


@contextmanager
def full_disk(at_bytes: int) -> Iterator[None]:
    """Have no file of this process grow beyond a size, in the middle of a write if need be."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_batch_that_a_full_disk_cuts_is_taken_back_and_written_once_when_there_is_room(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write_batch(rows(range(100)))
    with full_disk(6000), pytest.raises(Retry, match=r"File too large"):
        sink.write_batch(rows(range(100, 1000)))
    (left,) = names(tmp_path, ".*.open")
    assert len(left.read_bytes().splitlines()) == 100
    sink.write_batch(rows(range(100, 1000)))
    sink.close()
    assert numbers(tmp_path) == list(range(1000))


@pytest.mark.parametrize("format", ["csv", pytest.param("parquet", marks=pytest.mark.connectors)])
def test_file_that_a_full_disk_keeps_from_being_finished_is_finished_later(tmp_path: Path, format: str) -> None:  # noqa: A002
    sink = opened(tmp_path, format=format)
    records = [Record(json.dumps({"n": number, "text": f"{number:x}" * 9}).encode()) for number in range(2000)]
    sink.write_batch(records)
    with full_disk(5000):
        sink.close()
        with pytest.raises(Retry, match="File too large"):
            opened(tmp_path, format=format)
    assert not names(tmp_path)
    assert not names(tmp_path, "*.made")
    opened(tmp_path, format=format).close()
    (made,) = names(tmp_path)
    assert [n for n, _ in read(made)] == list(range(2000))
    assert not names(tmp_path, ".*")


def read(path: Path) -> list[tuple[int, str]]:
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            return [(int(row["n"]), row["text"]) for row in csv.DictReader(file)]
    from pyarrow import parquet

    return [(row["n"], row["text"]) for row in parquet.read_table(path).to_pylist()]


def test_file_that_a_killed_instance_left_is_finished_by_any_other_without_its_half_line(tmp_path: Path) -> None:
    left = tmp_path / ".keep-3-20260101T000000.000000-1.jsonl.open"
    left.write_bytes(b'{"n": 1, "text": ""}\n{"n": 2, "text": "' + b"x" * 100_000)
    (tmp_path / ".keep-4-20260101T000000.000000-1.jsonl.open").touch()
    opened(tmp_path, instance_id=0).close()
    assert numbers(tmp_path) == [1]
    assert not names(tmp_path, ".*")


def test_instances_and_sinks_share_a_directory_and_leave_each_others_files_alone(tmp_path: Path) -> None:
    sinks = [
        opened(tmp_path, instance_id, name, **configs)
        for instance_id in range(2)
        for name, configs in (("a/b/keep", {}), ("c/d/keep", {}), ("a/b/keep-0", {}), ("a/b/x", {"filePrefix": "keep"}))
    ]
    for number, sink in enumerate(sinks):
        sink.write_batch(rows(range(number * 10, number * 10 + 10)))
    opened(tmp_path).close()
    assert not names(tmp_path)
    assert len(names(tmp_path, ".*.open")) == len(sinks)
    for sink in sinks:
        sink.close()
    assert sorted(numbers(tmp_path)) == list(range(80))


def test_files_roll_by_records_bytes_and_time_and_never_hold_more(tmp_path: Path) -> None:
    sink = opened(tmp_path / "records", rollRecords=25)
    assert sink.batching(sink._config).records == 25
    for begin in range(0, 100, 10):
        sink.write_batch(rows(range(begin, begin + 10)))
    sink.close()
    assert [len(path.read_bytes().splitlines()) for path in names(tmp_path / "records")] == [20] * 5
    sink = opened(tmp_path / "bytes", rollBytes=1000)
    for number in range(10):
        sink.write_batch(rows(range(number, number + 1), "x" * 300))
    sink.close()
    assert all(path.stat().st_size <= 1000 for path in names(tmp_path / "bytes"))
    assert numbers(tmp_path / "bytes") == list(range(10))
    sink = opened(tmp_path / "time", rollSeconds=0.1)
    sink.write_batch(rows(range(1)))
    sink._began_s -= 1
    sink.idle()
    assert numbers(tmp_path / "time") == [0]


@pytest.mark.parametrize(
    ("value", "configs", "cause"),
    [
        (b"\xff", {}, "value is not valid json: 'utf-8' codec can't decode"),
        ('{"a": 1}'.encode("utf-16"), {}, "value is not valid json"),
        (b"a line", {}, r"value is not valid json: .*: set valueType to text for plain text"),
        (b'{"a": NaN}', {}, "Out of range float"),
        (b'{"a": "\\ud800"}', {}, "surrogates not allowed"),
        (b"[" * 100_000, {}, "maximum recursion depth"),
        (b"\xff", {"valueType": "text"}, "value is not valid text"),
        (b"a\nb", {"format": "lines"}, "value contains a line break"),
        (b"[1]", {"format": "csv"}, "value must be a JSON object for format csv, not list"),
        (b"{}", {"format": "csv"}, "requires at least one field"),
        (json.dumps(dict.fromkeys(range(COLUMNS_MAX + 1))).encode(), {"format": "csv"}, "1000 distinct fields"),
    ],
)
def test_record_that_is_no_row_is_refused_alone(
    tmp_path: Path, value: bytes, configs: dict[str, Any], cause: str
) -> None:
    sink = opened(tmp_path, **configs)
    good = Record(b'{"n": 1}')
    with pytest.raises(RecordRefused, match=cause) as refused:
        sink.write_batch([good, good, Record(value), good])
    assert (refused.value.index, refused.value.written) == (2, 2)
    sink.write_batch([good])
    sink.close()
    (made,) = names(tmp_path)
    assert len(made.read_text().splitlines()) == 3 + (made.suffix == ".csv")


def test_json_keeps_the_digits_of_numbers_and_has_one_line_for_each_value(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    values = [b'{"a": 1.10000000000000000001}', b'{\n"a":\r\n1}', b' "x\\u2028y" ', b"null", "ä".join('""').encode()]
    sink.write_batch([Record(value) for value in values])
    sink.close()
    (made,) = names(tmp_path)
    assert made.read_text().split("\n") == ['{"a": 1.10000000000000000001}', '{"a":1}', '"x\u2028y"', "null", '"ä"', ""]


def test_rows_have_metadata_and_texts_where_asked_for(tmp_path: Path) -> None:
    sink = opened(tmp_path, withMetadata=True, valueType="text")
    records = [Record(b"1", "k", {"p": "q"}, 5, "t", "1:2:3"), Record("zwei", topic="t")]
    sink.write_batch(records)
    sink.close()
    (made,) = names(tmp_path)
    one, two = map(json.loads, made.read_text().splitlines())
    assert one == {
        "value": "1", "__key": "k", "__topic": "t", "__messageId": "1:2:3", "__eventTime": 5,
        "__messageProperties": {"p": "q"},
    }  # fmt: skip
    assert two | {"__messageId": ""} == {
        "value": "zwei", "__key": None, "__topic": "t", "__messageId": "", "__eventTime": None,
        "__messageProperties": None,
    }  # fmt: skip


@pytest.mark.parametrize("format", ["json", "csv"])
def test_texts_are_rows_of_one_column_or_json_strings(tmp_path: Path, format: str) -> None:  # noqa: A002
    sink = opened(tmp_path, format=format, valueType="text")
    texts = ['a "b" \\ ä', "", "1", "x\ny\t\x01"]
    sink.write_batch([Record(text.encode()) for text in texts])
    with pytest.raises(RecordRefused, match="surrogates not allowed"):
        sink.write_batch([Record("\ud800")])
    sink.close()
    (made,) = names(tmp_path)
    if format == "json":
        assert [json.loads(line) for line in made.read_text().splitlines()] == texts
    else:
        with open(made, newline="", encoding="utf-8") as file:
            assert [row["value"] for row in csv.DictReader(file)] == texts


def test_settings_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="withMetadata does not support format lines"):
        opened(tmp_path, format="lines", withMetadata=True)
    with pytest.raises(InvalidConfig, match="filePrefix 'a/b'"):
        opened(tmp_path, filePrefix="a/b")


def test_csv_has_the_columns_of_all_rows_and_json_in_its_cells(tmp_path: Path) -> None:
    sink = opened(tmp_path, format="csv")
    sink.write_batch([Record(b'{"a": "x,\\n\\"y", "b": true}'), Record(b'{"c": ["\xc3\xa4"], "a": null, "b": 1.50}')])
    sink.close()
    (made,) = names(tmp_path)
    with open(made, newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["a", "b", "c"], ['x,\n"y', "true", ""], ["", "1.50", '["ä"]']]


@pytest.mark.connectors
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([1, "x", {"b": 1}, [1, "2"]], ["1", "x", '{"b": 1}', '[1, "2"]']),
        (["2026-01-01T00:00:00", "no time"], ["2026-01-01T00:00:00", "no time"]),
        (["2026-01-01 00:00:00"], ["2026-01-01 00:00:00"]),
        ([12345678901234567, 1], [12345678901234567, 1]),
        ([2**70, 1], [str(2**70), "1"]),
        ([{}, {"x": [{"y": 1}, {"z": "ä"}]}], [{"x": None}, {"x": [{"y": 1, "z": None}, {"y": None, "z": "ä"}]}]),
        ([{}, {}], ["{}", "{}"]),
        ([None, None], [None, None]),
        ([True, 1], ["true", "1"]),
        ([[], [[1], []]], [[], [[1], []]]),
    ],
)
def test_parquet_holds_every_value_whatever_the_others_are(tmp_path: Path, values: list[Any], expected: Any) -> None:
    from pyarrow import parquet

    sink = opened(tmp_path, format="parquet")
    sink.write_batch([Record(json.dumps({"a": value, "n": number}).encode()) for number, value in enumerate(values)])
    sink.close()
    (made,) = names(tmp_path)
    assert [row["a"] for row in parquet.read_table(made).to_pylist()] == expected


@pytest.mark.connectors
def test_parquet_of_many_or_deep_fields_can_be_read(tmp_path: Path) -> None:
    from pyarrow import parquet

    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"x": deep}
    sink = opened(tmp_path, format="parquet")
    wide = [{"a": {f"k{number}": number}} for number in range(2000)]
    sink.write_batch([Record(json.dumps(value).encode()) for value in [*wide, {"b": deep}]])
    sink.close()
    (made,) = names(tmp_path)
    table = parquet.read_table(made).to_pylist()
    assert [json.loads(row["a"]) for row in table[:2000]] == [value["a"] for value in wide]


@pytest.mark.connectors
def test_memory_of_a_conversion_does_not_grow_with_the_file(tmp_path: Path) -> None:
    import pyarrow
    from magnetar.connectors.lines_to_parquet import BLOCK_BYTES, write_parquet
    from pyarrow import parquet

    lines = tmp_path / "lines"
    text = json.dumps({"n": 1, "text": "x" * 990}).encode() + b"\n"
    with open(lines, "wb") as file:
        for _ in range(128):
            file.write(text * (1 << 10))
    pool = pyarrow.default_memory_pool()
    tracemalloc.start()
    before = pool.bytes_allocated()
    write_parquet(lines, tmp_path / "made")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * BLOCK_BYTES
    assert pool.max_memory() - before < 10 * BLOCK_BYTES
    assert parquet.read_metadata(tmp_path / "made").num_rows == 128 << 10
