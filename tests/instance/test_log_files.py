"""Files of logs whose directory belongs to somebody else: what is no log is neither read nor written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from magnetar.instance.logs.file import InstanceLog, LogFollower, NotALog, open_log, tail


@pytest.fixture(params=["symlink", "hard link", "fifo", "directory"])
def no_log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    secret, log = tmp_path / "secret", tmp_path / "logs" / "f-0.log"
    log.parent.mkdir()
    secret.write_text("secret\n")
    if request.param == "symlink":
        log.symlink_to(secret)
    elif request.param == "hard link":
        log.hardlink_to(secret)
    elif request.param == "fifo":
        os.mkfifo(log)
    else:
        log.mkdir()
    return log


def test_what_is_no_log_is_not_read(no_log: Path) -> None:
    assert tail(no_log, 10).startswith(f"ERROR {no_log} is not a regular file")
    follower = LogFollower(no_log.with_name("f-1.log"))
    no_log.rename(no_log.with_name("f-1.log"))
    assert follower.read() == ""


def test_what_is_no_log_is_not_written_to(no_log: Path) -> None:
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        InstanceLog(no_log)
    assert no_log.parent.with_name("secret").read_text() == "secret\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
def test_file_of_a_third_user_is_no_log(tmp_path: Path) -> None:
    log = tmp_path / "f-0.log"
    log.write_text("of another\n")
    os.chown(log, 12345, 12345)
    with pytest.raises(NotALog, match="belongs neither to its directory's owner nor to this process's user"):
        open_log(log, os.O_RDONLY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
def test_log_that_root_makes_is_its_directorys_owners(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    log = InstanceLog(tmp_path / "f-0.log")
    log.write("INFO", "said")
    log.close()
    assert log.path.stat().st_uid == 12345
    assert "said" in tail(log.path, 1)
