"""Messages of a topic as the records of a sink, and as what goes to the dead-letter topic."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from ...api.connector import Record
from ...api.serde import SerDe
from ...client.consumers.received import ReceivedEntry
from ...client.outgoing_message import NO_VALUE, Base64Key
from ...errors import InvalidTopicName, ProtocolError
from ...wire.position import Position
from ...wire.position_sequence import SequenceOverflow, first_message_number
from ...wire.topic_name import parse_topic_name
from ..batch_call import Blame, Failure
from ..output_headers import message_id_of
from ..publish_request import MessageOptions, PublishRequest
from ..unit import Unit
from .values import decoded

EXCEPTION_CHARS_MAX = 4000
"""Of the property that says why a record was refused."""


class Placed(NamedTuple):
    """A record and the position of its message in its unit."""

    position: int
    record: Record


def records_of(unit: Unit, serde: SerDe, failures: list[Failure], *, is_exact: bool = False) -> list[Placed]:
    """Return the records of a unit.

    A message without a value, which deletes its key, is a record with the value None.

    Args:
        unit: of entries of one input.
        serde: decodes it.
        failures: takes the messages that no record can be made of.
        is_exact: whether each record needs its `Record.sequence`.

    Raises:
        SequenceOverflow: a record that needs a sequence has none.
    """
    values = decoded(unit.messages, serde, failures)
    failed = {failure.position: failure for failure in failures}
    records: list[Placed] = []
    for start, entry, indexes in unit.parts():
        if entry.metadata.num_chunks_from_msg > 1:
            error = ProtocolError(
                "a piece of a chunked message, which sinks do not put together; publish without chunking"
            )
            places = range(start, start + len(indexes))
            failures += [Failure(position, error, Blame.SYSTEM) for position in places if position not in failed]
            continue
        first, topic, headers = _first_number(entry, is_exact), entry.topic, entry.headers
        text, is_batch = str(entry.message_id), entry.is_batch
        for position, index in enumerate(indexes, start):
            header: Any = entry.metadata if headers is None else headers[index]
            value = values[position]
            if header.null_value:
                value = None
                if position in failed:
                    failures.remove(failed.pop(position))
            if position in failed:
                continue
            records.append(
                Placed(
                    position,
                    Record(
                        value,
                        header.partition_key if header.HasField("partition_key") else None,
                        {pair.key: pair.value for pair in header.properties} if header.properties else {},
                        header.event_time,
                        topic,
                        f"{text}:{index}" if is_batch else text,
                        sequence=0 if first is None else first + index,
                    ),
                )
            )
    return records


def _first_number(entry: ReceivedEntry, is_exact: bool) -> int | None:
    message_id = entry.message_id
    try:
        return first_message_number(Position(message_id.ledger_id, message_id.entry_id), entry.num_messages)
    except SequenceOverflow:
        if is_exact:
            raise
        return None


class DeadLetters:
    """Makes what goes to the dead-letter topic of a message that is refused.

    It has the message's payload, or none, its key, as text or as bytes, its ordering key, properties and event time,
    and as further properties what the official clients add, ``REAL_TOPIC``, ``REAL_SUBSCRIPTION`` and
    ``ORIGIN_MESSAGE_ID``; ``EXCEPTION`` is the reason.
    """

    def __init__(self, topic: str, name: str, subscription: str) -> None:
        """Prepare.

        Args:
            topic: where all of them go; if empty, each goes to its own topic's ``<topic>-<name>-DLQ``.
            name: of the sink.
            subscription: of its inputs.
        """
        self._topic = topic
        self._name = name
        self._subscription = subscription

    def topic_of(self, topic: str) -> str:
        """Return where refused messages of a topic go; partitions have one in common."""
        if self._topic:
            return self._topic
        with contextlib.suppress(InvalidTopicName):  # of an input of another kind
            topic = parse_topic_name(topic).base.text
        return f"{topic}-{self._name}-DLQ"

    def request(self, entry: ReceivedEntry, index: int, payload: bytes, error: BaseException) -> PublishRequest:
        """Return a refused message as it is published."""
        header: Any = entry.metadata if entry.headers is None else entry.headers[index]
        properties = {pair.key: pair.value for pair in header.properties}
        properties |= {
            "REAL_TOPIC": entry.topic,
            "REAL_SUBSCRIPTION": self._subscription,
            "ORIGIN_MESSAGE_ID": str(message_id_of(entry, index)),
            "EXCEPTION": text_of(error)[:EXCEPTION_CHARS_MAX],
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


def text_of(error: BaseException) -> str:
    """Return an error in one line; of what a connector refuses the cause alone."""
    text = " ".join(str(error).split()).encode("utf-8", "replace").decode()
    return text if type(error).__name__ == "RecordRefused" else f"{type(error).__name__}: {text}"
