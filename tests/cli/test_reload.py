"""`--reload`: which files are watched, whatever else is in their directory and happens to it meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.reload import stamp


def test_python_files_of_a_directory_are_watched_and_not_those_of_environments(tmp_path: Path) -> None:
    wanted = [tmp_path / "a.py", tmp_path / "deep" / "er" / "b.py"]
    environment = tmp_path / "env"
    others = [tmp_path / ".git" / "hook.py", environment / "lib" / "c.py", tmp_path / "d.txt"]
    for file in (*wanted, *others):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (environment / "pyvenv.cfg").write_text("")
    assert set(stamp([tmp_path])) == set(wanted)


def test_a_directory_that_is_removed_while_it_is_looked_at_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.py").write_text("")
    scan = os.scandir

    def scandir(path: Any) -> Iterator[Any]:
        if Path(path).name == "gone":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert set(stamp([tmp_path])) == {tmp_path / "here" / "m.py"}


def test_a_circle_of_links_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("")
    (tmp_path / "again").symlink_to(tmp_path)
    assert set(stamp([tmp_path])) == {tmp_path / "m.py"}
