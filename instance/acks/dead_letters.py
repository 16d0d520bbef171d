"""DeadLetters: what goes to the dead-letter topic of a message that is given up, of functions and of sinks.

A letter has the message's payload, or none, its key, as text or as bytes, its ordering key, properties and event time,
and properties of ours that say where it comes from and why. Of properties with the same name ours stay.
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
"""What is kept of a reason until secrets are taken out of it: cut in two by the limit, a secret would not be found."""
"""Of the property that says why a message was given up."""


class Letter(NamedTuple):
    """A letter as it lies in a batch.

    Attributes:
        payload: of the message.
        attributes: what it has beside its payload; see `encode_attributes`.
    """

    payload: bytes
    attributes: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes in an entry, but for a few."""
        return len(self.payload) + len(self.attributes)

    def options(self) -> tuple[bytes, MessageOptions]:
        """Return payload and options of the letter as a message that is sent by itself, with no text but UTF-8."""
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
        """Return the letter without a property; None if it has none of that name."""
        header = SingleMessageMetadata.FromString(self.attributes + _NO_SIZE)
        kept = [pair for pair in header.properties if pair.key != name]
        if len(kept) == len(header.properties):
            return None
        del header.properties[:]
        header.properties.extend(kept)
        return Letter(self.payload, encode_attributes(header))


class DeadLetters:
    """Makes letters.

    They have what the official clients add, ``REAL_TOPIC``, ``REAL_SUBSCRIPTION`` and ``ORIGIN_MESSAGE_ID``;
    ``EXCEPTION`` is the reason.
    """

    def __init__(
        self, topic: str, name: str, subscription: str, function: str = "", hiding: Callable[[str], str] = str
    ) -> None:
        """Prepare.

        Args:
            topic: where all of them go; if empty, each goes to its own topic's ``<topic>-<name>-DLQ``.
            name: of the sink or function.
            subscription: of its inputs.
            function: ``tenant/namespace/name`` of the sink, by which `request` marks its letters and keeps them.
            hiding: takes secrets out of the reason of `request`.
        """
        self._hiding = hiding
        self._function = function
        self._topic = topic
        self._name = name
        self._subscription = subscription

    def topic_of(self, topic: str) -> str:
        """Return where letters of messages of a topic go; partitions have one in common."""
        if self._topic:
            return self._topic
        with contextlib.suppress(InvalidTopicName):  # of an input of another kind
            topic = parse_topic_name(topic).base.text
        return f"{topic}-{self._name}-DLQ"

    def request(self, entry: ReceivedEntry, index: int, payload: bytes, error: BaseException) -> PublishRequest:
        """Return the letter of a message that was refused for an error, to be sent by itself."""
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
            entry: of the message.
            index: of the message in it.
            payload: of the message.
            why: further properties.
            common: those that letters have in common; a process keeps what it has made of them.
        """
        common = {REAL_TOPIC: entry.topic, REAL_SUBSCRIPTION: self._subscription, **(common or {})}
        own = {ORIGIN_MESSAGE_ID: str(message_id_of(entry, index)), **why}
        parts = [_own_attributes(entry, index, {*common, *own})]
        parts += [_kept_property(name, value) for name, value in common.items()]
        parts += [_property(name, value) for name, value in own.items()]
        return Letter(payload, b"".join(parts))


def _own_attributes(entry: ReceivedEntry, index: int, ours: set[str]) -> bytes:
    """Return what a message has beside its payload but for its number and the properties of some names."""
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
"""What the metadata of a message that came alone and of one of a batch have in common, beside the properties."""
_NO_SIZE = SingleMessageMetadata(payload_size=0).SerializeToString()


def _property(name: str, value: str) -> bytes:
    """Return a property as one of the attributes of a message."""
    key, text = name.encode(), value.encode()
    pair = b"\x0a%b%b\x12%b%b" % (varint(len(key)), key, varint(len(text)), text)  # KeyValue: key, value
    return b"\x0a%b%b" % (varint(len(pair)), pair)  # SingleMessageMetadata.properties


_kept_property = lru_cache(maxsize=256)(_property)


def reason(error: BaseException, traceback: str) -> Reason:
    """Return why a message failed; to be called on the function's thread, as the exception may be its own code."""
    return Reason(text_of(error)[:_KEPT_CHARS], traceback)


def shown_reason(text: str, hiding: Callable[[str], str]) -> str:
    """Return what a letter says of a reason: without secrets, and not longer than `EXCEPTION_CHARS_MAX`."""
    return hiding(text[:_KEPT_CHARS])[:EXCEPTION_CHARS_MAX]


def text_of(error: BaseException) -> str:
    """Return an error in one line; of what a connector refuses the cause alone."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  an exception of user code may fail at being shown, too
        text = f"it cannot be shown: {type(failure).__name__}"
    text = " ".join(text.split()).encode("utf-8", "replace").decode()
    return text if type(error).__name__ == "RecordRefused" else f"{type(error).__name__}: {text}"
