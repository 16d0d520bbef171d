"""The message at hand as one value: what `Context.get_current_record` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .message_id import FunctionMessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRecord:
    """One input message; it stays as it is when the next comes.

    Attributes:
        data: its payload.
        topic: full name of the topic, partition included.
        partition: number of the partition, -1 if the topic has none.
        message_id: its id.
        key: empty if it has none.
        ordering_key: empty if it has none.
        properties: pairs of text.
        event_time_ms: since 1970; 0 if it has none.
        publish_time_ms: since 1970, of its entry.
        sequence_id: that its producer gave it.
        redelivery_count: how often the broker has given it out before.
    """

    data: bytes
    topic: str
    partition: int
    message_id: FunctionMessageId
    key: str
    ordering_key: bytes
    properties: Mapping[str, str]
    event_time_ms: int
    publish_time_ms: int
    sequence_id: int
    redelivery_count: int
    _decode: Callable[[bytes], Any] = field(repr=False, compare=False)
    _ack: Callable[[FunctionMessageId, str], None] = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """What the function is given, made anew by the SerDe of the topic."""
        return self._decode(self.data)

    def ack(self) -> None:
        """Acknowledge the message; needed where the function acknowledges by itself (MANUAL)."""
        self._ack(self.message_id, self.topic)
