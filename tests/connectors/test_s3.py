"""Source and sink ``s3`` without a service: what is discovered again, what files are read as, and exact objects."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.api.connector import DeadLetter, Record, RecordRefused, Retry, SourceContext
from magnetar.api.connector_config import read_config
from magnetar.connectors import s3_sink, s3_source, text_lines
from magnetar.connectors.s3_sink import S3Sink, S3SinkConfig
from magnetar.connectors.s3_source import S3Source, S3SourceConfig

pytestmark = pytest.mark.connectors
pytest.importorskip("boto3")
pytest.importorskip("pyarrow")


class Context:
    """Keeps state, as the instance does."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("s3")
        self.state: dict[str, bytes] = {}

    def get_state(self, key: str) -> bytes | None:
        return self.state.get(key)

    def put_state(self, key: str, value: str | bytes) -> None:
        self.state[key] = value.encode() if isinstance(value, str) else value


def source(path: Path, context: Context, **given: Any) -> S3Source:
    config = read_config(S3SourceConfig, {"path": f"file://{path}", **given})
    one = S3Source()
    one.check(config)
    one.open(config, cast(SourceContext, context))
    return one


def names(tasks: list[bytes]) -> list[str]:
    return [json.loads(task)["name"] for task in tasks]


def values_of(one: S3Source, task: bytes) -> list[Any]:
    values, letters = read_all(one, task)
    assert not letters
    return values


def read_all(one: S3Source, task: bytes) -> tuple[list[Any], list[DeadLetter]]:
    """Return the values of an object, and the dead letters."""
    one.prepare(task)
    values: list[Any] = []
    letters: list[DeadLetter] = []
    while (records := one.read()) is not None:
        assert 0 < len(records) <= s3_source.BATCH
        for record in records:
            if isinstance(record, DeadLetter):
                letters.append(record)
            else:
                values.append(record.value)
    return values, letters


def test_an_object_is_discovered_once_and_again_when_it_changes(tmp_path: Path) -> None:
    context = Context()
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    one = source(tmp_path, context)
    assert names(one.discover()) == ["b", "a"]
    assert names(one.discover()) == []
    again = source(tmp_path, context)
    (tmp_path / "a").write_text("changed")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "d").write_text("d")
    assert names(again.discover()) == ["a", "c/d"]


def test_what_was_discovered_is_remembered_only_when_its_tasks_are_stored(tmp_path: Path) -> None:
    context = Context()
    (tmp_path / "a").write_text("a")
    assert names(source(tmp_path, context).discover()) == ["a"]  # and the instance is killed
    one = source(tmp_path, context)
    (task,) = one.discover()
    one.prepare(task)
    assert names(source(tmp_path, context).discover()) == []


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_source, "REMEMBERED", 3)
    context = Context()
    listed = [s3_source._Found(f"o{number}", "v", 1000.0 + number) for number in range(10)]
    one = source(tmp_path, context)
    monkeypatch.setattr(one, "_list", lambda: iter(listed))
    assert len(one.discover()) == 10
    assert one.discover() == []
    assert len(json.loads(context.state["discovered"])["known"]) == 3
    listed.append(s3_source._Found("new", "v", 1009.0))
    assert names(one.discover()) == ["new"]
    listed += [s3_source._Found("late", "v", 1008.5), s3_source._Found("too late", "v", 1000.0)]
    assert names(one.discover()) == ["late"]
    monkeypatch.undo()


def test_an_object_older_than_the_window_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context()
    day_s = 86_400.0
    listed = [s3_source._Found("new", "v", 100 * day_s)]
    one = source(tmp_path, context)
    monkeypatch.setattr(one, "_list", lambda: iter(listed))
    one.discover()
    listed += [s3_source._Found("inside", "v", 94 * day_s), s3_source._Found("outside", "v", 92 * day_s)]
    assert names(one.discover()) == ["inside"]


TEXT = '{"a":1}\n{"a":"ü"}\n'
DAMAGED = gzip.compress(b"".join(b"%d\n" % number for number in range(100_000)), mtime=0)


def damaged_gzip() -> bytes:
    """Return gzip data with a damaged block in the middle."""
    middle = len(DAMAGED) // 2
    return DAMAGED[:middle] + bytes(byte ^ 0xFF for byte in DAMAGED[middle : middle + 50]) + DAMAGED[middle + 50 :]


@pytest.mark.parametrize(
    ("kind", "content", "expected", "reasons"),
    [
        ("lines", b"a\r\nb\n\n\xff", [b"a", b"b", b"\xff"], []),
        ("lines", gzip.compress(b"a\nb", mtime=0), [b"a", b"b"], []),
        ("lines", b"", [], []),
        ("lines", b"\xef\xbb\xbfa\nb", [b"a", b"b"], []),
        ("lines", "ü\nb\n".encode("utf-16"), ["ü".encode(), b"b"], []),
        ("lines", b"\xff\xfe" + "\ud800\nb\n".encode("utf-16-le", "surrogatepass"), [b"b"], ["lone surrogates"]),
        ("lines", "ab\n".encode("utf-16")[:-1], [], ["after record 0: not valid utf-16"]),
        ("json", b'{"a":1}\n{no\n[2]', [b'{"a":1}', b"[2]"], ["o: line 2 is not valid JSON"]),
        ("json", b"\xef\xbb\xbf" + TEXT.encode(), [b'{"a":1}', '{"a":"ü"}'.encode()], []),
        ("json", TEXT.encode("utf-16"), [b'{"a":1}', '{"a":"ü"}'.encode()], []),
        ("json", TEXT.encode("utf-32"), [b'{"a":1}', '{"a":"ü"}'.encode()], []),
        ("json", b"1\n" + TEXT.encode("utf-16-le") + b"\n2", [b"1", b"2"], ["line 2", "line 3", "line 4"]),
        ("json", b"[NaN]\n[-Infinity]\n[1e999]\n7", [b"[1e999]", b"7"], ["NaN is not a JSON", "-Infinity is not"]),
        ("json", b'"caf\xe9"\n' + b"[" * 10_000 + b"]" * 10_000 + b"\n7", [b"7"], ["can't decode", "recursion"]),
        ("csv", b"a\n1\n\xff\n2\n", [b'{"a":"1"}', b'{"a":"2"}'], ["row at line 3: not valid UTF-8"]),
        ("csv", b"a,a,\n1,2,3\n", [b'{"a":"1","a_2":"2","column3":"3"}'], []),
        ("csv", "a\nü\n".encode("utf-16"), ['{"a":"ü"}'.encode()], []),
        ("parquet", b"no parquet", [], ["after record 0"]),
        ("lines", gzip.compress(b"a\n" * 100, mtime=0)[:-10], None, ["after record"]),
        ("lines", damaged_gzip(), None, ["after record"]),
        ("csv", damaged_gzip(), None, ["after record"]),
    ],
)  # fmt: skip
def test_formats(tmp_path: Path, kind: str, content: bytes, expected: Any, reasons: list[str]) -> None:
    (tmp_path / "o").write_bytes(content)
    one = source(tmp_path, Context(), format=kind)
    (task,) = one.discover()
    values, letters = read_all(one, task)
    if expected is not None:
        assert values == expected
    assert len(letters) == len(reasons)
    for letter, reason in zip(letters, reasons, strict=True):
        assert reason in letter.reason
        assert letter.properties == {"object": "o"}
    one.close()


def test_csv_has_rows_of_several_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes('\ufeffa,ü\n1,"x\ny"\n2\n'.encode())
    one = source(tmp_path, Context(), format="csv")
    (task,) = one.discover()
    assert [json.loads(value) for value in values_of(one, task)] == [{"a": "1", "ü": "x\ny"}, {"a": "2", "ü": None}]


@pytest.mark.parametrize("kind", ["lines", "json", "csv"])
def test_line_without_an_end_costs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(text_lines, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(text_lines, "_SKIPPED_BYTES", 100)
    good = b'1,"x' if kind == "csv" else b"1"
    (tmp_path / "o").write_bytes(b"7\n" + good + b"\n" + b"x" * 5000 + b"\n8\n" + b"y" * 5000)
    one = source(tmp_path, Context(), format=kind, csvHeader=False)
    (task,) = one.discover()
    values, letters = read_all(one, task)
    assert values == ([b'{"column1":"7"}', b'{"column1":"8"}'] if kind == "csv" else [b"7", b"1", b"8"])
    long = [letter for letter in letters if "bytes; the dead letter contains the first" in letter.reason]
    assert ["line 3" in long[0].reason, "line 5" in long[1].reason, len(long)] == [True, True, 2]
    assert len(letters) - len(long) == (kind == "csv")  # the row that goes on in the long line


def test_rows_of_many_absent_cells_come_in_batches(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(",".join(f"c{number}" for number in range(5000)).encode() + b"\n" + b"1\n" * 5000)
    one = source(tmp_path, Context(), format="csv")
    (task,) = one.discover()
    one.prepare(task)
    records = one.read()
    assert records is not None
    assert sum(len(record.value) for record in records) < 2 * s3_source.BATCH_BYTES
    one.close()


def test_parquet_values_that_python_has_no_object_for_are_texts(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    second, year_10000 = 10**9, 253_402_300_800
    columns = {
        "ns": pa.array([1, second + 5, None], pa.timestamp("ns")),
        "far": pa.array([0, year_10000, -62_167_219_201], pa.timestamp("s")),
        "zoned": pa.array([0, year_10000, 1], pa.timestamp("s", "+05:45")),
        "day": pa.array([0, year_10000 // 86_400, -719_529], pa.date32()),
        "time": pa.array([1, 1000, 0], pa.time64("ns")),
        "lists": pa.array([[1], [second + 1], []], pa.list_(pa.timestamp("ns"))),
        "n": pa.array([float("nan"), float("inf"), -0.0]),
    }
    parquet.write_table(pa.table([*columns.values(), columns["n"]], [*columns, "n"]), tmp_path / "o")
    one = source(tmp_path, Context(), format="parquet")
    (task,) = one.discover()
    first, second_row, third = [json.loads(value) for value in values_of(one, task)]
    assert (first["ns"], first["n"], first["n_2"]) == ("1970-01-01T00:00:00.000000001", "NaN", "NaN")
    assert (first["far"], first["zoned"]) == ("1970-01-01T00:00:00", "1970-01-01T05:45:00+05:45")
    assert (second_row["far"], second_row["day"]) == ("+10000-01-01T00:00:00", "+10000-01-01")
    assert second_row["lists"] == ["1970-01-01T00:00:01.000000001"]
    assert (second_row["ns"], second_row["n"]) == ("1970-01-01T00:00:01.000000005", "Infinity")
    assert (third["far"], third["day"], str(third["n"])) == ("-0001-12-31T23:59:59", "-0001-12-31", "-0.0")


def test_an_object_that_went_away_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "o").write_text("a")
    one = source(tmp_path, Context())
    (task,) = one.discover()
    (tmp_path / "o").unlink()
    assert values_of(one, task) == []
    assert "skipped o: deleted before it was read" in caplog.text


def test_a_directory_that_is_away_is_waited_for(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "files", tmp_path / "elsewhere"
    (directory / "below").mkdir(parents=True)
    (directory / "below" / "o").write_text("a")
    one = source(directory, Context())
    (task,) = one.discover()
    directory.rename(elsewhere)
    for is_replaced in (False, True):
        if is_replaced:
            directory.touch()
        with pytest.raises(Retry, match=r"files is not a directory$"):
            values_of(one, task)
    directory.unlink()
    elsewhere.rename(directory)
    assert values_of(one, task) == [b"a"]


def test_a_long_object_comes_in_batches(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(b"".join(b"%d\n" % number for number in range(5000)))
    one = source(tmp_path, Context())
    (task,) = one.discover()
    assert values_of(one, task) == [b"%d" % number for number in range(5000)]


class Bucket:
    """A client of one bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> None:
        assert Bucket == "b"
        self.objects[Key] = Body

    def get_paginator(self, name: str) -> Any:
        assert name == "list_objects_v2"

        def paginate(Bucket: str, Prefix: str, StartAfter: str) -> Iterator[dict[str, Any]]:
            keys = [key for key in sorted(self.objects) if key.startswith(Prefix) and key > StartAfter]
            for begin in range(0, len(keys), 2):
                yield {"Contents": [{"Key": key} for key in keys[begin : begin + 2]]}

        return SimpleNamespace(paginate=paginate)

    def close(self) -> None:
        """Nothing is open."""

    def ids(self) -> list[int]:
        return sorted(json.loads(line)["id"] for body in self.objects.values() for line in body.splitlines())


def sink(bucket: Bucket, incarnation: str = "t/n/s@1", *, is_exact: bool = True, **given: Any) -> S3Sink:
    config = read_config(S3SinkConfig, {"path": "s3://b/p", "accessKeyId": "i", "secretAccessKey": "s", **given})
    one = S3Sink()
    one.check(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_sink, "make_client", lambda config: bucket)
        one.open(config, cast(Any, SimpleNamespace(is_exact=is_exact, incarnation=incarnation)))
    return one


def record(number: int, topic: str = "persistent://public/default/t") -> Record:
    return Record(json.dumps({"id": number}).encode(), topic=topic, message_id=f"1:{number}", sequence=number)


@pytest.mark.parametrize("before", [[(0, 5), (5, 9)], [(0, 9)], [(0, 1), (1, 2), (2, 9)], [(0, 9), (9, 12)]])
@pytest.mark.parametrize("begin", [0, 3, 5, 9])
def test_however_batches_are_cut_no_record_is_there_twice(before: list[tuple[int, int]], begin: int) -> None:
    bucket = Bucket()
    killed = sink(bucket)
    for first, end in before:
        killed.write_batch([record(number) for number in range(first, end)])
    again = sink(bucket)
    for first in range(begin, 20, 4):
        again.write_batch([record(number) for number in range(first, min(first + 4, 20))])
    assert bucket.ids() == list(range(20))


def test_a_sink_that_is_created_again_writes_again() -> None:
    bucket = Bucket()
    for incarnation in ("t/n/s@1", "t/n/s@2"):
        sink(bucket, incarnation).write_batch([record(1), record(2)])
    assert bucket.ids() == [1, 1, 2, 2]


def test_each_json_value_is_one_line() -> None:
    bucket = Bucket()
    values = [b'{\n "a": 1}', b' "\\ud800"', b"7\r", b"null"]
    sink(bucket).write_batch([Record(value, topic="t", sequence=number) for number, value in enumerate(values)])
    (body,) = bucket.objects.values()
    assert body == b'{"a":1}\n "\\ud800"\n7\nnull\n'


def test_topics_have_objects_of_their_own() -> None:
    bucket = Bucket()
    topics = ["persistent://public/default/t", "persistent://public/default/t-partition-0"]
    one = sink(bucket)
    one.write_batch([record(number, topics[number % 2]) for number in range(6)])
    one.write_batch([record(number, topics[number % 2]) for number in range(4, 8)])
    assert bucket.ids() == list(range(8))
    assert {key.rpartition("/")[0] for key in bucket.objects} == {
        "p/public/default/t",
        "p/public/default/t-partition-0",
    }


def test_at_least_once_the_same_records_replace_their_object_and_others_do_not() -> None:
    bucket = Bucket()
    one = sink(bucket, is_exact=False)
    one.write_batch([record(number) for number in range(5)])
    one.write_batch([record(number) for number in range(5)])
    assert bucket.ids() == list(range(5))
    one.write_batch([record(number) for number in (0, 1, 9, 10, 4)])
    assert bucket.ids() == [0, 0, 1, 1, 2, 3, 4, 4, 9, 10]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("json", b"{"), ("json", b"[NaN]"), ("json", b'"\xff"'), ("json", b'"\\ud800"\n'), ("lines", b"a\nb"),
        ("csv", b"[]"), ("csv", rb'{"a":"\ud800"}'), ("parquet", b"7"), ("parquet", b'{"id":"text"}'),
    ],
)  # fmt: skip
def test_a_bad_record_is_refused_before_anything_is_written(kind: str, bad: bytes) -> None:
    bucket = Bucket()
    with pytest.raises(RecordRefused) as refused:
        sink(bucket, format=kind).write_batch([record(0), Record(bad, topic="u", sequence=1), record(2)])
    assert (refused.value.index, refused.value.written) == (1, 0)
    assert not bucket.objects
