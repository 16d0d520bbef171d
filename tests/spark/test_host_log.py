"""The log of Spark's JVM stays bounded, whatever is printed into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.instance.logs.file import FILE_BYTES_MAX, rotated
from magnetar.runtime.spark.host import SharedSession
from magnetar.runtime.spark.host_config import config_from_text, config_to_text
from magnetar.spark.session import SessionConfig


def test_a_log_that_is_too_large_is_moved_aside_while_it_is_written_to(tmp_path: Path) -> None:
    log_file = tmp_path / "spark.log"
    session = SharedSession(SessionConfig(directory=tmp_path, log_file=log_file), pytest.fail)
    session.check_log()  # not there yet
    with log_file.open("ab", buffering=0) as written:  # as the JVM does
        written.write(b"x" * FILE_BYTES_MAX)
        session.check_log()
        assert not rotated(log_file).exists()
        written.write(b"y")
        session.check_log()
        assert rotated(log_file).stat().st_size == FILE_BYTES_MAX + 1
        written.write(b"z")
    assert log_file.read_bytes() == b"z"


def test_settings_of_a_session_survive_the_way_to_the_host(tmp_path: Path) -> None:
    config = SessionConfig(
        directory=tmp_path, master="local[3]", heap="2g", settings={"spark.a": "b"}, log_file=tmp_path / "log"
    )
    assert config_from_text(config_to_text(config)) == config
    assert config_from_text(config_to_text(SessionConfig(directory=tmp_path))).log_file is None
