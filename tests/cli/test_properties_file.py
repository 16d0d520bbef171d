"""`key=value` files are read as Java reads its properties."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.cli.properties_file import read_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
KEY = TEXT.filter(bool)
SEPARATORS = st.sampled_from(("=", ":", " ", " = ", "\t:\f", "  "))
NOTHING = st.sampled_from(("", "# a=b\n", "  ! c: d\\\n", "\n", " \t\n", "\r\n"))


def escaped(text: str) -> str:
    """A text in which nothing is taken for a separator, a comment, a blank at an end, or a line break."""
    out = []
    for character in text:
        if character in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        elif character in "\\=:#! " or character in "\x0b\x85\u2028":
            out.append("\\" + character)
        elif ord(character) > 0xFFFF or character.isalnum():
            out.append(character)
        else:
            out.append(f"\\u{ord(character):04x}")
    return "".join(out)


@given(st.lists(st.tuples(NOTHING, KEY, SEPARATORS, TEXT, st.sampled_from(("\n", "\r\n", "\r")))))
def test_what_is_written_is_read(lines: list[tuple[str, str, str, str, str]]) -> None:
    text = "".join(f"{before}{escaped(key)}{by}{escaped(value)}{end}" for before, key, by, value, end in lines)
    assert read_properties(text) == {key: value.strip() for _, key, _, value, _ in lines}


@given(KEY, TEXT, st.integers(0, 60), st.sampled_from(("\\\n", "\\\r\n   ", "\\\n\t")))
def test_a_value_may_go_on_in_the_next_line(key: str, value: str, at: int, fold: str) -> None:
    line = "".join(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else one for one in value)
    at = min(at, len(line)) // 6 * 6 if all(ord(one) < 0x10000 for one in value) else 0
    assert read_properties(f"{escaped(key)}={line[:at]}{fold}{line[at:]}\n") == {key: value.strip()}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_properties(text)
    except ValueError:
        assert re.search(r"\\u(?![0-9A-Fa-f]{4})", text)  # the one thing that Java refuses
    else:
        assert all(isinstance(one, str) for pair in found.items() for one in pair)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\na=2\n", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=\nb = 2 \n", {"a": "", "b": "2"}),
        ("a==b", {"a": "=b"}),
        ("url=zk:h:2181/x", {"url": "zk:h:2181/x"}),
        ("a=b \\\\\nc=d", {"a": "b \\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=x,\\\n  y", {"a": "x,y"}),
        ("# c\\\na=1", {"a": "1"}),
        ("\\#a=1", {"#a": "1"}),
        ("a=\\u00e9\\q", {"a": "éq"}),
    ],
)
def test_lines_mean_what_they_mean_in_java(text: str, found: dict[str, str]) -> None:
    assert read_properties(text) == found
