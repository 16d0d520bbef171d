"""Records of topics for the tests of schemas; outside of their functions, where annotations are found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Place:
    """A key."""

    city: str
    number: int


@dataclass
class Line:
    """A value."""

    text: str
    weight: float
