"""DeadLetters: creates dead letters of functions and sinks from messages that are given up.

A letter has the message's payload, if any, its key, as text or bytes, its ordering key, properties and event time, and
our own properties with its origin and the reason. Our properties win over the message's properties of the same name.
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
"""How much of a reason is kept until secrets are removed: a secret truncated by the limit would not be recognised."""
"""Of the property that says why a message was given up."""


class Letter(NamedTuple):
    """A letter in the form of a batch member.

    Attributes:
        payload: payload of the message.
        attributes: its metadata; see `encode_attributes`.
    """

    payload: bytes
    attributes: bytes

    @property
    def size(self) -> int:
        """Approximate bytes in an entry."""
        return len(self.payload) + len(self.attributes)

    def options(self) -> tuple[bytes, MessageOptions]:
        """Return payload and options of the letter as a single message, with valid UTF-8 text only."""
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
        """Return the letter without a property; None if it does not have it."""
        header = SingleMessageMetadata.FromString(self.attributes + _NO_SIZE)
        kept = [pair for pair in header.properties if pair.key != name]
        if len(kept) == len(header.properties):
            return None
        del header.properties[:]
        header.properties.extend(kept)
        return Letter(self.payload, encode_attributes(header))


class DeadLetters:
    """Creates letters.

    They have the properties of the official clients, ``REAL_TOPIC``, ``REAL_SUBSCRIPTION`` and ``ORIGIN_MESSAGE_ID``;
    ``EXCEPTION`` is the reason.
    """

    def __init__(
        self, topic: str, name: str, subscription: str, function: str = "", hiding: Callable[[str], str] = str
    ) -> None:
        """Prepare.

        Args:
            topic: dead-letter topic; if empty, each message goes to its own topic's ``<topic>-<name>-DLQ``.
            name: name of the sink or function.
            subscription: subscription of its inputs.
            function: ``tenant/namespace/name`` of the sink, with which `request` marks its letters and retains them.
            hiding: removes secrets from the reason of `request`.
        """
        self._hiding = hiding
        self._function = function
        self._topic = topic
        self._name = name
        self._subscription = subscription

    def topic_of(self, topic: str) -> str:
        """Return the dead-letter topic of a topic's messages; partitions share one."""
        if self._topic:
            return self._topic
        with contextlib.suppress(InvalidTopicName):  # of another kind of input
            topic = parse_topic_name(topic).base.text
        return f"{topic}-{self._name}-DLQ"

    def request(self, entry: ReceivedEntry, index: int, payload: bytes, error: BaseException) -> PublishRequest:
        """Return the letter of a message rejected with an error, as a single message."""
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
        """Return the letter of a message.

        Args:
            entry: entry of the message.
            index: index of the message in the entry.
            payload: payload of the message.
            why: further properties.
            common: properties that letters share; their encoded form is cached.
        """
        common = {REAL_TOPIC: entry.topic, REAL_SUBSCRIPTION: self._subscription, **(common or {})}
        own = {ORIGIN_MESSAGE_ID: str(message_id_of(entry, index)), **why}
        parts = [_own_attributes(entry, index, {*common, *own})]
        parts += [_kept_property(name, value) for name, value in common.items()]
        parts += [_property(name, value) for name, value in own.items()]
        return Letter(payload, b"".join(parts))


def _own_attributes(entry: ReceivedEntry, index: int, ours: set[str]) -> bytes:
    """Return a message's metadata, except its sequence id and some properties."""
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
"""Fields that single messages and batch members have in common, besides the properties."""
_NO_SIZE = SingleMessageMetadata(payload_size=0).SerializeToString()


def _property(name: str, value: str) -> bytes:
    """Encode a property as part of a message's attributes."""
    key, text = name.encode(), value.encode()
    pair = b"\x0a%b%b\x12%b%b" % (varint(len(key)), key, varint(len(text)), text)  # KeyValue: key, value
    return b"\x0a%b%b" % (varint(len(pair)), pair)  # SingleMessageMetadata.properties


_kept_property = lru_cache(maxsize=256)(_property)


def reason(error: BaseException, traceback: str) -> Reason:
    """Return why a message failed; call this on the function's thread, because formatting may run its code."""
    return Reason(text_of(error)[:_KEPT_CHARS], traceback)


def shown_reason(text: str, hiding: Callable[[str], str]) -> str:
    """Return the reason in a letter: without secrets, and truncated to `EXCEPTION_CHARS_MAX`."""
    return hiding(text[:_KEPT_CHARS])[:EXCEPTION_CHARS_MAX]


def text_of(error: BaseException) -> str:
    """Return an error in one line; only the cause if a connector rejected the record."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  formatting a user exception may raise, too
        text = f"it cannot be shown: {type(failure).__name__}"
    text = " ".join(text.split()).encode("utf-8", "replace").decode()
    return text if type(error).__name__ == "RecordRefused" else f"{type(error).__name__}: {text}"
