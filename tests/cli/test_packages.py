from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import FakeRest, Magnetar

ONE = "/admin/v3/packages/function/public/default/shout/1"
NAME = "function://public/default/shout@1"


def test_packages_are_sent_and_fetched(magnetar: Magnetar, rest: FakeRest, tmp_path: Path) -> None:
    file = tmp_path / "shout.py"
    file.write_text("def process(x): return x\n")
    result = magnetar("packages", "upload", NAME, "--path", str(file), "-d", "louder", "-P", "a=b=c")
    assert (result.code, result.out) == (0, f"The package '{NAME}' uploaded from path '{file}' successfully\n"), (
        result.err
    )
    assert (rest.last.method, rest.last.path) == ("POST", ONE)
    assert json.loads(rest.last.part("metadata").content) == {
        "description": "louder", "contact": None, "properties": {"a": "b=c"},
    }  # fmt: skip
    assert (rest.last.part("file").file_name, rest.last.part("file").content) == ("shout.py", file.read_bytes())
    rest.answer(f"GET {ONE}", b"code")
    target = tmp_path / "copy.py"
    assert magnetar("packages", "download", NAME, "--path", str(target)).code == 0
    assert target.read_bytes() == b"code"


def test_packages_are_listed_described_and_deleted(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer("GET /admin/v3/packages/function/public/default", ["shout"])
    assert magnetar("packages", "list", "--type", "function", "public/default").out == "shout\n"
    assert rest.last.path == "/admin/v3/packages/function/public/default"
    rest.answer("GET /admin/v3/packages/function/public/default/shout", ["1"])
    assert magnetar("packages", "list-versions", "function://public/default/shout").code == 0
    rest.answer(f"GET {ONE}/metadata", {"description": "louder"})
    assert json.loads(magnetar("packages", "get-metadata", NAME).out) == {"description": "louder"}
    assert magnetar("packages", "update-metadata", NAME, "-d", "loudest", "-c", "me").code == 0
    assert rest.last.json == {"description": "loudest", "contact": "me", "properties": {}}
    assert magnetar("packages", "delete", NAME).out == f"The package '{NAME}' deleted successfully\n"
    assert (rest.last.method, rest.last.path) == ("DELETE", ONE)
    assert magnetar("packages", "delete", "function://public/default/shout").code == 0
    assert rest.last.path.endswith("/shout/latest")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (("delete", "shout@1"), "invalid package 'shout@1': expected function://tenant/namespace/name@version"),
        (("list", "--type", "function", "public"), "invalid namespace 'public': expected tenant/namespace"),
        (("update-metadata", NAME, "-d", "x", "-P", "k"), "invalid -P 'k': expected key=value"),
    ],
)
def test_wrong_names_are_refused_here(magnetar: Magnetar, rest: FakeRest, call: tuple[str, ...], reason: str) -> None:
    result = magnetar("packages", *call)
    assert result.code == 1
    assert reason in result.err
    assert rest.requests == []
