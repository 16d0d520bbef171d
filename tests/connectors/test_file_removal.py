"""The source ``file`` removes the files that it has read, whole and confirmed, and no others."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from magnetar.connectors import file_removal, file_text
from magnetar.connectors.file_removal import PRIVATE, delete, identity_of, recover, remove, rename_with

from tests.connectors.file_reading import Reading, files, prepared, put

__all__ = ["files", "prepared"]


def read_all_but_confirm_none(reading: Reading) -> list[Any]:
    """Read everything there is, and return the records."""
    found: list[Any] = []
    while records := reading.source.read():
        found += records
    return found


def confirm(records: list[Any]) -> None:
    for record in records:
        if record.acknowledge is not None:
            record.acknowledge()


def test_files_are_kept_by_default_and_read_once(files: Path) -> None:
    expected = put(files / "1", 10)
    reading = Reading(files, **Reading.created(files))
    assert reading.lines() == expected
    assert reading.lines() == []
    assert (files / "1").exists()


def test_new_file_that_takes_the_name_of_one_just_read_is_read(files: Path, tmp_path: Path) -> None:
    first = put(files / "1", 10, text="old")
    reading = Reading(files, keepFile=False)
    records = read_all_but_confirm_none(reading)
    assert [record.value for record in records] == first
    second = put(tmp_path / "new", 5, text="new")
    (tmp_path / "new").rename(files / "1")
    confirm(records)
    assert reading.lines() == second
    assert list(files.iterdir()) == []


def test_lines_that_are_added_before_the_removal_are_read(files: Path) -> None:
    first = put(files / "1", 10)
    reading = Reading(files, keepFile=False)
    records = read_all_but_confirm_none(reading)
    with open(files / "1", "ab") as file:
        file.write(b"late\n")
    confirm(records)
    assert [record.value for record in records] + reading.lines() == [*first, b"late"]
    assert list(files.iterdir()) == []


@pytest.mark.parametrize("suffix", ["", ".done"])
def test_file_that_changes_its_name_at_the_last_moment_comes_back(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    put(files / "1", 10)
    read = identity_of(os.stat(files / "1"))
    put(tmp_path / "new", 5)
    rename = Path.rename

    def rename_behind_another(path: Path, target: Path) -> Path:
        if path == files / "1":
            rename(tmp_path / "new", path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_behind_another)
    assert remove(files / "1", read, rename_with(suffix) if suffix else delete) is False
    assert [path.name for path in files.iterdir()] == ["1"]
    assert (files / "1").read_text().count("\n") == 5


def test_file_comes_back_under_another_name_if_its_own_is_taken(files: Path) -> None:
    put(files / "1", 1)
    private = files / f"{PRIVATE}1-2-3-1"
    put(private, 2)
    file_removal._put_back(private, files / "1")
    assert sorted(path.name for path in files.iterdir()) == ["1", "1.1"]


@pytest.mark.parametrize("is_the_one", [True, False])
def test_removal_that_a_crash_interrupted_is_finished(
    files: Path, monkeypatch: pytest.MonkeyPatch, is_the_one: bool
) -> None:
    monkeypatch.setattr(file_removal, "_CRASHED_S", -1.0)
    expected = put(files / "1", 10)
    device, inode, stamp = identity_of(os.stat(files / "1"))
    (files / "1").rename(files / f"{PRIVATE}{device}-{inode}-{stamp if is_the_one else stamp + 2}-1")
    assert Reading(files, keepFile=False).lines() == ([] if is_the_one else expected)
    assert list(files.iterdir()) == []


def test_private_name_of_a_living_instance_is_left_alone(files: Path) -> None:
    put(files / f"{PRIVATE}1-2-3-name", 1)
    recover(files / f"{PRIVATE}1-2-3-name", delete)
    assert Reading(files, keepFile=False, ignoreHiddenFiles=False, fileFilter=".*").lines() == []
    assert len(list(files.iterdir())) == 1


def test_file_name_of_the_greatest_length_is_removed(files: Path) -> None:
    put(files / ("n" * 255), 3)
    assert len(Reading(files, keepFile=False).lines()) == 3
    assert list(files.iterdir()) == []


def test_file_that_cannot_be_renamed_keeps_its_name(files: Path) -> None:
    name = "n" * 250
    put(files / name, 3)
    reading = Reading(files, processedFileSuffix=".processed")
    assert len(reading.lines()) == 3
    assert os.listdir(files) == [name]
    assert reading.lines() == []


def test_interrupted_removal_that_fails_gives_the_file_its_name_back(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_removal, "_CRASHED_S", -1.0)
    name = "n" * 150
    put(files / name, 1)
    device, inode, stamp = identity_of(os.stat(files / name))
    private = files / f"{PRIVATE}{device}-{inode}-{stamp}-{name}"
    (files / name).rename(private)
    with pytest.raises(OSError, match="File name too long"):
        recover(private, rename_with("." * 150))
    assert os.listdir(files) == [name]


def test_file_stays_until_every_read_of_it_is_confirmed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last read returns no record, and where confirmations come in any order."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    monkeypatch.setattr(file_text, "READ_BYTES", 100)
    monkeypatch.setattr(file_text, "LINE_BYTES_MAX", 50)
    put(files / "1", 100)
    reading = Reading(files, keepFile=False)
    records = read_all_but_confirm_none(reading)
    confirmable = [record for record in records if record.acknowledge is not None]
    assert len(confirmable) >= 5
    random.Random(seed).shuffle(confirmable)
    for record in confirmable:
        assert (files / "1").exists()
        record.acknowledge()
    assert not (files / "1").exists()


def test_file_with_a_line_that_is_left_out_stays_also_after_a_restart(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "READ_BYTES", 100)
    monkeypatch.setattr("magnetar.connectors.file_text.LINE_BYTES_MAX", 50)
    (files / "1").write_bytes(b"short\n" + b"x" * 500)  # the last read returns nothing
    (files / "2").write_bytes(b"whole\n")
    reading = Reading(files, keepFile=False)
    assert reading.lines() == [b"short", b"whole"]
    position = reading.close()
    assert position["stays"]
    again = Reading(files, position, keepFile=False)
    assert again.lines() == []
    assert [path.name for path in files.iterdir()] == ["1"]


def test_file_with_a_name_that_is_not_utf8_is_read_and_named_with_escapes(files: Path) -> None:
    with open(os.fsencode(files) + b"/caf\xe9", "wb") as file:
        file.write(b"line\n")
    reading = Reading(files, keepFile=False, key="path")
    (record,) = read_all_but_confirm_none(reading)
    assert (record.value, record.key, record.properties["file"]) == (b"line", "caf\\xe9", "caf\\xe9")
    confirm([record])
    assert list(files.iterdir()) == []


def test_source_that_deletes_can_be_updated_to_keep(files: Path) -> None:
    first = put(files / "1", 10)
    second = put(files / "2", 10)
    reading = Reading(files)  # a record from before the option had a default of true
    records = reading.source.read()
    assert [record.value for record in records or ()] == first
    position = reading.close()  # the position knows that 1 was read, and nothing has removed it
    again = Reading(files, position, keepFile=True)
    assert again.lines() == second
    third = put(files / "3", 10)
    assert again.lines() == third
    assert sorted(path.name for path in files.iterdir()) == ["1", "2", "3"]
    assert Reading(files, again.close(), keepFile=True).lines() == []


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_link", [os.symlink, os.link])
@pytest.mark.parametrize("keeps", [True, False])
def test_link_and_target_are_one_file(files: Path, make_link: Any, keeps: bool) -> None:
    expected = put(files / "m", 10)
    for name in ("z", "a"):
        make_link(files / "m", files / name)
    reading = Reading(files, keepFile=keeps)
    records = read_all_but_confirm_none(reading)
    assert [record.value for record in records] == expected
    name = "m" if make_link is os.symlink else "a"
    assert {record.properties["file"] for record in records} == {name}
    confirm(records)
    assert reading.lines() == []
    assert sorted(path.name for path in files.iterdir()) == (["a", "m", "z"] if keeps else [])


def test_link_to_a_file_elsewhere_is_read_and_removed_alone(files: Path, tmp_path: Path) -> None:
    expected = put(tmp_path / "elsewhere", 3)
    os.symlink("../elsewhere", files / "link")
    os.symlink("nowhere", files / "broken")
    assert Reading(files, keepFile=False).lines() == expected
    assert (tmp_path / "elsewhere").exists()
    assert [path.name for path in files.iterdir()] == ["broken"]


def test_maximum_file_age_leaves_out_old_files_alone(files: Path) -> None:
    put(files / "old", 3)
    os.utime(files / "old", (1_000_000, 1_000_000))
    young = put(files / "young", 3)
    assert Reading(files, keepFile=True, maximumFileAge=3_600_000).lines() == young
