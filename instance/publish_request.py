"""Messages that functions publish through their context, validated on the function's thread.

Callbacks receive the outcome on a separate thread, because user code must not run on an event loop.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, TypedDict, cast

from ..client.checks import check_integer, check_message_id, check_text, check_texts
from ..client.config import Compression
from ..client.outgoing_message import due_ms
from ..errors import InvalidConfig, MessageTooLarge, ProtocolError
from ..wire.message_id import EARLIEST, LATEST, MessageId, deserialize

MESSAGE_BYTES_MAX = 5 * 1024 * 1024 - 64 * 1024
"""Maximum size of a message that a function sends: the frame limit minus room for metadata."""
_PAIR_BYTES = 16  # maximum overhead of a property, in addition to name and value


class Result(IntEnum):
    """The outcome of a published message, with the official client's names and numbers."""

    Ok = 0
    UnknownError = 1
    Timeout = 3
    AlreadyClosed = 15
    ProducerBlockedQuotaExceededError = 25
    MessageTooBig = 28
    TopicNotFound = 29
    TopicTerminated = 33


class CompressionType(IntEnum):
    """Compression types, with the official client's names and numbers."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class MessageOptions(TypedDict, total=False):
    """A message's metadata; keywords of the client's `send`."""

    key: str
    ordering_key: bytes
    properties: dict[str, str]
    event_time_ms: int
    sequence_id: int
    deliver_at_ms: int


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A message to be published.

    Attributes:
        topic: destination topic.
        payload: serialised value.
        compression: compression of the message's entry.
        options: metadata of the message.
        callback: user callback, called with result and message; or None.
        message: the user's message object, passed to the callback.
        subscription: name of a subscription that retains the messages, created with the producer; or None.
    """

    topic: str
    payload: bytes
    compression: Compression = "NONE"
    options: MessageOptions = field(default_factory=MessageOptions)
    callback: Callable[[Any, Any], None] | None = None
    message: Any = None
    subscription: str | None = None


class Callbacks:
    """Calls callbacks in order, on a thread that the first callback starts."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        """Create a caller of callbacks without starting the thread.

        Args:
            on_error: called with exceptions of callbacks, on the callbacks' thread.
        """
        self._on_error = on_error
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] | None = None

    def call(self, request: PublishRequest, result: Result) -> None:
        """Queue the callback of a request, if it has one."""
        if request.callback is None:
            return
        if self._waiting is None:
            self._waiting = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(self._waiting,), name="callbacks", daemon=True).start()
        self._waiting.put(partial(request.callback, result, request.message))

    def _run(self, waiting: queue.SimpleQueue[Callable[[], object] | None]) -> None:
        while (callback := waiting.get()) is not None:
            try:
                callback()
            except BaseException as error:  # noqa: BLE001   user code, sys.exit() too; later callbacks still run
                self._on_error(error)

    def close(self) -> None:
        """End the thread after pending callbacks."""
        if self._waiting is not None:
            self._waiting.put(None)


_NO_REPLICATION = "is not supported: messages are not replicated to other clusters; remove it"
_REFUSED = dict.fromkeys(("replication_clusters", "disable_replication"), _NO_REPLICATION)
_KNOWN = (
    "properties", "partition_key", "ordering_key", "event_timestamp", "sequence_id", "deliver_at", "deliver_after",
)  # fmt: skip


def read_compression(kind: Any) -> Compression:
    """Return the name of a compression given as an enum member, a number, a name or None.

    Raises:
        InvalidConfig: the compression is unknown.
    """
    if kind is None:
        return "NONE"
    names = {member.name.upper(): member for member in CompressionType}
    try:
        found = names[kind.upper()] if isinstance(kind, str) else CompressionType(int(kind))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InvalidConfig(f"invalid compression_type {kind!a:.40}: expected one of {', '.join(names)}") from error
    return cast(Compression, found.name.upper())


def read_message_conf(
    properties: Mapping[str, str] | None, conf: Mapping[str, Any] | None, clock: Callable[[], float] = time.time
) -> MessageOptions:
    """Convert properties and ``message_conf`` to the options of a message.

    Args:
        properties: message properties.
        conf: further options, by the names of the official client's `send`.
        clock: returns seconds since 1970, for ``deliver_after``.

    Raises:
        InvalidConfig: ``conf`` has an unknown or unsupported key, or an invalid value.
    """
    options = MessageOptions()
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidConfig(f"message_conf must be a dict, not {type(conf).__name__}")
    properties, delay = _properties("properties", properties), None
    for name, value in (conf or {}).items():
        match name:
            case "properties":
                properties = {**_properties("message_conf key 'properties'", value), **properties}
            case "partition_key":
                options["key"] = _key(value)
            case "ordering_key":
                options["ordering_key"] = value if isinstance(value, bytes) else _utf8(name, str(value))
            case "event_timestamp":
                options["event_time_ms"] = _integer(name, value)
            case "sequence_id":
                options["sequence_id"] = _integer(name, value)
            case "deliver_at":
                options["deliver_at_ms"] = _integer(name, value)
            case "deliver_after":
                delay = value
            case _ if name in _REFUSED:
                raise InvalidConfig(f"message_conf key {name!r} {_REFUSED[name]}")
            case _:
                raise InvalidConfig(f"unknown message_conf key {name!a}: expected one of {', '.join(_KNOWN)}")
    if delay is not None:
        options["deliver_at_ms"] = due_ms(delay, options.get("deliver_at_ms", 0), clock)
    if properties:
        options["properties"] = {str(name): str(value) for name, value in properties.items()}
    if "key" in options:
        check_text("partition_key", options["key"])
    if properties:
        check_texts("properties", options["properties"])
    return options


def _properties(what: str, properties: Any) -> Mapping[Any, Any]:
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InvalidConfig(f"{what} must be a dict of str, not {type(properties).__name__}")
    return properties


def _key(value: Any) -> str:
    if isinstance(value, bytes):
        raise InvalidConfig(f"message_conf key 'partition_key' is {value!a:.40}: expected a str, not bytes")
    return str(value)


def _integer(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidConfig(f"message_conf key {name!r} is {value!a:.40}: expected a number") from error
    check_integer(f"message_conf key {name!r}", number, 0)
    return number


def _utf8(name: str, text: str) -> bytes:
    check_text(name, text)
    return text.encode()


def check_size(topic: str, payload: bytes, options: MessageOptions) -> None:
    """Reject a message that is too large, including its metadata.

    Raises:
        MessageTooLarge: the message exceeds `MESSAGE_BYTES_MAX`.
    """
    size = len(payload)
    if options:
        # The key is also stored in the entry's metadata.
        size += 2 * (len(options.get("key", "").encode()) + len(options.get("ordering_key", b"")))
        pairs = options.get("properties", {}).items()
        size += sum(len(name.encode()) + len(value.encode()) + _PAIR_BYTES for name, value in pairs)
    if size > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"message of {size} bytes for {topic}, with key and properties, exceeds the limit of {MESSAGE_BYTES_MAX}"
            " bytes: publish less data, or store it elsewhere and publish a reference"
        )


def read_message_id(given: Any, method: str = "ack") -> MessageId:
    """Convert a result of `Context.get_message_id`, or an id of the official client, to a message id.

    Args:
        given: object to convert.
        method: the context's method, for the error.

    Raises:
        InvalidConfig: the object is not the id of a message.
    """
    try:
        message_id = deserialize(bytes(given.serialize()))
    except (AttributeError, TypeError, ProtocolError) as error:
        kind = type(given).__name__
        raise InvalidConfig(
            f"context.{method} requires an id returned by context.get_message_id(), not {kind}: {error}"
        ) from error
    if method == "seek" and message_id[:2] in (EARLIEST[:2], LATEST[:2]):
        return EARLIEST if message_id[:2] == EARLIEST[:2] else LATEST
    check_message_id(message_id)
    if message_id.ledger_id < 0 or message_id.entry_id < 0:
        raise InvalidConfig(f"message id {message_id} does not identify a message")
    if message_id.batch_index >= 0 and message_id.batch_size <= message_id.batch_index:
        raise InvalidConfig(
            f"message id {message_id} has batch_index={message_id.batch_index} but batch_size={message_id.batch_size}"
        )
    return message_id
