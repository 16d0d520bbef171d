"""SerDe classes, compared with those of the official client."""

from __future__ import annotations

import math
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.api import IdentitySerDe, PickleSerDe

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
