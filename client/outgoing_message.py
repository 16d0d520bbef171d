"""A message as the application hands it to a producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict


class SendOptions(TypedDict, total=False):
    """What a message may have beside its payload, as keywords of `send`; `OutgoingMessage` says what they are."""

    key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int | None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message on its way out; what a routing function sees.

    Attributes:
        payload: the content.
        key: routes the message and names what compaction keeps.
        ordering_key: routes instead of ``key`` where it is set.
        properties: free pairs of text.
        event_time_ms: set by the application; 0 is none.
        sequence_id: chosen by the application; must rise. None continues.
    """

    payload: bytes
    key: str | None = None
    ordering_key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    sequence_id: int | None = None
