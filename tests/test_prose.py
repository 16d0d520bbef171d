"""Tests of `tests/support/prose.py`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.prose import ALLOWED, Finding, in_text, lowered, main, problems


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nobody is told.", ["Nobody", "told"]),
        ("x is no JSON, y Is None or is none", ["is no", "is none"]),
        ("if x is None: return  # is not there", []),
        ("untold anewer nobodys is nothing is nonempty", []),
        ("WHOEVER opens it anew", ["WHOEVER", "anew"]),
    ],
)
def test_words_are_found_regardless_of_case_except_is_none(text: str, words: list[str]) -> None:
    assert [one.word for one in in_text("a.py", text)] == words


def test_findings_name_file_and_line() -> None:
    assert [str(one) for one in in_text("broker/a.py", "a\nnobody\n")] == ["broker/a.py:2: 'nobody'"]


FOUND = [Finding("README.md", 1, "told"), Finding("broker/a.py", 2, "anew"), Finding("broker/b/c.py", 3, "told")]


def test_counts_equal_to_the_allowed_ones_pass() -> None:
    assert problems(FOUND, {".": 1, "broker": 2}) == []


def test_count_above_the_allowed_one_names_each_place() -> None:
    [said] = problems(FOUND, {".": 1, "broker": 1})
    assert said.startswith("broker: 2 words that read like a translation, 1 allowed")
    assert said.splitlines()[1:] == ["  broker/a.py:2: 'anew'", "  broker/b/c.py:3: 'told'"]


def test_count_above_the_allowed_one_names_only_changed_lines_if_these_have_the_words() -> None:
    [said] = problems(FOUND, {".": 1, "broker": 1}, {("broker/b/c.py", 3), ("broker/a.py", 1)})
    assert said.splitlines()[1:] == ["  broker/b/c.py:3: 'told'"]


def test_folder_without_an_allowed_count_may_have_none() -> None:
    [said] = problems(FOUND, {"broker": 2})
    assert said.startswith(".: 1 words that read like a translation, 0 allowed")


def test_count_below_the_allowed_one_says_how_to_lower_it() -> None:
    assert problems(FOUND, {".": 3, "broker": 2}) == [
        ".: 1 words, 3 allowed: run python -m tests.support.prose --update"
    ]


def test_allowed_counts_never_rise() -> None:
    assert lowered(FOUND, {".": 5, "broker": 1, "client": 2}) == {".": 1, "broker": 1}


def test_whole_check_of_a_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    for name, text in {
        "a.md": "nobody\n",
        "broker/b.py": "# told\n",
        "tests/c.py": "# told\n",
        "d.bin": "\udcff told",
        ALLOWED.as_posix(): json.dumps({".": 2, "broker": 1}),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    assert main([], tmp_path) == 1
    assert main(["--update"], tmp_path) == 0
    assert main([], tmp_path) == 0
    assert json.loads((tmp_path / ALLOWED).read_text()) == {".": 1, "broker": 1}
    (tmp_path / "broker" / "b.py").write_text("# told\n# anew\n")
    capsys.readouterr()
    assert main(["--update"], tmp_path) == 1
    assert capsys.readouterr().err.splitlines()[1:] == ["  broker/b.py:2: 'anew'"]
