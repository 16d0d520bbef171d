"""The demo on a few files: what it prints, that it cleans up, and what it says when a step fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from magnetar.cli.demo.corpus import Corpus, standard_library
from magnetar.cli.demo.demo_functions import names_on

from tests.support.command import call
from tests.support.servers import COMMAND, descendants, is_alive, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FILES = 12


def test_demo_counts_exactly_and_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    answer = call("demo", "--directory", str(directory), "--no-spark", "--files", str(FILES)).ok()
    corpus = Corpus(standard_library(), FILES)
    word, number = corpus.count_directly().most_common(1)[0]
    assert re.search(rf"^ +1  {word} +{number:,}$", answer.out, re.MULTILINE), answer.out
    assert f"{sum(len(file.lines) for file in corpus):,} lines went through both functions" in answer.out
    assert "gives exactly the same" in answer.out
    assert re.search(r"messages/s +backlog 0 \+ 0", answer.err), answer.err
    assert re.search(
        r"The file sink keep-identifiers stored [1-9][\d,]* rows of identifiers, as (json|parquet)", answer.out
    )
    assert not directory.exists()


def test_demo_that_is_kept_goes_on_and_can_be_talked_to(tmp_path: Path) -> None:
    answer = call("demo", "--directory", str(tmp_path), "--no-spark", "--files", "2", "--keep").ok()
    addresses = json.loads((tmp_path / "ready.json").read_text())
    pid = int(addresses["pid"])
    demo = psutil.Process(pid)
    try:
        assert f"kill {pid}" in answer.out
        url = re.search(r"MAGNETAR_ADMIN_URL=(\S+)", answer.out)
        assert url is not None
        assert call("functions", "list", admin_url=url[1]).ok().out == "count\nidentifiers\n"
        call("demo", "--directory", str(tmp_path), "--no-spark", "--files", "2").refused(
            "another demo is running", str(pid)
        )
        assert is_alive(demo), "the refused demo ended the running one"
    finally:
        os.kill(pid, signal.SIGTERM)
        assert survivors([demo], 60) == []


def test_demo_that_is_killed_takes_its_servers_along(tmp_path: Path) -> None:
    command = [*COMMAND, "demo", "--directory", str(tmp_path / "demo"), "--no-spark"]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for((tmp_path / "demo" / "ready.json").exists, "the servers", 60)
        family = descendants(demo.pid)
        assert len(family) >= 3  # the broker, with state store and worker below it
    finally:
        demo.kill()
        demo.wait()
    assert survivors(family, 30) == []


def test_demo_that_cannot_start_says_which_step_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    call("demo", "--directory", str(tmp_path / "file" / "demo")).refused(
        "starting `magnetar standalone` failed", "file"
    )


def test_file_with_several_names_is_counted_once(tmp_path: Path) -> None:
    """Debian's standard library has a symbolic link beside its target; the file source reads both as one file."""
    (tmp_path / "real.py").write_text("one\ntwo\n")
    (tmp_path / "a_link.py").symlink_to("real.py")
    (tmp_path / "hard.py").hardlink_to(tmp_path / "real.py")
    (tmp_path / "nowhere.py").symlink_to("missing.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "folder.py" / "other.py").write_text("two\n")
    (tmp_path / "folder.py" / "link.py").symlink_to(tmp_path / "folder.py" / "other.py")
    corpus = Corpus(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in corpus.paths] == ["folder.py/other.py", "hard.py"]
    assert corpus.count_lines() == 3
    assert corpus.count_directly() == {"one": 1, "two": 2}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("for x in range(10): print(x, a_1)  # été", "x range print x a_1"),
        ('été = rb\'no\' + f"no {x}" + u\'\' + """no""" + yes', "été yes"),
        ("    pass", ""),
        ("say('it\\'s \" no', yes)", "say yes"),
        ("buf['no'] = orb", "buf orb"),
        ("", ""),
    ],
)
def test_names_are_found_outside_strings_and_comments(line: str, names: str) -> None:
    assert names_on(line, "") == (names.split(), "")


def test_string_of_several_lines_is_skipped() -> None:
    assert names_on('def f(): """It is', "") == (["f"], '"""')
    assert names_on("all in the text, ''' too", '"""') == ([], '"""')
    assert names_on("end\"\"\", after, r'''again", '"""') == (["after"], "'''")
