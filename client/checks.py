"""Early validation of values that the protocol cannot carry.

Without it, they would fail when a frame is encoded: in a timer, for a whole batch, or on the next connection, where
the caller does not see the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..errors import InvalidConfig
from ..wire.message_id import MessageId
from ..wire.topic_name import TopicName, parse_topic_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
BATCH_SIZE_MAX = 2**24
"""Maximum number of messages per entry; acknowledging one of them sends a bit for each."""
TEXT_BYTES_MAX = 64 * 1024
"""Maximum size of a name or property in settings, which are sent whenever a producer or consumer is created."""


def check_text(what: str, text: object, bytes_max: int | None = None) -> None:
    """Reject a value that is not a str, cannot be encoded as UTF-8, or is longer than ``bytes_max``."""
    if not isinstance(text, str):
        raise InvalidConfig(f"invalid {what} {_shown(text)}: expected a str, got {_kind(text)}")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidConfig(
            f"{what} cannot be encoded as UTF-8: lone surrogate U+{ord(text[error.start]):04X} at index {error.start}:"
            " encode the string with errors='replace', or send it as the payload"
        ) from error
    if bytes_max is not None and size > bytes_max:
        raise InvalidConfig(f"{what} is {size} bytes long, above the limit of {bytes_max}")


def check_texts(what: str, pairs: object, bytes_max: int | None = None) -> None:
    """Reject a value that is not a mapping of str to str, each at most ``bytes_max`` long."""
    if not isinstance(pairs, Mapping):
        raise InvalidConfig(f"invalid {what} {_shown(pairs)}: expected a dict of str, got {_kind(pairs)}")
    for name, value in pairs.items():
        check_text(f"name {_shown(name)} in {what}", name, bytes_max)
        check_text(f"value of {_shown(name)} in {what}", value, bytes_max)


def check_integer(what: str, number: object, least: int, most: int = INT64_MAX) -> None:
    """Reject a value that is not an int between two bounds (inclusive)."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidConfig(f"invalid {what} {_shown(number)}: expected an int, {least} to {most}, got {_kind(number)}")
    if not least <= number <= most:
        raise InvalidConfig(f"invalid {what} {_shown(number)}: expected {least} to {most}")


def check_delay(what: str, delay: object) -> None:
    """Reject a value that is not a timedelta, or is negative."""
    if not isinstance(delay, timedelta):
        raise InvalidConfig(f"invalid {what} {_shown(delay)}: expected a timedelta, got {_kind(delay)}")
    if delay < timedelta():
        raise InvalidConfig(f"invalid {what} {delay}: must not be negative")


def check_finite(what: str, number: float) -> None:
    """Reject NaN and infinities."""
    if not math.isfinite(number):
        raise InvalidConfig(f"invalid {what} {number}: expected a finite number")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Reject a value that is not one of ``choices``."""
    if value not in choices:
        raise InvalidConfig(f"invalid {name} {value!r}: expected one of {', '.join(choices)}")


def check_booleans(settings: DataclassInstance) -> None:
    """Reject fields annotated as ``bool`` whose value is not a boolean, such as ``"no"``, which would be truthy."""
    for one in fields(settings):
        if one.type in (bool, "bool"):
            value = getattr(settings, one.name)
            if value not in (True, False):
                raise InvalidConfig(f"invalid {one.name} {_shown(value)}: expected True or False, got {_kind(value)}")


def check_least(name: str, value: float, least: float) -> None:
    """Reject a value that is not a finite number, or is less than ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfig(f"invalid {name} {value!a}: expected a number >= {least}, got {type(value).__name__}")
    check_finite(name, value)
    if value < least:
        raise InvalidConfig(f"invalid {name} {value}: must be at least {least}")


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Reject a value that is not an int from ``least`` to ``most``."""
    check_least(name, value, least)
    check_integer(name, value, least, most)


def check_name(name: str | None, remedy: str) -> None:
    """Reject an empty name; None is allowed."""
    if name is None:
        return
    check_text("name", name, TEXT_BYTES_MAX)
    if not name:
        raise InvalidConfig(f"name is empty: omit it to {remedy}")


def check_options(  # noqa: PLR0913 - the keyword arguments of `send`
    key: Any = None,
    ordering_key: Any = None,
    properties: Any = None,
    event_time_ms: Any = 0,
    sequence_id: Any = None,
    deliver_at_ms: Any = 0,
    deliver_after: Any = None,
) -> None:
    """Reject invalid message options (everything but the payload)."""
    if key is not None and not isinstance(key, bytes):
        check_text("key", key)
    if ordering_key is not None and not isinstance(ordering_key, bytes):
        raise InvalidConfig(f"invalid ordering_key {_shown(ordering_key)}: expected bytes, got {_kind(ordering_key)}")
    if properties:
        check_texts("properties", properties)
    if event_time_ms:
        check_integer("event_time_ms", event_time_ms, 0)
    if sequence_id is not None:
        check_integer("sequence_id", sequence_id, 0)
    if deliver_at_ms:
        check_integer("deliver_at_ms", deliver_at_ms, 0)
    if deliver_after is not None:
        check_delay("deliver_after", deliver_after)


def check_message_id(message_id: MessageId) -> None:
    """Reject an id with an out-of-range number, which a broker would decode as a different id."""
    ledger_id, entry_id, partition, batch_index, batch_size = message_id
    check_integer("ledger_id of a message id", ledger_id, -1)
    check_integer("entry_id of a message id", entry_id, -1)
    check_integer("partition of a message id", partition, -1, INT32_MAX)
    check_integer("batch_index of a message id", batch_index, -1, BATCH_SIZE_MAX)
    check_integer("batch_size of a message id", batch_size, 0, BATCH_SIZE_MAX)


def as_bytes(payload: object) -> bytes:
    """Return a payload as bytes; reject any other type."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise InvalidConfig(f"invalid payload: expected bytes, got {_kind(payload)}")


def as_topic_name(topic: str) -> TopicName:
    """Parse a topic name; reject names that the protocol cannot carry."""
    check_text("topic", topic)
    return parse_topic_name(topic)


def _kind(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    """Return an abbreviated ASCII representation of a value."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001  a value of user code, whose repr may do anything
        text = f"<{_kind(value)}>"
    return text if len(text) <= 40 else text[:39] + "…"


def check_config(config: object, kind: type) -> None:
    """Reject a ``config`` that is not an instance of ``kind``, for example a bare subscription type."""
    if config is not None and not isinstance(config, kind):
        raise InvalidConfig(f"invalid config: expected {kind.__name__}(…), got {type(config).__name__}")
