"""SerDe classes, compared with those of the official client."""

from __future__ import annotations

import math
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.api import IdentitySerDe, JsonSerDe, PickleSerDe
from magnetar.api.serde import takes_batches

OURS = IdentitySerDe()
THEIRS = pulsar.IdentitySerDe()

NUMBERS = (st.floats(), st.complex_numbers(), st.integers())
NUMBER_LIKE = st.text(alphabet="0123456789+-._eEjJinfatyINFATYx() \t\n٣１\x00")
MESSAGES = st.one_of(
    st.binary(),
    *(texts.map(str).map(str.encode) for texts in (st.text(), NUMBER_LIKE, *NUMBERS)),
)


def same(first: Any, second: Any) -> bool:
    """Equal and of one type; nan equals nan."""
    return type(first) is type(second) and (first == second or str(first) == str(second))


@given(MESSAGES)
def test_identity_reads_a_message_as_pulsar_does(message: bytes) -> None:
    assert same(OURS.deserialize(message), THEIRS.deserialize(message))


@given(st.lists(MESSAGES))
def test_identity_reads_many_as_it_reads_each(messages: list[bytes]) -> None:
    values = OURS.deserialize_all(messages)
    assert len(values) == len(messages)
    assert all(same(value, OURS.deserialize(message)) for value, message in zip(values, messages, strict=True))


@pytest.mark.parametrize("first", [chr(code) for code in range(256)])
def test_no_number_begins_with_what_is_taken_for_text(first: str) -> None:
    for rest in ("", "1", "nf", "an", "1j", "nfinity", "1)", "_1", " 1"):
        message = (first + rest).encode()
        assert same(OURS.deserialize(message), THEIRS.deserialize(message))


@pytest.mark.parametrize(
    "message", [b"1" * 5000, b"-" + b"9" * 4301, b"1_000", b" 7 ", b"nan", b"inf", b"1e999", b"(1+2j)", b"\xff"]
)
def test_identity_reads_odd_messages_as_pulsar_does(message: bytes) -> None:
    assert same(OURS.deserialize(message), THEIRS.deserialize(message))


@given(
    st.one_of(
        st.text(alphabet=st.characters(codec="utf-8")), st.binary(), st.integers(), st.floats(), st.complex_numbers()
    )
)
def test_identity_writes_as_pulsar_does(value: Any) -> None:
    assert OURS.serialize(value) == THEIRS.serialize(value)


@pytest.mark.parametrize("value", [True, None, {}, [], (), object()])
def test_identity_refuses_what_pulsar_refuses(value: Any) -> None:
    with pytest.raises(TypeError):
        THEIRS.serialize(value)
    with pytest.raises(TypeError, match=f"cannot serialize {type(value).__name__}"):
        OURS.serialize(value)


def test_pickle_returns_the_value() -> None:
    value = {"a": [1, math.pi]}
    assert PickleSerDe().deserialize(PickleSerDe().serialize(value)) == value
    assert pulsar.PickleSerDe().deserialize(PickleSerDe().serialize(value)) == value


JSON = JsonSerDe()
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, 2.5, None, True]}, b'{"a":[1,2.5,null,true]}'),
        ("grüße", b'"gr\\u00fc\\u00dfe"'),
        ("\ud800", b'"\\ud800"'),
        (1 << 200, str(1 << 200).encode()),
        ({1: "one"}, b'{"1":"one"}'),
        ((1, 2), b"[1,2]"),
    ],
)
def test_json_writes_what_json_has(value: Any, data: bytes) -> None:
    assert JSON.serialize(value) == data
    assert JSON.serialize_all([value, None]) == [data, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1, 2}, "JsonSerDe cannot serialize set: Object of type set is not JSON serializable: return dict, list"),
        ({"a": b"x"}, "JsonSerDe cannot serialize dict: Object of type bytes is not JSON serializable: return dict"),
        (float("nan"), "JsonSerDe cannot serialize float: Out of range float values are not JSON compliant"),
        ([float("-inf")], "JsonSerDe cannot serialize list: Out of range"),
        ({(1, 2): 3}, "JsonSerDe cannot serialize dict: keys must be str"),
    ],
)
def test_json_refuses_values_that_it_has_not(value: Any, expected: str) -> None:
    assert JSON.serialize_all(["fine", value]) is None
    with pytest.raises((TypeError, ValueError)) as refused:
        JSON.serialize(value)
    assert str(refused.value).startswith(expected)


def test_json_refuses_values_that_contain_themselves_or_nest_too_deep() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep):
        assert JSON.serialize_all([value]) is None
        with pytest.raises(ValueError, match="JsonSerDe cannot serialize list: nested too deeply, or contains itself"):
            JSON.serialize(value)
    while deep:  # or its end would be a recursion, too
        deep = deep.pop()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"a": 1, "a": 2} ', {"a": 2}),
        (b'"\\ud800"', "\ud800"),
        (b'"gr\xc3\xbc\xc3\x9fe"', "grüße"),
        (str(1 << 200).encode(), 1 << 200),
        (b"1e400", float("inf")),
        (b"null", None),
    ],
)
def test_json_reads_what_json_has(data: bytes, value: Any) -> None:
    assert JSON.deserialize(data) == value
    assert JSON.deserialize_all([data, data]) == [value, value]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value: line 1 column 1"),
        (b"{no}", "Expecting property name"),
        (b"[NaN]", "NaN is not valid JSON"),
        (b"-Infinity", "-Infinity is not valid JSON"),
        (b'"\xff"', "invalid UTF-8 at byte 1"),
        ('{"a": 1}'.encode("utf-16"), "invalid UTF-8 at byte 0"),
        (DEEP, "nested too deeply"),
        (b"9" * 5000, "Exceeds the limit"),
        (b"1 2", "Extra data"),
    ],
)
def test_json_refuses_what_is_none_in_one_line(data: bytes, why: str) -> None:
    assert JSON.deserialize_all([b"1", data]) is None
    with pytest.raises(ValueError, match=f"message of {len(data)} bytes is not valid JSON: {why}") as refused:
        JSON.deserialize(data)
    assert "\n" not in str(refused.value)


def test_subclass_that_converts_otherwise_is_not_asked_for_batches() -> None:
    class Louder(JsonSerDe):
        def deserialize(self, input_bytes: bytes) -> Any:
            return f"{super().deserialize(input_bytes)}!"

    assert [takes_batches(one) for one in (OURS, JSON, Louder(), PickleSerDe())] == [True, True, False, False]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ({}, "cannot serialize dict: set outputSerdeClassName to JsonSerDe, or annotate the return type -> dict"),
        ((1,), "cannot serialize tuple: set outputSerdeClassName to JsonSerDe, or return a list"),
        (JSON, "annotate the return type -> JsonSerDe for a dataclass or model"),
    ],
)
def test_identity_says_what_helps(value: Any, remedy: str) -> None:
    with pytest.raises(TypeError) as refused:
        OURS.serialize(value)
    assert remedy in str(refused.value)
