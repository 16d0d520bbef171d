"""Patterns match as Java's do, or are refused by name; no pattern takes long."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import InvalidPattern, PatternNotSupported
from magnetar.wire.topic_pattern import compile_pattern

HOSTILE = (
    "public/default/.*.*.*.*.*.*.*.*.*.*.*.*!", "(((a+)+)+)+!", "(.*)*(.*)*(.*)*!", "(x+x+)+y", "(a|a?)+!",
    "(.?){1000}", "((.{1,30}){1,30})!", r"(\p{L}{100}){10}.*", "(a{1000}){2}", ".*[ab].{40}!", "(?i)" + r"\p{L}" * 9,
)  # fmt: skip
NAMES = tuple(f"public/default/{'a' * 300}{number}" for number in range(1000))
CPU_S = 2.0


@pytest.mark.parametrize("text", HOSTILE)
def test_no_pattern_takes_long(text: str) -> None:
    before = time.thread_time()
    with contextlib.suppress(PatternNotSupported):
        matches = compile_pattern(text)
        for name in NAMES:
            matches(name)
    assert time.thread_time() - before < CPU_S


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("public/default/(?!x).*", "lookahead"),
        ("public/default/.*(?<=x)y", "lookahead and lookbehind"),
        (r"(a)\1", "backreferences"),
        ("a++", "possessive"),
        ("(?>a|b)c", "atomic"),
        (r"a\h", "escape"),
        (r"\p{javaLowerCase}", "character classes"),
        ("(?x)a", "flag"),
        ("a{1001}", "1000 repetitions"),
        ("[a-z&&[^b]]", "nested character sets"),
        ("[a[bc]]", "nested character sets"),
        (r"\p{L}{900}", "too large"),
    ],
)
def test_what_only_java_has_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(PatternNotSupported, match=what):
        compile_pattern(text)


@pytest.mark.parametrize("text", ["(", "*", "[", "a)", "[b-a]", "\\"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern, match="is not a valid regular expression") as caught:
        compile_pattern(text)
    assert not isinstance(caught.value, PatternNotSupported)


@pytest.mark.parametrize("text", [r"a\[&&b", r"\Qa[&&[b\E.*", "[[:alpha:]]+", r"[\]a]b", "é+", r"\d{1,3}", "(?i)AB"])
def test_what_looks_like_it_is_taken(text: str) -> None:
    compile_pattern(text)


@given(
    st.lists(st.sampled_from(["a", "b", "/", ".*", ".", "[ab]", "(a|b)", "-?", "(ab)+", r"\d", "é"]), max_size=6),
    st.lists(st.text("ab/-1é\n", max_size=8), max_size=5),
)
def test_patterns_match_as_pythons_do(parts: list[str], names: list[str]) -> None:
    text = "".join(parts)
    matches = compile_pattern(text)
    assert [matches(name) for name in names] == [bool(re.fullmatch(text, name)) for name in names]
