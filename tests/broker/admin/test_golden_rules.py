"""The comparison itself: what it must notice, and what a placeholder covers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin.golden import differences


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ({"a": 1}, {"a": 1}),
        ("<varies>:4", "17:4"),
        ("http://<varies>", "http://localhost:8080"),
        ("<number>", 0),
        ({"rate": "<number>"}, {"rate": 1.5}),
        (["persistent://t/n/b", "persistent://t/n/a"], ["persistent://t/n/a", "persistent://t/n/b"]),
        ({"a": 1, "<cut>": "3 more"}, {"a": 1, "b": 2}),
        ("Message: <varies>\n\tat <cut>\n", "Message: x\n\tat y\n\tat z"),
        ([{"id": "<number>"}], [{"id": 7}]),
    ],
)
def test_what_fits_a_recording_has_no_differences(expected: Any, got: Any) -> None:
    assert list(differences(expected, got)) == []


@pytest.mark.parametrize(
    ("expected", "got", "text"),
    [
        ({"a": 1}, {}, "a is missing"),
        ({"a": 1}, {"a": 1, "b": 2}, "b=2 is too much"),
        ({"a": 1}, {"a": 2}, "/a: expected 1, got 2"),
        ({"a": 1}, {"a": True}, "/a: expected 1, got True"),
        ({"a": 0}, {"a": False}, "/a: expected 0, got False"),
        ({"a": []}, {"a": None}, "/a: expected [], got None"),
        ({"a": "<number>"}, {"a": "1"}, "/a: expected '<number>', got '1'"),
        ({"a": "<number>"}, {"a": True}, "/a: expected '<number>', got True"),
        ("<varies>:4", "17:5", "expected '<varies>:4', got '17:5'"),
        ("<varies>", 5, "expected '<varies>', got 5"),
        (["t/a", "t/b"], ["t/a"], "missing ['t/b']"),
        (["t/a"], ["t/a", "t/a"], "expected ['t/a']"),
        ([{"id": 1}], [{"id": 1}, {"id": 2}], "expected 1 items, got 2"),
        ({"reason": "x"}, "x", "expected {'reason': 'x'}, got 'x'"),
    ],
)
def test_what_does_not_fit_is_named(expected: Any, got: Any, text: str) -> None:
    (difference,) = differences(expected, got)
    assert text in difference
