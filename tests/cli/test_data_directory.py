"""Rights of a data directory: its server's alone, also where an earlier version left it open to others."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from magnetar.cli.main import main
from magnetar.cli.servers.data_directory import DataDirectory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def opened(path: Path, *, is_passage: bool = False) -> DataDirectory:
    directory = DataDirectory.open(path, is_passage=is_passage)
    directory.close()
    return directory


def test_new_data_directory_is_closed_to_others(tmp_path: Path) -> None:
    path = opened(tmp_path / "above" / "data").path
    assert mode(path) == 0o700
    assert mode(path / "lock") == 0o600


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o750), (0o777, 0o770), (0o750, 0o750), (0o700, 0o700)])
def test_older_data_directory_loses_the_rights_of_others(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(before)
    assert mode(opened(path).path) == after


def test_way_to_what_is_of_others_shows_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "above" / "data"
    mask = os.umask(0o077)
    try:
        opened(path, is_passage=True)
    finally:
        os.umask(mask)
    assert mode(path.parent) == 0o755
    assert mode(path) == 0o711
    (path / "metadata.sqlite").touch(0o644)
    (path / "storage").mkdir(0o755)
    (path / "worker").mkdir(0o755)
    (path / "link").symlink_to(tmp_path)
    directory = DataDirectory.open(path, is_passage=True)
    directory.close_all_but("worker")
    directory.close()
    assert [mode(path / name) for name in ("metadata.sqlite", "storage", "worker")] == [0o600, 0o700, 0o755]
    assert mode(tmp_path) == 0o700, "a link is not followed"


def test_directory_that_others_came_through_is_closed_again_without_isolation(tmp_path: Path) -> None:
    opened(tmp_path / "data", is_passage=True)
    assert mode(opened(tmp_path / "data").path) == 0o710


def test_a_second_start_is_told_of_the_directory_and_not_of_the_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        directory = DataDirectory.open(path)
        try:
            for command in (["standalone", "--worker-port", port], ["broker", "--web-port", port]):
                assert main([*command, "--data-dir", str(path)]) == 1
                assert capsys.readouterr().err == (
                    f"magnetar: data directory {path} is in use by process {os.getpid()}: stop it or use"
                    " another --data-dir\n"
                )
        finally:
            directory.close()
