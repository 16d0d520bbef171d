"""What is asked of an Avro schema before bytes of others are read by it."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client.schemas.avro_shape import DEPTH_MAX, has_arrays_of_nothing, is_deeper, is_recursive

NODE = {"type": "record", "name": "Node", "namespace": "a.b", "fields": [{"name": "next", "type": ["null", "Node"]}]}
FLAT = {"type": "record", "name": "Flat", "fields": [{"name": "x", "type": "long"}]}


def around(inner: Any) -> list[Any]:
    """Types that contain another in every place where one may be."""
    return [
        {"type": "array", "items": inner},
        {"type": "map", "values": inner},
        ["null", inner],
        {"type": inner},
        {
            "type": "record",
            "name": "Around",
            "fields": [{"name": "first", "type": "long"}, {"name": "x", "type": inner}],
        },
    ]


@pytest.mark.parametrize("place", range(5))
def test_type_that_contains_itself_is_found_in_every_place(place: int) -> None:
    assert is_recursive(around(NODE)[place])
    assert not is_recursive(around(FLAT)[place])
    assert is_recursive(around("Around")[4])
    for inner in around("Around")[:3]:
        assert is_recursive(around(inner)[4])


def test_type_that_occurs_twice_does_not_contain_itself() -> None:
    twice = [{"name": "a", "type": FLAT}, {"name": "b", "type": "Flat"}]
    assert not is_recursive({"type": "record", "name": "Twice", "fields": twice})
    assert is_recursive({**NODE, "fields": [{"name": "next", "type": ["null", "a.b.Node"]}]})
    assert is_recursive({"type": "record", "name": "a.b.C", "fields": [{"name": "c", "type": ["null", "C"]}]})


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "fixed", "name": "f", "size": 0},
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_array_of_nothing_is_found_in_every_place(items: Any, place: int) -> None:
    assert has_arrays_of_nothing(around({"type": "array", "items": items})[place])
    assert not has_arrays_of_nothing(around({"type": "array", "items": ["null", "long"]})[place])
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "array", "items": "null"}, [None] * 5000)
    assert len(out.getvalue()) < 10  # which is why


@given(st.integers(0, 1000), st.booleans())
def test_depth_is_counted(depth: int, of_lists: bool) -> None:
    value: Any = "end"
    for _ in range(depth):
        value = [value, value] if of_lists else {"a": value, "b": value}
    assert is_deeper(value) == (depth > DEPTH_MAX)


def test_value_that_contains_itself_is_deeper() -> None:
    one: list[Any] = []
    one += [one, one, {"again": one}]
    assert is_deeper(one)
    assert not is_deeper([[]] * 100_000)
