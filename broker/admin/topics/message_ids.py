"""Message ids in JSON, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....wire.message_id import LATEST, MessageId
from ....wire.position import Position
from ..bodies import as_bool, as_int


def as_message_id(place: Position | MessageId) -> dict[str, Any]:
    """Return an id in Pulsar's two JSON forms: of an entry, or of a message inside a batch."""
    answer: dict[str, Any] = {"ledgerId": place.ledger_id, "entryId": place.entry_id, "partitionIndex": -1}
    if isinstance(place, MessageId) and place.batch_index >= 0:
        inside = {"batchIndex": place.batch_index, "batchSize": 0}
        return answer | inside | {"outstandingAcksInSameBatch": 0, "originalBatchSize": 0}
    return answer | {"batchSize": 0, "batchIndex": -1}


def position_of(body: Mapping[str, Any]) -> Position:
    """Return the position that a message id in JSON names; absent numbers are 0, as in Java."""
    return Position(
        as_int(body.get("ledgerId"), "ledgerId", bits=64) or 0, as_int(body.get("entryId"), "entryId", bits=64) or 0
    )


def is_latest(position: Position) -> bool:
    """Return whether a position stands for the end of a topic, whatever it holds."""
    return position == LATEST[:2]


def is_excluded(body: Mapping[str, Any]) -> bool:
    """Return whether the named message itself is left out."""
    return as_bool(body.get("excluded"), "excluded") or False
