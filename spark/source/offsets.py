"""Options for the start and end of a read: keywords, positions or times, for all topics or for each topic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from ...errors import InvalidConfig, MagnetarError
from ...wire.message_id import EARLIEST, LATEST, MessageId, deserialize
from ...wire.topic_name import TopicName, parse_topic_name

_WORDS: dict[object, MessageId] = {"earliest": EARLIEST, "latest": LATEST, -2: EARLIEST, -1: LATEST}
"""Keywords for positions, including Kafka's numbers."""
_Value = TypeVar("_Value")


CUT = "minPartitions"
"""Key in the offsets of streams that is not a topic but sets the number of tasks of a batch."""


def is_cut(key: str, value: object) -> bool:
    """Return whether an item of an offset is `CUT` and not a topic of that name, whose partitions would be numbers."""
    return key == CUT and isinstance(value, dict) and value.keys() == {"tasks", "entriesPerTask"}


class Offsets(NamedTuple):
    """Start or end positions, for all topics or by full topic name; ids may be `EARLIEST` or `LATEST`."""

    everywhere: Literal["earliest", "latest"] | None
    by_topic: Mapping[str, MessageId]


FROM_EARLIEST = Offsets("earliest", {})
TO_LATEST = Offsets("latest", {})


def read_offsets(option: str, text: str, topics: tuple[TopicName, ...]) -> Offsets:
    """Parse a position option.

    Args:
        option: name of the option.
        text: ``earliest``, ``latest``, the position in a single topic, or JSON with a position (or positions by
            partition) for each topic.
        topics: topics to read; empty for topics that match a pattern.

    Raises:
        InvalidConfig: the option is invalid.
    """
    if text.lower() in ("earliest", "latest"):
        return Offsets("earliest" if text.lower() == "earliest" else "latest", {})
    record = _json_of(option, text)
    if record is None:
        if len(topics) == 1:
            return Offsets(None, {topics[0].text: _position(option, text)})
        raise InvalidConfig(f"{option}={text!r} is neither earliest, latest nor JSON of topic -> position")
    return Offsets(None, _by_topic(option, record, topics, _position))


def read_times(option: str, text: str, topics: tuple[TopicName, ...]) -> dict[str, int]:
    """Parse a time option and return milliseconds by full topic name; raises the same errors as `read_offsets`."""
    record = _json_of(option, text)
    if record is None:
        raise InvalidConfig(
            f"invalid {option} {text!r}: expected JSON of topic -> milliseconds or {{partition: milliseconds}}"
        )
    return _by_topic(option, record, topics, _time)


def _json_of(option: str, text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except ValueError as error:
        if text.startswith("{"):
            raise InvalidConfig(f"{option}={text!r} is not valid JSON: {error}") from error
        return None
    return record if isinstance(record, dict) else None


def _by_topic(
    option: str, record: dict[str, Any], topics: tuple[TopicName, ...], read: Callable[[str, object], _Value]
) -> dict[str, _Value]:
    by_topic = {name.text: read(option, value) for name, value in _named(option, record)}
    bases = {name.text for name in topics}
    for text in by_topic:
        if topics and text not in bases and parse_topic_name(text).base.text not in bases | _bases_of(topics):
            raise InvalidConfig(
                f"{option} names {text}, which is not one of the topics read: {', '.join(sorted(bases))}"
            )
    return by_topic


def _bases_of(topics: tuple[TopicName, ...]) -> set[str]:
    """Return the partitioned topics of which single partitions are read."""
    return {name.base.text for name in topics if name.partition >= 0}


def _named(option: str, record: dict[str, Any]) -> Iterator[tuple[TopicName, object]]:
    for topic, value in record.items():
        if is_cut(topic, value):  # the offset was copied from a stream's progress
            continue
        name = parse_topic_name(topic)
        if not isinstance(value, dict):
            yield name, value
            continue
        for partition, place in value.items():
            if not re.fullmatch(r"\d+", partition):
                raise InvalidConfig(f"{option} names partition {partition!r} of {topic}: expected 0, 1, …")
            yield name.partition_name(int(partition)), place


def _time(option: str, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidConfig(f"invalid {option} {value!r}: expected milliseconds since 1970")
    return value


def _position(option: str, value: object) -> MessageId:
    """Return the message id given as ``ledger:entry[:batch index]`` or as a list of bytes, as in clients."""
    word = value.lower() if isinstance(value, str) else value
    if isinstance(word, str | int) and word in _WORDS:
        return _WORDS[word]
    if isinstance(value, str) and re.fullmatch(r"\d+:\d+(:\d+)?", value):
        ledger, entry, *index = map(int, value.split(":"))
        return MessageId(ledger, entry, batch_index=index[0] if index else -1)
    if isinstance(value, list):
        try:
            return deserialize(bytes(number & 255 for number in value))  # Java writes bytes as -128 to 127
        except (MagnetarError, TypeError) as error:
            raise InvalidConfig(f"{option}: {value!r} is not a serialized message id: {error}") from error
    raise InvalidConfig(
        f"invalid {option} {value!r}: expected earliest, latest, 'ledger:entry', 'ledger:entry:index' or the bytes"
        " of a message id"
    )
