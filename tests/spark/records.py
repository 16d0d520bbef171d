"""Topic records for schema tests, defined at module level so that their annotations resolve."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Place:
    """A record key."""

    city: str
    number: int


@dataclass
class Line:
    """A record value."""

    text: str
    weight: float
