"""A message as the application hands it to a producer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypedDict, cast

from ..errors import InvalidConfig
from .checks import check_delay


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
    deliver_after: timedelta | None


def due_ms(deliver_after: timedelta, deliver_at_ms: int, clock: Callable[[], float]) -> int:
    """Return when a message is to be given out, in ms since 1970.

    Args:
        deliver_after: from now on.
        deliver_at_ms: has to be 0, as a message has one time.
        clock: wall time in seconds.

    Raises:
        InvalidConfig: a time is given as well, or the delay is none.
    """
    if deliver_at_ms:
        raise InvalidConfig(
            f"deliver_at_ms={deliver_at_ms!a} and deliver_after={deliver_after!a} are both given; give one"
        )
    check_delay("deliver_after", deliver_after)
    return math.ceil((clock() + deliver_after.total_seconds()) * 1000)


def with_time(options: SendOptions, clock: Callable[[], float]) -> SendOptions:
    """Return what a message has beside its payload, with ``deliver_at_ms`` in place of ``deliver_after``.

    For those who keep a message before they send it, as the delay begins with the call; raises as `due_ms`.
    """
    if "deliver_after" not in options:
        return options
    options = options.copy()
    delay = options.pop("deliver_after")
    if delay is not None:
        options["deliver_at_ms"] = due_ms(delay, options.get("deliver_at_ms", 0), clock)
    return options


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
        """Return a message of a payload and what it has beside it, with its time as `with_time` returns it."""
        if not options:
            return cls(payload)
        given: dict[str, Any] = {**options, "properties": options.get("properties") or {}}
        return cls(payload, **given)

    def options(self) -> SendOptions:
        """Return what it has beside its payload, as `send` takes it."""
        return cast(SendOptions, {name: getattr(self, name) for name in self.__slots__ if name != "payload"})
