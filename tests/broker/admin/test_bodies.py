"""Bodies are read as leniently as Pulsar reads them, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.admin.bodies import as_bool, as_int, as_object, as_text_list, as_text_map, parse
from magnetar.web.answers import Refused


@pytest.mark.parametrize(
    ("body", "number"),
    [(b"3", 3), (b'"6"', 6), (b"1.9", 1), (b'""', None), (b"null", None), (b"", None), (b" \n", None), (b"-1", -1)],
)
def test_a_number_may_come_as_text_fraction_or_nothing(body: bytes, number: int | None) -> None:
    assert as_int(parse(body), "count") == number


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"abc", "the request body is not valid JSON"),
        (b"5 x", "the request body is not valid JSON"),
        (b"NaN", "NaN is not a JSON number"),
        (b"/*x*/5", "the request body is not valid JSON"),
        (b"\xff", "the request body is not valid JSON"),
        (b"{}", "invalid value {} in the request body: expected a number (count)"),
        (b"[5]", "invalid value [5] in the request body: expected a number (count)"),
        (b"true", "invalid value true in the request body: expected a number (count)"),
        (b'"six"', 'invalid value "six" in the request body: expected a number (count)'),
        (b"99999999999", "count 99999999999 is out of range: the maximum is 2147483647"),
    ],
)
def test_what_is_no_number_is_refused_with_400(body: bytes, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        as_int(parse(body), "count")
    assert caught.value.status == 400
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    ("value", "boolean"),
    [(True, True), ("True", True), ("FALSE", False), (1, True), (0, False), ("", None), (None, None)],
)
def test_a_boolean_may_come_as_text_or_number(value: Any, boolean: bool | None) -> None:
    assert as_bool(value, "flag") is boolean


@pytest.mark.parametrize("value", ["yes", [], {}, 1.5])
def test_what_is_no_boolean_is_refused(value: Any) -> None:
    with pytest.raises(Refused, match=r"expected true or false \(flag\)"):
        as_bool(value, "flag")


def test_values_of_a_map_become_text_and_nulls_vanish() -> None:
    assert as_text_map({"a": 1, "b": True, "c": "x", "d": None}, "properties") == {"a": "1", "b": "true", "c": "x"}
    with pytest.raises(Refused, match="properties, field a"):
        as_text_map({"a": [1]}, "properties")


def test_wrong_containers_are_refused() -> None:
    for convert in (as_object, as_text_map):
        with pytest.raises(Refused, match=r"expected an object \(properties\)"):
            convert([1], "properties")
    with pytest.raises(Refused, match=r"expected an array \(roles\)"):
        as_text_list("x", "roles")
    assert [as_object(None, "x"), as_text_map(None, "x"), as_text_list(None, "x")] == [None, None, None]


def test_a_long_wrong_body_is_shortened_in_the_message() -> None:
    with pytest.raises(Refused) as caught:
        as_int("x" * 10_000, "count")
    assert len(caught.value.reason) < 200
