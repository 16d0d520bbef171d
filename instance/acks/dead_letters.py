"""DeadLetters: what goes to the dead-letter topic of a message that is given up, of functions and of sinks.

A letter has the message's payload, or none, its key, as text or as bytes, its ordering key, properties and event time,
and properties of ours that say where it comes from and why. Of properties with the same name ours stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ...client.consumers.received import ReceivedEntry
from ...client.outgoing_message import NO_VALUE, Base64Key
from ...errors import InvalidTopicName
from ...wire.function_letters import EXCEPTION
from ...wire.topic_name import parse_topic_name
from ..output_headers import message_id_of
from ..publish_request import MessageOptions, PublishRequest
from ..unit import Reason

REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"

EXCEPTION_CHARS_MAX = 4000
"""Of the property that says why a message was given up."""


class DeadLetters:
    """Makes letters.

    They have what the official clients add, ``REAL_TOPIC``, ``REAL_SUBSCRIPTION`` and ``ORIGIN_MESSAGE_ID``;
    ``EXCEPTION`` is the reason.
    """

    def __init__(self, topic: str, name: str, subscription: str) -> None:
        """Prepare.

        Args:
            topic: where all of them go; if empty, each goes to its own topic's ``<topic>-<name>-DLQ``.
            name: of the sink or function.
            subscription: of its inputs.
        """
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
        """Return the letter of a message that was refused for an error."""
        return self.letter(entry, index, payload, {EXCEPTION: text_of(error)[:EXCEPTION_CHARS_MAX]})

    def letter(self, entry: ReceivedEntry, index: int, payload: bytes, why: Mapping[str, str]) -> PublishRequest:
        """Return the letter of a message; ``why`` are further properties."""
        header: Any = entry.metadata if entry.headers is None else entry.headers[index]
        properties = {pair.key: pair.value for pair in header.properties}
        properties |= {
            REAL_TOPIC: entry.topic,
            REAL_SUBSCRIPTION: self._subscription,
            ORIGIN_MESSAGE_ID: str(message_id_of(entry, index)),
            **why,
        }
        options = MessageOptions(properties=properties)
        if header.HasField("partition_key"):
            is_base64 = header.partition_key_b64_encoded
            options["key"] = Base64Key(header.partition_key) if is_base64 else header.partition_key
        if header.HasField("ordering_key"):
            options["ordering_key"] = header.ordering_key
        if header.event_time:
            options["event_time_ms"] = header.event_time
        if header.null_value:
            payload = NO_VALUE
        return PublishRequest(self.topic_of(entry.topic), payload, options=options)


def reason(error: BaseException, traceback: str) -> Reason:
    """Return why a message failed; to be called on the function's thread, as the exception may be its own code."""
    return Reason(text_of(error)[:EXCEPTION_CHARS_MAX], traceback)


def text_of(error: BaseException) -> str:
    """Return an error in one line; of what a connector refuses the cause alone."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  an exception of user code may fail at being shown, too
        text = f"it cannot be shown: {type(failure).__name__}"
    text = " ".join(text.split()).encode("utf-8", "replace").decode()
    return text if type(error).__name__ == "RecordRefused" else f"{type(error).__name__}: {text}"
