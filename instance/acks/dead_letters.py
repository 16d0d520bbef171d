"""Create dead letters from messages that functions and sinks have given up on.

A letter has the message's payload, key (as text or bytes), ordering key, properties and event time, and properties that
state its origin and the reason. The latter replace properties of the message with the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...client.consumers.received import ReceivedEntry
from ...client.outgoing_message import NO_VALUE, Base64Key
from ...errors import InvalidTopicName
from ...wire.batch import encode_attributes, header_text
from ...wire.bulk import varint
from ...wire.function_letters import EXCEPTION, FUNCTION, LETTERS_SUFFIX
from ...wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from ...wire.topic_name import parse_topic_name
from ..output_headers import message_id_of
from ..publish_request import MessageOptions, PublishRequest
from ..unit import Reason

REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"

EXCEPTION_CHARS_MAX = 4000
_KEPT_CHARS = 2 * EXCEPTION_CHARS_MAX
"""Characters of a reason retained until secrets are removed: a secret cut off by the limit would not be recognised."""
"""Limit of the property that contains the reason."""


class Letter(NamedTuple):
    """A dead letter, encoded as a member of a batch.

    Attributes:
        payload: the message's payload.
        attributes: encoded metadata, as returned by `encode_attributes`.
    """

    payload: bytes
    attributes: bytes

    @property
    def size(self) -> int:
        """Approximate size within an entry, in bytes."""
        return len(self.payload) + len(self.attributes)

    def options(self) -> tuple[bytes, MessageOptions]:
        """Return the payload and options for sending the letter as a single message, with all text valid UTF-8."""
        header = SingleMessageMetadata.FromString(self.attributes + _NO_SIZE)
        options = MessageOptions(
            properties={header_text(pair.key): header_text(pair.value) for pair in header.properties}
        )
        if header.HasField("partition_key"):
            key = header_text(header.partition_key)
            options["key"] = Base64Key(key) if header.partition_key_b64_encoded else key
        if header.HasField("ordering_key"):
            options["ordering_key"] = header.ordering_key
        if header.event_time:
            options["event_time_ms"] = header.event_time
        return NO_VALUE if header.null_value else self.payload, options

    def without(self, name: str) -> Letter | None:
        """Return a copy of the letter without a property, or None if it has no such property."""
        header = SingleMessageMetadata.FromString(self.attributes + _NO_SIZE)
        kept = [pair for pair in header.properties if pair.key != name]
        if len(kept) == len(header.properties):
            return None
        del header.properties[:]
        header.properties.extend(kept)
        return Letter(self.payload, encode_attributes(header))


class DeadLetters:
    """Creates the dead letters of one function or sink.

    They have the official clients' properties ``REAL_TOPIC``, ``REAL_SUBSCRIPTION`` and ``ORIGIN_MESSAGE_ID``, and the
    reason in ``EXCEPTION``.
    """

    def __init__(
        self, topic: str, name: str, subscription: str, function: str = "", hiding: Callable[[str], str] = str
    ) -> None:
        """Create a factory for dead letters.

        Args:
            topic: dead-letter topic; if empty, ``<topic>-<name>-DLQ`` for each input topic.
            name: name of the sink or function.
            subscription: subscription of the inputs.
            function: ``tenant/namespace/name`` of the sink; `request` uses it to mark and retain letters.
            hiding: removes secrets from the reason in `request`.
        """
        self._hiding = hiding
        self._function = function
        self._topic = topic
        self._name = name
        self._subscription = subscription

    def topic_of(self, topic: str) -> str:
        """Return the dead-letter topic of a topic; all partitions share it."""
        if self._topic:
            return self._topic
        with contextlib.suppress(InvalidTopicName):  # an input that is not a topic
            topic = parse_topic_name(topic).base.text
        return f"{topic}-{self._name}-DLQ"

    def request(self, entry: ReceivedEntry, index: int, payload: bytes, error: BaseException) -> PublishRequest:
        """Return the letter of a message that was rejected with an error."""
        why = {EXCEPTION: shown_reason(text_of(error), self._hiding)}
        letter = self.letter(entry, index, payload, why, {FUNCTION: self._function})
        payload, options = letter.options()
        topic = self.topic_of(entry.topic)
        kept = None if topic.startswith("non-persistent://") else self._function + LETTERS_SUFFIX
        return PublishRequest(topic, payload, options=options, subscription=kept)

    def letter(
        self,
        entry: ReceivedEntry,
        index: int,
        payload: bytes,
        why: Mapping[str, str],
        common: Mapping[str, str] | None = None,
    ) -> Letter:
        """Create the letter of a message.

        Args:
            entry: entry that contains the message.
            index: the message's index in the entry.
            payload: the message's payload.
            why: properties specific to this letter.
            common: properties shared by letters, whose encoded form is cached.
        """
        common = {REAL_TOPIC: entry.topic, REAL_SUBSCRIPTION: self._subscription, **(common or {})}
        own = {ORIGIN_MESSAGE_ID: str(message_id_of(entry, index)), **why}
        parts = [_own_attributes(entry, index, {*common, *own})]
        parts += [_kept_property(name, value) for name, value in common.items()]
        parts += [_property(name, value) for name, value in own.items()]
        return Letter(payload, b"".join(parts))


def _own_attributes(entry: ReceivedEntry, index: int, ours: set[str]) -> bytes:
    """Return a message's encoded metadata without its sequence id and the properties in ``ours``."""
    header = SingleMessageMetadata()
    if entry.headers is None:
        alone: Any = entry.metadata
        header.properties.extend(KeyValue(key=pair.key, value=pair.value) for pair in alone.properties)
        for name in _OWN_FIELDS:
            if alone.HasField(name):
                setattr(header, name, getattr(alone, name))
    else:
        header.MergeFromString(entry.headers.encoded[index])
        header.ClearField("sequence_id")
    if any(pair.key in ours for pair in header.properties):
        kept = [pair for pair in header.properties if pair.key not in ours]
        del header.properties[:]
        header.properties.extend(kept)
    return encode_attributes(header)


_OWN_FIELDS = ("partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "null_value")
"""Metadata fields shared by single messages and batch members, besides the properties."""
_NO_SIZE = SingleMessageMetadata(payload_size=0).SerializeToString()


def _property(name: str, value: str) -> bytes:
    """Encode one property of a message's attributes."""
    key, text = name.encode(), value.encode()
    pair = b"\x0a%b%b\x12%b%b" % (varint(len(key)), key, varint(len(text)), text)  # KeyValue: key, value
    return b"\x0a%b%b" % (varint(len(pair)), pair)  # SingleMessageMetadata.properties


_kept_property = lru_cache(maxsize=256)(_property)


def reason(error: BaseException, traceback: str) -> Reason:
    """Return the reason of a failure; call on the function's thread, because formatting may run user code."""
    return Reason(text_of(error)[:_KEPT_CHARS], traceback)


def shown_reason(text: str, hiding: Callable[[str], str]) -> str:
    """Return a reason for a letter, without secrets and truncated to `EXCEPTION_CHARS_MAX`."""
    return hiding(text[:_KEPT_CHARS])[:EXCEPTION_CHARS_MAX]


def text_of(error: BaseException) -> str:
    """Format an error on one line; without its type if a connector rejected the record."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  formatting a user exception may raise, too
        text = f"formatting the exception raised {type(failure).__name__}"
    text = " ".join(text.split()).encode("utf-8", "replace").decode()
    return text if type(error).__name__ == "RecordRefused" else f"{type(error).__name__}: {text}"
