"""Directories of other users, which root removes, copies and hands over without following what lies in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from magnetar.instance.system_user import SystemUser, clean_environment
from magnetar.instance.trees import Removal, copy_regular, hand_over, make_passage, remove_tree

from tests.support.waiting import wait_for

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
USER = SystemUser("x", 12345, 12345)


def test_links_and_pipes_are_left_out_of_a_copy(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "file").write_text("content")
    (source / "below" / "tool").write_text("tool")
    (source / "below" / "tool").chmod(0o4755)
    (source / "link").symlink_to("/etc/passwd")
    (source / "directory").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    copy_regular(source, tmp_path / "copy")
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert found == {"file", "below", "below/tool"}
    assert (tmp_path / "copy/file").read_text() == "content"
    assert (tmp_path / "copy/below/tool").stat().st_mode & 0o7777 == 0o755


def test_link_in_place_of_a_directory_is_removed_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "file").exists()
    remove_tree(tmp_path / "nothing")


@root_only
@pytest.mark.slow
def test_directory_of_another_user_is_removed_with_what_is_closed_in_it(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "closed" / "below").mkdir(parents=True)
    for path in (top, top / "closed", top / "closed" / "below"):
        os.chown(path, *USER[1:])
    (top / "closed").chmod(0)
    remove_tree(top)
    assert not top.exists()


def test_what_is_discarded_is_gone_at_once_and_its_space_later(tmp_path: Path) -> None:
    removal = Removal(tmp_path / "trash")
    (tmp_path / "top" / "below").mkdir(parents=True)
    removal.discard(tmp_path / "top")
    assert not (tmp_path / "top").exists()
    wait_for(lambda: not list((tmp_path / "trash").iterdir()), "empty trash", 10)
    removal.discard(tmp_path / "nothing")


@root_only
def test_logs_are_handed_over_without_what_are_no_logs(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "f-0.log").write_text("said\n")
    (directory / "f-1.log").symlink_to("/etc/shadow")
    (tmp_path / "other").write_text("other")
    (directory / "f-2.log").hardlink_to(tmp_path / "other")
    discarded: list[Path] = []
    hand_over(directory, USER, discarded.append)
    assert [path.name for path in directory.iterdir()] == ["f-0.log"]
    assert (directory / "f-0.log").read_text() == "said\n"
    assert {path.stat().st_uid for path in (directory, directory / "f-0.log")} == {USER.uid}
    assert (tmp_path / "other").stat().st_uid == 0
    assert [(path / "f-0.log").exists() for path in discarded] == [True]
    hand_over(directory, USER, discarded.append)
    assert len(discarded) == 1, "it is that user's already"


def test_way_is_made_for_all_and_shows_nothing(tmp_path: Path) -> None:
    make_passage(tmp_path / "a" / "b", tmp_path)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o711] * 2


def test_environment_for_everybody_has_no_names_but_known_ones() -> None:
    given = {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/x", "TOKEN": "t", "PULSAR_AUTH": "p", "LD_PRELOAD": "y"}
    assert clean_environment(given) == {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/x"}
