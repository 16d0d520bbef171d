"""Outgoing messages and their options."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypedDict, cast

from ..errors import InvalidConfig
from .checks import check_delay


class Base64Key(str):
    """A base64-encoded bytes key, marked as such in the message metadata."""

    __slots__ = ()


class _NoValue(bytes):
    __slots__ = ()


NO_VALUE: Final[bytes] = _NoValue()
"""Payload of a message without a value, as opposed to an empty value; compaction deletes its key."""


class SendOptions(TypedDict, total=False):
    """The keyword arguments of `send`: message options, described in `OutgoingMessage`."""

    key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int | None
    deliver_at_ms: int
    deliver_after: timedelta | None


def due_ms(deliver_after: timedelta, deliver_at_ms: int, clock: Callable[[], float]) -> int:
    """Return a message's delivery time in ms since 1970.

    Args:
        deliver_after: delay from now.
        deliver_at_ms: must be 0, because the two options are mutually exclusive.
        clock: wall time in seconds.

    Raises:
        InvalidConfig: both options are set, or the delay is invalid.
    """
    if deliver_at_ms:
        raise InvalidConfig(
            f"deliver_at_ms={deliver_at_ms!a} and deliver_after={deliver_after!a} are mutually exclusive"
        )
    check_delay("deliver_after", deliver_after)
    return math.ceil((clock() + deliver_after.total_seconds()) * 1000)


def with_time(options: SendOptions, clock: Callable[[], float]) -> SendOptions:
    """Return message options with ``deliver_at_ms`` in place of ``deliver_after``.

    For callers that hold a message before sending it, as the delay starts at the call; raises the same errors as
    `due_ms`.
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
    """An outgoing message, as passed to routing functions.

    Attributes:
        payload: the payload; `NO_VALUE` for a message without a value.
        key: key for routing and compaction; a `Base64Key` for bytes.
        ordering_key: used for routing instead of ``key`` if set.
        properties: application-defined string pairs.
        event_time_ms: time set by the application, or 0.
        sequence_id: set by the application; must increase. None continues after the last one.
        deliver_at_ms: when Shared and Key_Shared subscriptions deliver the message, in ms since 1970; such a message is
            not batched. 0 means immediately.
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
        """Return a message with a payload and options, which must have been processed by `with_time`."""
        if not options:
            return cls(payload)
        given: dict[str, Any] = {**options, "properties": options.get("properties") or {}}
        return cls(payload, **given)

    def options(self) -> SendOptions:
        """Return the options as keyword arguments for `send`."""
        return cast(SendOptions, {name: getattr(self, name) for name in self.__slots__ if name != "payload"})
