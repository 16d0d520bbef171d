"""Records with a field of every type, ours and the official client's, which must be equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pulsar.schema as official
from magnetar.client import Float32, Int32


class Color(Enum):
    RED = 1
    GREEN = 2


@dataclass
class Item:
    name: str
    count: Int32 = 1


@dataclass
class Order:
    text: str
    number: int
    small: Int32
    real: float
    single: Float32
    flag: bool
    raw: bytes
    item: Item
    items: list[Item]
    words: list[str]
    by_name: dict[str, int]
    color: Color
    maybe_text: str | None
    maybe_item: Item | None = None
    maybe_number: int | None = None
    retries: int = 3
    tags: list[str] = field(default_factory=list)
    shade: Color = Color.RED


class _TheirItem(official.Record):  # type: ignore[misc]
    name = official.String(required=True)
    count = official.Integer(required=True, default=1, required_default=True)


_TheirItem.__name__ = "Item"


class TheirOrder(official.Record):  # type: ignore[misc]
    text = official.String(required=True)
    number = official.Long(required=True)
    small = official.Integer(required=True)
    real = official.Double(required=True)
    single = official.Float(required=True)
    flag = official.Boolean(required=True)
    raw = official.Bytes(required=True)
    item = _TheirItem(required=True)
    items = official.Array(_TheirItem(), required=True)
    words = official.Array(official.String(), required=True)
    by_name = official.Map(official.Long(), required=True)
    color = official.CustomEnum(Color, required=True)
    maybe_text = official.String()
    maybe_item = _TheirItem(required_default=True)
    maybe_number = official.Long(required_default=True)
    retries = official.Long(required=True, default=3, required_default=True)
    tags = official.Array(official.String(), required=True, default=[], required_default=True)
    shade = official.CustomEnum(Color, required=True, default=Color.RED, required_default=True)


TheirOrder.__name__ = "Order"


def their_item(item: Item | None) -> _TheirItem | None:
    """Return an item as the official client defines it."""
    return None if item is None else _TheirItem(name=item.name, count=item.count)


def their_order(order: Order) -> TheirOrder:
    """Return an order as the official client defines it."""
    values = {**vars(order), "item": their_item(order.item), "items": [their_item(item) for item in order.items]}
    theirs = TheirOrder(**{name: value for name, value in values.items() if name != "maybe_item"})
    setattr(theirs, "maybe_item", their_item(order.maybe_item))  # noqa: B010  the class has the type of the field there
    return theirs
