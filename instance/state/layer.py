"""Layers of unstored state changes, and their merging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...state.values import COUNTER_MAX, COUNTER_MIN, Change, Delete, Increment, Put


@dataclass(slots=True)
class Layer:
    """The state changes of a piece of work.

    Attributes:
        number: number of the layer in its session, from 1.
        values: written values; None for deleted keys.
        increments: counter increments, which follow a write of the same key in `values`.
        size: approximate size in bytes.
    """

    number: int
    values: dict[str, bytes | None] = field(default_factory=dict)
    increments: dict[str, int] = field(default_factory=dict)
    size: int = 0

    @property
    def rows(self) -> int:
        """Approximate number of changes."""
        return len(self.values) + len(self.increments)


def merge(layers: Sequence[Layer]) -> Layer:
    """Merge successive layers into one with the same effect, and the number of the last."""
    if len(layers) == 1:
        return layers[0]
    values: dict[str, bytes | None] = {}
    increments: dict[str, int] = {}
    for layer in layers:
        for key in layer.values:
            increments.pop(key, None)
        values.update(layer.values)
        for key, amount in layer.increments.items():
            increments[key] = increments.get(key, 0) + amount
    return Layer(layers[-1].number, values, increments, sum(layer.size for layer in layers))


def changes_of(layer: Layer) -> list[Change]:
    """Convert a layer to a list of changes with the same effect."""
    changes: list[Change] = [
        Delete(key.encode()) if data is None else Put(key.encode(), data) for key, data in layer.values.items()
    ]
    for key, amount in layer.increments.items():
        encoded = key.encode()
        while amount > COUNTER_MAX or amount < COUNTER_MIN:  # the sum of several calls, each within range
            part = COUNTER_MAX if amount > 0 else COUNTER_MIN
            changes.append(Increment(encoded, part))
            amount -= part
        changes.append(Increment(encoded, amount))
    return changes
