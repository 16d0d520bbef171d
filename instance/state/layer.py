"""Layer: changes of state that are not stored yet, and merging several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...state.values import COUNTER_MAX, COUNTER_MIN, Change, Delete, Increment, Put


@dataclass(slots=True)
class Layer:
    """What a piece of work changed.

    Attributes:
        number: counts the layers of a session, from 1 on.
        values: what was written, None for deleted.
        increments: of counters; where a key is in `values` too, they came afterwards.
        size: how many bytes it holds, about.
    """

    number: int
    values: dict[str, bytes | None] = field(default_factory=dict)
    increments: dict[str, int] = field(default_factory=dict)
    size: int = 0

    @property
    def rows(self) -> int:
        """How many changes it has, about."""
        return len(self.values) + len(self.increments)


def merge(layers: Sequence[Layer]) -> Layer:
    """Return one layer that does what several do one after the other; its number is the last one's."""
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
    """Return a layer as changes, in an order that gives the same."""
    changes: list[Change] = [
        Delete(key.encode()) if data is None else Put(key.encode(), data) for key, data in layer.values.items()
    ]
    for key, amount in layer.increments.items():
        encoded = key.encode()
        while amount > COUNTER_MAX or amount < COUNTER_MIN:  # summed up over calls that each fitted
            part = COUNTER_MAX if amount > 0 else COUNTER_MIN
            changes.append(Increment(encoded, part))
            amount -= part
        changes.append(Increment(encoded, amount))
    return changes
