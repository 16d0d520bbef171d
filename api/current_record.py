"""The current message as one value: the result of `Context.get_current_record`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .message_id import FunctionMessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRecord:
    """An input message, which remains valid after the call.

    Attributes:
        data: payload.
        topic: full topic name, including the partition.
        partition: partition number, or -1 if the topic is not partitioned.
        message_id: message ID.
        key: partition key, or an empty string.
        ordering_key: ordering key, or empty bytes.
        properties: message properties.
        event_time_ms: event time in milliseconds since 1970, or 0.
        publish_time_ms: publish time of the entry, in milliseconds since 1970.
        sequence_id: sequence ID set by the producer.
        redelivery_count: number of earlier deliveries.
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
        """The function's input, decoded again from `data` by the topic's SerDe."""
        return self._decode(self.data)

    def ack(self) -> None:
        """Acknowledge the message. Required with the MANUAL guarantee."""
        self._ack(self.message_id, self.topic)
