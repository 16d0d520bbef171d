"""JSON as others send it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.wire.strict_json import MAX_DEPTH, NotJson, read_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


@given(PLAIN, st.booleans())
def test_what_json_can_say_is_read(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert read_json(text) == value
    assert read_json(text.encode()) == value


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_anything_else_is_refused_in_one_line(text: bytes) -> None:
    reason, value = "", None
    try:
        value = read_json(text)
    except NotJson as error:
        reason = str(error)
    assert reason.isprintable()
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"1e400", "1e400 is too large for a number"),
        (b"[-1e400]", "-1e400 is too large for a number"),
        (b"NaN", "NaN is not a JSON number"),
        (b"-Infinity", "-Infinity is not a JSON number"),
        (b"9" * 301, "a number has 301 digits: the maximum is 300"),
        (b"9" * 100_000, "a number has 100000 digits: the maximum is 300"),
        (rb'"\ud800"', r"a string contains an unpaired surrogate: '\ud800'"),
        (rb'{"a": [{"\uDFFF": 1}]}', r"a string contains an unpaired surrogate: '\udfff'"),
        (b'"\xed\xa0\x80"', "it is not valid UTF-8: invalid continuation byte at byte 1"),
        (b'{"a": 1, "a": 2}', "duplicate name 'a' in an object"),
        (b"[" * 65 + b"]" * 65, f"it is nested deeper than {MAX_DEPTH} levels"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, f"it is nested deeper than {MAX_DEPTH} levels"),
        (b"[" * 1_000_000, f"it is nested deeper than {MAX_DEPTH} levels"),
        (b"", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_what_comes_up_later_is_refused_at_once(text: bytes, reason: str) -> None:
    with pytest.raises(NotJson) as caught:
        read_json(text)
    assert str(caught.value) == reason


def test_what_is_at_the_limits_is_read() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(read_json(deepest)) == deepest
    assert len(read_json("[" + "[]," * 1000 + "{}]")) == 1001
    assert read_json(rb'"\ud83d\ude00"') == "\U0001f600"
    assert read_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert float(read_json("9" * 300)) > 0
