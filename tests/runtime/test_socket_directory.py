"""Directories for sockets: short paths, and nothing left behind by lives that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from magnetar.runtime.socket_directory import NOTE_SUFFIX, SHORT_PREFIX, SocketDirectory, has_room_for_sockets

KILLED = """
import os, signal, sys
from pathlib import Path
from magnetar.runtime.socket_directory import SocketDirectory
print(SocketDirectory(Path(sys.argv[1])).path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    """A path that is too long."""
    return tmp_path / ("d" * 120) / "run" / "w"


def test_short_path_is_taken_as_it_is_and_stays() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        wanted = Path(short, "run", "w")
        it = SocketDirectory(wanted)
        assert it.path == wanted
        it.close()
        assert list(Path(short, "run").iterdir()) == [wanted]


def test_what_a_killed_life_left_is_removed_by_the_next(wanted: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(wanted)], capture_output=True, text=True, timeout=60)
    left = Path(ran.stdout.strip())
    assert left.is_dir(), ran.stderr
    (left / "0123456789ab.sock").touch()
    it = SocketDirectory(wanted)
    assert not left.exists()
    assert it.path.is_dir()
    assert has_room_for_sockets(it.path)
    it.close()
    assert not it.path.exists()


def test_what_another_life_still_uses_is_left_alone(wanted: Path) -> None:
    first = SocketDirectory(wanted)
    (first.path / "0123456789ab.sock").touch()
    second = SocketDirectory(wanted)
    assert second.path != first.path
    assert (first.path / "0123456789ab.sock").exists()
    first.close()
    assert second.path.is_dir()
    second.close()
    assert not first.path.exists()
    assert not second.path.exists()


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff", b"magnetar-gone", b"nowhere"])
def test_note_that_names_nothing_of_ours_removes_nothing(wanted: Path, content: bytes) -> None:
    wanted.parent.mkdir(parents=True)
    note = wanted.with_name(wanted.name + NOTE_SUFFIX)
    note.write_bytes(content)
    it = SocketDirectory(wanted)
    assert os.fsdecode(note.read_bytes()) == str(it.path)
    it.close()


def test_note_that_names_a_strange_directory_or_a_link_removes_neither(wanted: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    link = tmp_path / f"{SHORT_PREFIX}link"
    link.symlink_to(precious)
    wanted.parent.mkdir(parents=True)
    for named in (precious, link):
        wanted.with_name(wanted.name + NOTE_SUFFIX).write_bytes(os.fsencode(named))
        SocketDirectory(wanted).close()
        assert precious.is_dir()
        assert list(precious.iterdir()) == []
        assert link.is_symlink()
