"""A message that a function publishes through its context, checked before it leaves the function's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypedDict, cast

from ..client.config import Compression
from ..errors import InvalidConfig


class Result(IntEnum):
    """What became of a published message; names and numbers are the official client's."""

    Ok = 0
    UnknownError = 1
    Timeout = 3
    AlreadyClosed = 15
    ProducerBlockedQuotaExceededError = 25
    MessageTooBig = 28
    TopicNotFound = 29
    TopicTerminated = 33


class CompressionType(IntEnum):
    """Compressions by the official client's names and numbers."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class MessageOptions(TypedDict, total=False):
    """What a message has beside its payload; keywords of the client's `send`."""

    key: str
    ordering_key: bytes
    properties: dict[str, str]
    event_time_ms: int
    sequence_id: int


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """One message on its way out.

    Attributes:
        topic: where to.
        payload: serialised.
        compression: of its entries.
        options: its properties.
        callback: the user's, called with result and message.
        message: what the user published; the callback's second argument.
    """

    topic: str
    payload: bytes
    compression: Compression = "NONE"
    options: MessageOptions = field(default_factory=MessageOptions)
    callback: Callable[[Any, Any], None] | None = None
    message: Any = None


_NOT_SUPPORTED = frozenset(("replication_clusters", "disable_replication", "deliver_at", "deliver_after"))


def read_compression(kind: Any) -> Compression:
    """Return our name of a compression given as our constant, the official client's, a number, a name or None.

    Raises:
        InvalidConfig: there is no such compression.
    """
    if kind is None:
        return "NONE"
    names = {member.name.upper(): member for member in CompressionType}
    try:
        found = names[kind.upper()] if isinstance(kind, str) else CompressionType(int(kind))
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidConfig(f"compression_type={kind!r} is not one of {', '.join(names)}") from error
    return cast(Compression, found.name.upper())


def read_message_conf(properties: Mapping[str, str] | None, conf: Mapping[str, Any] | None) -> MessageOptions:
    """Return the options of a message.

    Raises:
        InvalidConfig: ``conf`` has a key that is unknown or not supported.
    """
    options = MessageOptions()
    for name, value in (conf or {}).items():
        match name:
            case "properties":
                properties = {**value, **(properties or {})}
            case "partition_key":
                options["key"] = str(value)
            case "ordering_key":
                options["ordering_key"] = value if isinstance(value, bytes) else str(value).encode()
            case "event_timestamp":
                options["event_time_ms"] = int(value)
            case "sequence_id":
                options["sequence_id"] = int(value)
            case _:
                why = "is not supported yet" if name in _NOT_SUPPORTED else "is unknown"
                raise InvalidConfig(
                    f"message_conf key {name!r} {why}; known are properties, partition_key, ordering_key,"
                    " event_timestamp, sequence_id"
                )
    if properties:
        options["properties"] = {str(name): str(value) for name, value in properties.items()}
    return options
