"""Create dead letters of a source, for records that can never be messages of the output topic.

They go to ``<output topic>-<source>-DLQ``. A letter has the record's value, key, properties and event time as far as a
message can hold them, and the properties ``FUNCTION`` (the source) and ``EXCEPTION`` (the reason). A value that is too
large for one message is sent in parts with the property ``PART``, such as ``1 of 3``. The subscription
``tenant/namespace/source-dead-letters`` retains them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ...api.connector import Record
from ...wire.function_letters import EXCEPTION, FUNCTION, LETTERS_SUFFIX
from ...wire.functions_pb2 import FunctionDetails
from ..acks.dead_letters import DeadLetters, shown_reason
from ..publish_request import MessageOptions, PublishRequest

PART = "PART"
PROPERTIES_CHARS_MAX = 8_000
"""Limit of a record's properties and of its key in a letter; the rest is omitted."""
PART_BYTES_MAX = 4 << 20
"""Maximum size of a value, or a part of it, in one letter."""


class SourceLetters:
    """Creates the dead letters of one source.

    Attributes:
        topic: dead-letter topic.
    """

    def __init__(self, details: FunctionDetails, hiding: Callable[[str], str]) -> None:
        """Create a factory for dead letters.

        Args:
            details: description of the source.
            hiding: removes secrets from a string.
        """
        self._hiding = hiding
        self._name = f"{details.tenant}/{details.namespace}/{details.name}"
        self.topic = DeadLetters("", details.name, "").topic_of(details.sink.topic)
        self._kept = None if self.topic.startswith("non-persistent://") else self._name + LETTERS_SUFFIX

    def requests(self, record: Record, reason: str) -> Iterator[PublishRequest]:
        """Yield the letters of a record.

        Args:
            record: record that cannot be a message.
            reason: why it cannot be one.
        """
        payload = _bytes_of(record.value)
        properties: dict[str, str] = {}
        size = 0
        for name, value in dict(record.properties or {}).items():
            text, content = _text_of(name), _text_of(value)
            size += len(text) + len(content)
            if size <= PROPERTIES_CHARS_MAX:
                properties[text] = content
        properties |= {FUNCTION: self._name, EXCEPTION: shown_reason(_text_of(reason), self._hiding)}
        count = max(-(-len(payload) // PART_BYTES_MAX), 1)
        for number in range(count):
            if count > 1:
                properties = properties | {PART: f"{number + 1} of {count}"}
            options = MessageOptions(properties=properties)
            if record.key is not None:
                options["key"] = _text_of(record.key)[:PROPERTIES_CHARS_MAX]
            if isinstance(record.event_time_ms, int) and 0 < record.event_time_ms < 1 << 63:
                options["event_time_ms"] = record.event_time_ms
            part = payload[number * PART_BYTES_MAX : (number + 1) * PART_BYTES_MAX]
            yield PublishRequest(self.topic, part, options=options, subscription=self._kept)


def _bytes_of(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, default=repr)
        except (ValueError, TypeError, RecursionError):
            value = object.__repr__(value)
    return _text_of(value).encode()


def _text_of(value: Any) -> str:
    """Return a value as a string without characters that UTF-8 cannot encode."""
    return str(value).encode("utf-8", "backslashreplace").decode()
