"""Validation of values that the protocol cannot carry, in the call that passes them.

Otherwise they would fail when a frame is encoded: in a timer, for a whole batch, or at the next connection, where the
caller does not see the error.
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
"""Limit of messages in an entry; an acknowledgement of one of them has a bit for each."""
TEXT_BYTES_MAX = 64 * 1024
"""Limit of names and properties in settings, which are part of each request that creates a producer or consumer."""


def check_text(what: str, text: object, bytes_max: int | None = None) -> None:
    """Reject a value that is not a str, cannot be encoded as UTF-8, or is longer than ``bytes_max``."""
    if not isinstance(text, str):
        raise InvalidConfig(f"{what} is {_shown(text)}, which is {_kind(text)}; give a str")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidConfig(
            f"{what} has U+{ord(text[error.start]):04X} at index {error.start}, a lone surrogate, which has no UTF-8"
            " form; encode the text with errors='replace', or send it as the payload"
        ) from error
    if bytes_max is not None and size > bytes_max:
        raise InvalidConfig(f"{what} has {size} bytes, the limit is {bytes_max}; make it shorter")


def check_texts(what: str, pairs: object, bytes_max: int | None = None) -> None:
    """Reject a value that is not a mapping of str to str, each at most ``bytes_max`` long."""
    if not isinstance(pairs, Mapping):
        raise InvalidConfig(f"{what} are {_shown(pairs)}, which is {_kind(pairs)}; give a dict of str")
    for name, value in pairs.items():
        check_text(f"the name {_shown(name)} in {what}", name, bytes_max)
        check_text(f"the value of {_shown(name)} in {what}", value, bytes_max)


def check_integer(what: str, number: object, least: int, most: int = INT64_MAX) -> None:
    """Reject a value that is not an int between two bounds (inclusive)."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidConfig(f"{what}={_shown(number)} is {_kind(number)}; give an int from {least} to {most}")
    if not least <= number <= most:
        raise InvalidConfig(f"{what}={_shown(number)} is outside of {least} to {most}")


def check_delay(what: str, delay: object) -> None:
    """Reject a value that is not a timedelta, or is negative."""
    if not isinstance(delay, timedelta):
        raise InvalidConfig(f"{what}={_shown(delay)} is {_kind(delay)}; give a timedelta")
    if delay < timedelta():
        raise InvalidConfig(f"{what}={delay} is negative; give a timedelta from 0 on")


def check_finite(what: str, number: float) -> None:
    """Reject NaN and infinities."""
    if not math.isfinite(number):
        raise InvalidConfig(f"{what}={number} is not finite; give a number")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Reject a value that is not one of ``choices``."""
    if value not in choices:
        raise InvalidConfig(f"{name}={value!r} is not one of {', '.join(choices)}")


def check_booleans(settings: DataclassInstance) -> None:
    """Reject fields annotated as ``bool`` whose value is not a boolean, such as ``"no"``, which would count as true."""
    for one in fields(settings):
        if one.type in (bool, "bool"):
            value = getattr(settings, one.name)
            if value not in (True, False):
                raise InvalidConfig(f"{one.name}={_shown(value)} is {_kind(value)}: use True or False")


def check_least(name: str, value: float, least: float) -> None:
    """Reject a value that is not a finite number, or is less than ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfig(f"{name}={value!a} is {type(value).__name__}; give a number from {least} on")
    check_finite(name, value)
    if value < least:
        raise InvalidConfig(f"{name}={value} is less than {least}")


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
        raise InvalidConfig(f"name='' is empty; leave it out to {remedy}")


def check_options(  # noqa: PLR0913 - the keywords of `send`
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
        raise InvalidConfig(f"ordering_key is {_shown(ordering_key)}, which is {_kind(ordering_key)}; give bytes")
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
    raise InvalidConfig(f"the payload of a message is bytes, not {_kind(payload)}; encode it")


def as_topic_name(topic: str) -> TopicName:
    """Return a topic name; reject what the protocol cannot carry."""
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
    """Reject a ``config`` that is not an object of its class, for example a bare subscription type."""
    if config is not None and not isinstance(config, kind):
        raise InvalidConfig(f"config is {kind.__name__}(…), not {type(config).__name__}; name the setting in it")
