"""The result of an input entry, passed between function's thread, event loop and committer."""

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
    """The result of one input entry.

    Attributes:
        source: activation of the entry.
        entry: the entry.
        position: position of the entry.
        rows: output entries, sealed, in the order of their sequence ids.
        is_direct: whether the rows are sent directly; otherwise they are first committed to the state store.
        changes: state changes of the function, or None.
        published: messages published through the context, whose callbacks receive the outcome.
        messages: number of messages in the rows.
        size: size of the rows in bytes.
        waiting_for: number of missing receipts; used by the event loop.
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
