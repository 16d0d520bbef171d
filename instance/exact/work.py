"""Result: a value passed between event loop, function's thread and committer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...client.consumers.received import ReceivedEntry
from ...state.values import OutboxEntry
from ...wire.position import Position
from ..publish_request import PublishRequest
from ..state.layer import Layer

if TYPE_CHECKING:
    from .activation import Activation


@dataclass(slots=True, eq=False)
class Result:
    """What one input entry made.

    Attributes:
        source: where the entry came from.
        entry: the entry.
        position: of the entry.
        rows: output entries, sealed, in the order of their sequence ids.
        is_direct: whether they go straight to the broker; else after a commit of the state store.
        changes: of the state.
        published: what came from the context's `publish`, to be told of what became of it.
        messages: how many messages the rows have.
        size: their bytes.
        waiting_for: receipts that are missing; the event loop's.
    """

    source: Activation
    entry: ReceivedEntry
    position: Position
    rows: list[OutboxEntry] = field(default_factory=list)
    is_direct: bool = True
    changes: Layer | None = None
    published: list[PublishRequest] = field(default_factory=list)
    messages: int = 0
    size: int = 0
    waiting_for: int = 0


def position_in(entry: ReceivedEntry) -> Position:
    """Return the position of an entry in its partition."""
    return Position(entry.message_id.ledger_id, entry.message_id.entry_id)
