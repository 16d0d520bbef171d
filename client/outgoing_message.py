"""A message as the application hands it to a producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, cast


class Base64Key(str):
    """A key that is bytes, as the base64 that stands for it in the message, whose metadata say so."""

    __slots__ = ()


class _NoValue(bytes):
    __slots__ = ()


NO_VALUE: Final[bytes] = _NoValue()
"""The payload of a message without a value, which is not the same as an empty one: to compaction it deletes its key."""


class SendOptions(TypedDict, total=False):
    """What a message may have beside its payload, as keywords of `send`; `OutgoingMessage` says what they are."""

    key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int | None
    deliver_at_ms: int


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message on its way out; what a routing function sees.

    Attributes:
        payload: the content; `NO_VALUE` for none.
        key: routes the message and names what compaction keeps; a `Base64Key` for bytes.
        ordering_key: routes instead of ``key`` where it is set.
        properties: free pairs of text.
        event_time_ms: set by the application; 0 is none.
        sequence_id: chosen by the application; must rise. None continues.
        deliver_at_ms: when Shared and Key_Shared subscriptions give it out, in ms since 1970; it goes alone, without a
            batch. 0 is at once.
    """

    payload: bytes
    key: str | None = None
    ordering_key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    sequence_id: int | None = None
    deliver_at_ms: int = 0

    @classmethod
    def of(cls, payload: bytes, options: SendOptions) -> OutgoingMessage:
        """Return a message of a payload and what it has beside it."""
        if not options:
            return cls(payload)
        given: dict[str, Any] = {**options, "properties": options.get("properties") or {}}
        return cls(payload, **given)

    def options(self) -> SendOptions:
        """Return what it has beside its payload, as `send` takes it."""
        return cast(SendOptions, {name: getattr(self, name) for name in self.__slots__ if name != "payload"})
