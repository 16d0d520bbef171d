"""What `magnetar produce` takes for one message."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.cli.failure import Failure
from magnetar.cli.main import main
from magnetar.cli.messages.produce import read_payloads


@pytest.mark.parametrize("text", ['{"a":1,"b":2}', "a,b", "1;2|3\t4\n5", "", ",", "Grüße, Welt"])
def test_a_message_is_sent_whole_without_a_separator(text: str) -> None:
    for separator in (None, ""):
        assert read_payloads((text,), (), separator) == [text.encode()]


@pytest.mark.parametrize(
    ("separator", "texts", "payloads"),
    [
        (",", ("a,b", "c"), [b"a", b"b", b"c"]),
        (";", ("a,b;c",), [b"a,b", b"c"]),
        (r"\s*\|\s*", ("a | b|c",), [b"a", b"b", b"c"]),
    ],
)
def test_a_given_separator_splits_each_message(separator: str, texts: tuple[str, ...], payloads: list[bytes]) -> None:
    assert read_payloads(texts, (), separator) == payloads


def test_a_file_is_one_message_whatever_the_separator(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\nc,d\n")
    assert read_payloads(("x,y",), (str(file),), ",") == [b"x", b"y", b"a,b\nc,d\n"]


def test_an_invalid_separator_is_refused() -> None:
    with pytest.raises(Failure, match=r"invalid regular expression --separator '\(': "):
        read_payloads(("a",), (), "(")


def test_the_command_refuses_an_invalid_separator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "t", "-m", "a", "-s", "("]) == 1
    assert capsys.readouterr().err.startswith("magnetar: invalid regular expression --separator '(': ")
