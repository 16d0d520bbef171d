"""The source ``file`` by itself: what is read of which files, from which position."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.api.connector import Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors import csv_rows, file_source, file_text
from magnetar.connectors.file_source import KEPT_MAX, FileSource, FileSourceConfig
from magnetar.errors import InvalidConfig

from tests.connectors.file_reading import Reading, add, files, prepared, put

__all__ = ["files", "prepared"]


# -- files that are finished -------------------------------------------------------------------------------------------


def test_plain_and_compressed_files_are_read_and_removed(files: Path) -> None:
    expected = put(files / "1.txt", 100)
    second = b"".join(b"%d\r\n" % number for number in range(100))
    (files / "2.gz").write_bytes(gzip.compress(second))
    with zipfile.ZipFile(files / "3.zip", "w") as archive:
        archive.writestr("a", "a1\na2")
        archive.writestr("b", "b1\n\nb3\n")
    (files / "4.txt").write_bytes(b"no end")
    (files / "sub").mkdir()
    expected_sub = put(files / "sub" / "5", 3)
    expected += [b"%d" % number for number in range(100)] + [b"a1", b"a2", b"b1", b"", b"b3", b"no end"]
    reading = Reading(files)
    assert reading.lines() == expected + expected_sub
    assert [path.name for path in files.rglob("*")] == ["sub"]
    assert reading.position() == {"files": {}}


@pytest.mark.parametrize("kind", ["plain", "gzip", "zip"])
def test_source_goes_on_inside_a_file(files: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(file_text, "READ_BYTES", 1000)
    expected = put(files / "1", 1000)
    content = (files / "1").read_bytes()
    if kind == "gzip":
        (files / "1").write_bytes(gzip.compress(content))
    elif kind == "zip":
        with zipfile.ZipFile(files / "1", "w") as archive:
            archive.writestr("a", content)
    found: list[bytes] = []
    position = None
    for _ in range(2000):
        reading = Reading(files, position)
        records = reading.source.read() or []
        found += [record.value for record in records]
        position = reading.close()
        if not records:
            break
    assert found == expected
    assert not list(files.iterdir())  # removed by the start that found all of it durable


def test_file_is_removed_only_when_its_last_line_is_durable(files: Path) -> None:
    expected = put(files / "1", 10)
    reading = Reading(files, processedFileSuffix=".done")
    assert reading.lines(acknowledges=False) == expected
    assert (files / "1").exists()
    position = reading.close()
    assert Reading(files, position, processedFileSuffix=".done").lines() == []
    assert [path.name for path in files.iterdir()] == ["1.done"]
    assert Reading(files, None, processedFileSuffix=".done").lines() == []


def test_other_file_with_the_inode_of_one_that_was_read_is_read(files: Path) -> None:
    put(files / "1", 100)
    reading = Reading(files, keepFile=True)
    assert len(reading.lines()) == 100
    position = reading.close()
    inode = os.stat(files / "1").st_ino
    with open(files / "1", "r+b") as file:  # the same inode, as after a removal that the source has not seen
        file.truncate()
        file.write(b"another 1\nanother 2\n" * 100)
    assert os.stat(files / "1").st_ino == inode
    assert Reading(files, position, keepFile=True).lines() == [b"another 1", b"another 2"] * 100


def test_position_is_small_however_many_files_are_kept(files: Path) -> None:
    count = 3 * KEPT_MAX + 50
    for number in range(count):
        (files / f"{number:05}").write_bytes(b"%d\n" % number)
    reading = Reading(files, keepFile=True)
    assert sorted(map(int, reading.lines())) == list(range(count))
    position = reading.close()
    assert len(json.dumps(position)) < 150 * KEPT_MAX
    assert position["before"]
    again = Reading(files, position, keepFile=True)
    assert again.lines() == []
    late = put(files / "00000-late", 5)
    assert again.lines() == late
    again.close()
    assert Reading(files, again.position(), keepFile=True).lines() == []


def test_files_that_are_too_young_are_read_later_also_behind_a_time(files: Path) -> None:
    young = put(files / "young", 3)
    for number in range(KEPT_MAX + 500):
        path = files / f"{number:05}"
        path.write_bytes(b"%d\n" % number)
        os.utime(path, (1_000_000, 1_000_000))
    reading = Reading(files, keepFile=True, minimumFileAge=3_600_000)
    assert len(reading.lines()) == KEPT_MAX + 500
    position = reading.close()
    assert Reading(files, position, keepFile=True).lines() == young


def test_damaged_and_unreadable_files_are_left_out_until_they_change(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "READ_BYTES", 1000)
    noise = [os.urandom(20).hex().encode() for _ in range(500)]
    whole = gzip.compress(b"".join(line + b"\n" for line in noise))
    (files / "1.gz").write_bytes(whole[: len(whole) // 2])
    (files / "2.gz").write_bytes(b"\x1f\x8b is none")
    (files / "3.zip").write_bytes(b"PK\x03\x04 is none")
    expected = put(files / "4", 3)
    reading = Reading(files)
    found = reading.lines()
    assert found[-3:] == expected
    assert found[:-3] == noise[: len(found) - 3]
    assert len(found) > 100
    assert reading.lines() == []
    for name in ("1.gz", "2.gz", "3.zip"):
        reason = f"{files / name}: file cannot be read and is skipped until it changes"
        assert [reason in one for one in reading.reasons].count(True) == 1
    (files / "1.gz").write_bytes(whole)
    assert found[:-3] + reading.lines() == noise


def test_lines_that_are_too_long_are_left_out_alone(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_text, "READ_BYTES", 100)
    monkeypatch.setattr(file_source, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(file_text, "LINE_BYTES_MAX", 1000)
    (files / "1").write_bytes(b"a\n" + b"x" * 5000 + b"\nb\n" + b"y" * 3000 + b"\nc\n" + b"z" * 5000)
    reading = Reading(files)
    assert reading.lines() == [b"a", b"b", b"c"]
    assert reading.reasons == [f"{files / '1'}: line is longer than 1000 bytes"] * 3


def test_byte_order_mark_is_not_part_of_the_first_line(files: Path) -> None:
    (files / "1").write_bytes(b"\xef\xbb\xbfa\nb\n")
    assert Reading(files, keepFile=True).lines() == [b"a", b"b"]
    assert Reading(files, keepFile=True, encoding="utf-8").lines() == ["a", "b"]
    assert Reading(files, keepFile=True, encoding="latin-1").lines() == ["ï»¿a", "b"]


@pytest.mark.parametrize("kind", ["lines", "csv"])
def test_file_in_utf16_is_named_and_stays(files: Path, kind: str) -> None:
    (files / "1").write_bytes("a\nb\n".encode("utf-16"))
    (files / "2").write_bytes(b"a\n1\n")
    reading = Reading(files, format=kind, keepFile=False)
    assert reading.lines() == ([b'{"a":"1"}'] if kind == "csv" else [b"a", b"1"])
    (reason,) = reading.reasons
    assert "starts with a UTF-16 or UTF-32 byte order mark: convert the file to UTF-8" in reason
    assert [path.name for path in files.iterdir()] == ["1"]


def test_file_that_is_deleted_while_it_is_read_is_read_to_its_end(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_text, "READ_BYTES", 100)
    expected = put(files / "1", 100)
    reading = Reading(files)
    first = [record.value for record in reading.source.read() or []]
    (files / "1").unlink()
    assert first + reading.lines() == expected


def test_text_of_another_encoding(files: Path) -> None:
    (files / "1").write_bytes("ä\nö\n".encode("latin-1"))
    assert Reading(files, encoding="latin-1").lines() == ["ä", "ö"]
    (files / "1").write_bytes(b"\xe4\nok\n")
    assert Reading(files, encoding="utf-8").lines() == ["�", "ok"]
    (files / "1").write_bytes(b"\xe4\nok\n")
    assert Reading(files).lines() == [b"\xe4", b"ok"]


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"encoding": "utf-16"}, "unsupported encoding 'utf-16': line endings must be one byte"),
        ({"encoding": "nonsense"}, "unknown encoding 'nonsense'"),
        ({"encoding": "zlib"}, "unknown encoding 'zlib'"),
        ({"numWorkers": 2}, "numWorkers must be 1"),
        ({"keepFile": True, "processedFileSuffix": ".x"}, "keepFile and processedFileSuffix are mutually exclusive"),
        ({"tail": True, "processedFileSuffix": ".x"}, "tail and processedFileSuffix are mutually exclusive"),
        ({"fileFilter": "("}, "invalid fileFilter '('"),
        ({"path": ""}, "inputDirectory must not be empty"),
    ],
)
def test_bad_configs_are_refused(files: Path, configs: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Reading(**{"path": files} | configs)
    assert error in str(raised.value)


def test_directory_that_is_missing_is_tried_again(files: Path) -> None:
    with pytest.raises(Retry, match=r"cannot read .*: No such file or directory"):
        Reading(files / "none").lines()


# -- files that grow ---------------------------------------------------------------------------------------------------


def test_growing_file_is_followed_over_a_rename(files: Path) -> None:
    log = files / "app.log"
    expected = add(log, 0, 100)
    reading = Reading(log, tail=True)
    assert reading.lines() == expected
    assert reading.lines() == []
    expected = add(log, 100, 110)
    assert reading.lines() == expected
    expected = add(log, 110, 115)
    log.rename(files / "app.log.1")
    expected += add(files / "app.log.1", 115, 120)  # the writer has it open still
    assert reading.lines() == expected
    expected = add(log, 120, 130)
    assert reading.lines() == expected
    expected = add(files / "app.log.1", 130, 131)
    assert reading.lines() == expected


@pytest.mark.parametrize("is_directory", [False, True])
def test_what_is_left_of_a_renamed_file_is_read_after_a_start(files: Path, is_directory: bool) -> None:
    log = files / "app.log"
    add(log, 0, 100)
    configs: dict[str, Any] = {"tail": True, "fileFilter": r"app\.log"}
    reading = Reading(files if is_directory else log, **configs)
    reading.lines()
    position = reading.close()
    expected = add(log, 100, 110)
    log.rename(files / "app.log.1")
    expected += add(log, 110, 120)
    assert Reading(files if is_directory else log, position, **configs).lines() == expected


def test_unfinished_line_waits_for_its_end(files: Path) -> None:
    log = files / "app.log"
    log.write_bytes(b"a\nb")
    reading = Reading(files, tail=True)
    assert reading.lines() == [b"a"]
    position = reading.position()
    with open(log, "ab") as file:
        file.write(b"c\nd")
    assert reading.lines() == [b"bc"]
    assert Reading(files, position, tail=True).lines() == [b"bc"]


def test_file_that_is_copied_and_cut_is_read_once(files: Path) -> None:
    """As logrotate does it with copytruncate."""
    log = files / "app.log"
    expected = add(log, 0, 1000)
    reading = Reading(files, tail=True)
    assert reading.lines() == expected
    missed = add(log, 1000, 1005)  # not seen before it is cut
    shutil.copy(log, files / "app.log.1")
    os.truncate(log, 0)
    new = add(log, 2000, 2003)
    found = reading.lines()
    assert sorted(found) == sorted(missed + new)
    assert reading.lines() == []
    position = reading.close()
    assert Reading(files, position, tail=True).lines() == []


def test_file_that_was_cut_and_has_grown_beyond_is_read_from_its_beginning(files: Path) -> None:
    log = files / "app.log"
    add(log, 0, 100)
    reading = Reading(files, tail=True)
    reading.lines()
    position = reading.position()
    os.truncate(log, 0)
    expected = add(log, 5000, 5200)
    assert reading.lines() == expected
    reading.close()
    assert Reading(files, position, tail=True).lines() == expected


@pytest.mark.parametrize("while_stopped", [False, True])
def test_compressed_copy_of_a_file_that_was_read_is_not_read_again(files: Path, while_stopped: bool) -> None:
    log = files / "app.log"
    add(log, 0, 1000)
    reading = Reading(files, tail=True)
    assert len(reading.lines()) == 1000
    position = reading.close()
    expected = add(log, 1000, 1010) if while_stopped else []
    if not while_stopped:
        reading = Reading(files, position, tail=True)
        assert reading.lines() == []
    (files / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    if while_stopped:
        reading = Reading(files, position, tail=True)
    assert reading.lines() == expected
    new = add(log, 2000, 2050)
    assert reading.lines() == new
    assert Reading(files, reading.close(), tail=True).lines() == []


def test_files_that_begin_alike_are_other_files(files: Path) -> None:
    for name in ("a", "b"):
        (files / name).write_bytes(b"time,host,value\n")
    reading = Reading(files, tail=True)
    assert reading.lines() == [b"time,host,value"] * 2
    (files / "c").write_bytes(b"time,host,value\n1,2,3\n")
    assert reading.lines() == [b"time,host,value", b"1,2,3"]


def test_many_files_that_grow_are_followed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "FOLLOWED_MAX", 10)
    for number in range(30):
        add(files / f"{number}.log", number * 100, number * 100 + 10)
    reading = Reading(files, tail=True)
    assert len(reading.lines()) == 300
    assert len(reading.source._followed) == 10
    expected = sorted(
        line for number in range(30) for line in add(files / f"{number}.log", number * 100 + 10, number * 100 + 12)
    )
    assert sorted(reading.lines()) == expected


def test_tail_is_for_one_instance(files: Path) -> None:
    source = FileSource()
    context: Any = SimpleNamespace(position=None, instance_id=0, parallelism=2, logger=logging.getLogger("files"))
    with pytest.raises(InvalidConfig, match="tail supports only one instance"):
        source.open(read_config(FileSourceConfig, {"path": str(files), "tail": True}), context)


@pytest.mark.parametrize("while_stopped", [True, False])
@pytest.mark.parametrize("count", [1, 5])
def test_short_log_that_is_copied_and_truncated_is_read_once(files: Path, count: int, while_stopped: bool) -> None:
    log = files / "app.log"
    expected = add(log, 0, count)
    reading = Reading(files, tail=True)
    found = reading.lines()
    position = reading.close() if while_stopped else None
    more = add(log, count, count + 2)  # not read before the copy
    shutil.copy(log, files / "app.log.1")
    os.truncate(log, 0)
    fresh = add(log, 100, 102)
    if while_stopped:
        reading = Reading(files, position, tail=True)
    found += reading.lines()
    assert sorted(found) == sorted(expected + more + fresh)
    assert Reading(files, reading.close(), tail=True).lines() == []


def test_short_copy_that_is_seen_before_the_truncation_is_read_once(files: Path) -> None:
    log = files / "app.log"
    expected = add(log, 0, 3)
    reading = Reading(files, tail=True)
    assert reading.lines() == expected
    shutil.copy(log, files / "app.log.1")
    assert reading.lines() == []
    os.truncate(log, 0)
    assert reading.lines() == []
    more = add(log, 3, 4)
    assert reading.lines() == more
    assert Reading(files, reading.close(), tail=True).lines() == []


@pytest.mark.parametrize("while_stopped", [True, False])
def test_short_log_that_is_renamed_and_compressed_is_read_once(files: Path, while_stopped: bool) -> None:
    log = files / "app.log"
    expected = add(log, 0, 3)
    reading = Reading(files, tail=True)
    assert reading.lines() == expected
    position = reading.close() if while_stopped else None
    log.rename(files / "app.log.1")
    fresh = add(log, 10, 12)
    (files / "app.log.1.gz").write_bytes(gzip.compress((files / "app.log.1").read_bytes()))
    (files / "app.log.1").unlink()
    if while_stopped:
        reading = Reading(files, position, tail=True)
    assert reading.lines() == fresh
    assert Reading(files, reading.close(), tail=True).lines() == []


def test_short_log_that_begins_like_another_loses_nothing(files: Path) -> None:
    """The same first line is no proof of a copy: not after a truncation, and not in an older compressed log."""
    log = files / "app.log"
    log.write_bytes(b"started\n")
    (files / "app.log.9.gz").write_bytes(gzip.compress(b"started\nan older line\n"))
    reading = Reading(files, tail=True)
    assert sorted(reading.lines()) == [b"an older line", b"started", b"started"]
    os.truncate(log, 0)
    assert reading.lines() == []
    log.write_bytes(b"started\nagain\n")
    assert reading.lines() == [b"started", b"again"]
    os.utime(log, (4e9, 4e9))
    (files / "other.log").write_bytes(b"started\nother\n")
    os.utime(files / "other.log", (4e9, 4e9))  # written after the truncation
    assert reading.lines() == [b"started", b"other"]


# -- CSV ---------------------------------------------------------------------------------------------------------------


def rows_of(reading: Reading) -> list[Any]:
    return [json.loads(value) for value in reading.lines()]


def test_csv_has_an_object_for_each_row(files: Path) -> None:
    (files / "1").write_bytes('\ufeffa,ü,a\r\n1,"x\ny",2\r\n\r\n3\r\n4,5,6,7'.encode())
    (files / "2.gz").write_bytes(gzip.compress(b"a\n1\n"))
    assert rows_of(Reading(files, format="csv", keepFile=True)) == [
        {"a": "1", "ü": "x\ny", "a_2": "2"}, {"a": "3", "ü": None, "a_2": None},
        {"a": "4", "ü": "5", "a_2": "6", "more": ["7"]}, {"a": "1"},
    ]  # fmt: skip


def test_csv_options_are_those_of_s3(files: Path) -> None:
    (files / "1").write_bytes(b"1;2\n3;4;5\n")
    assert rows_of(Reading(files, format="csv", csvDelimiter=";", csvHeader=False)) == [
        {"column1": "1", "column2": "2"}, {"column1": "3", "column2": "4", "column3": "5"},
    ]  # fmt: skip
    with pytest.raises(InvalidConfig, match=r"invalid csvDelimiter '::'"):
        Reading(files, csvDelimiter="::")
    with pytest.raises(InvalidConfig, match="tail requires format lines"):
        Reading(files, format="csv", tail=True)


def test_csv_row_that_cannot_be_read_costs_that_row_and_the_file_stays(files: Path) -> None:
    (files / "1").write_bytes(b'a,b\n1,2\ncaf\xe9,3\n4,"no end\n5,6\n')
    reading = Reading(files, format="csv", keepFile=False)
    assert rows_of(reading) == [{"a": "1", "b": "2"}, {"a": "5", "b": "6"}]
    assert [(letter.value, letter.properties["file"]) for letter in reading.letters] == [
        (b"caf\xe9,3", "1"), (b'4,"no end', "1"),
    ]  # fmt: skip
    assert reading.reasons == [
        f"{files / '1'}: invalid row at line 3: not valid UTF-8",
        f"{files / '1'}: invalid row at line 4: unclosed quote",
    ]
    assert (files / "1").exists()
    (files / "2").write_bytes(b"a\ncaf\xe9\n")
    assert rows_of(Reading(files / "2", format="csv", keepFile=True, encoding="latin-1")) == [{"a": "café"}]


def test_csv_with_a_quote_without_its_end_in_each_line_is_read_in_linear_time(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = 0

    def counted(lines: Iterable[str], **options: Any) -> Iterator[list[str]]:
        def counting() -> Iterator[str]:
            nonlocal parsed
            for line in lines:
                parsed += 1
                yield line

        return csv.reader(counting(), **options)

    monkeypatch.setattr(csv_rows, "_CREDIT_MAX", 100_000)
    monkeypatch.setattr(csv_rows, "csv", SimpleNamespace(**vars(csv) | {"reader": counted}))
    count = 5_000
    (files / "1").write_text("a,b\n" + 'x","\n' * count + "".join(f"{one},2\n" for one in range(count)))
    rows = rows_of(Reading(files, format="csv", keepFile=True))
    assert [row["a"] for row in rows] == list(map(str, range(count)))
    assert parsed < 6 * count


def test_csv_columns_with_the_same_name_are_numbered(files: Path) -> None:
    count = 100_000
    (files / "1").write_text("a_3" + ",a" * count + ",\n" + "1," * (count + 1) + "2\n")
    (row,) = rows_of(Reading(files, format="csv", keepFile=True))
    names = ["a_3", "a", "a_2", *(f"a_{number}" for number in range(4, count + 2)), f"column{count + 2}"]
    assert list(row) == names
    assert row[names[-1]] == "2"


def test_csv_row_of_many_lines_that_come_one_by_one_is_complete() -> None:
    reader = csv_rows.CsvReader(csv_rows.CsvOptions(csv_header=False))
    read: list[Any] = []
    for line in [b'"begin', *[b"more"] * 1000, b'end",x', b"1,2", b"3,4"]:
        read += reader.read([line], is_last=False)
    read += reader.read([], is_last=True)
    assert [json.loads(row)["column2"] for row in read] == ["x", "2", "4"]
    assert reader.is_between_rows


def test_csv_rows_of_many_absent_cells_come_in_batches(files: Path) -> None:
    (files / "1").write_bytes(",".join(f"c{number}" for number in range(2000)).encode() + b"\n" + b"1\n" * 5000)
    reading = Reading(files, format="csv", keepFile=False)
    first = reading.source.read() or []
    assert 0 < sum(len(record.value) for record in first) < 2 * file_source.ROWS_BYTES_AT_ONCE
    assert not reading.position()["files"]  # rows of the lines read are still to come
    assert len(first) + len(reading.lines()) == 5000
    for record in first:
        if record.acknowledge is not None:
            record.acknowledge()
    assert not list(files.iterdir())


def test_csv_goes_on_inside_a_file(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_text, "READ_BYTES", 100)
    expected = [{"n": str(number), "text": f"first\nsecond {number}"} for number in range(200)]
    lines = [f'{row["n"]},"{row["text"]}"\n' for row in expected]
    (files / "1").write_text("n,text\n" + "".join(lines))
    found: list[Any] = []
    position: Any = None
    for _ in range(100):
        reading = Reading(files, position, format="csv", keepFile=True)
        for _ in range(3):
            found += [json.loads(record.value) for record in reading.source.read() or ()]
        position = reading.close()
    once = {row["n"]: row for row in found}
    assert list(once.values()) == expected  # a row that was read in part is read again, and perhaps its neighbours
