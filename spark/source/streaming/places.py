"""The position of a stream in its topics, as human-readable JSON. No I/O.

A place is the position of the first unread message: ``5:18`` is entry 18 of ledger 5, and ``5:18:3`` is message 3 of
the batch in that entry. The places of a stream are its offsets in Spark's checkpoint and progress::

    {"persistent://public/default/orders": {"0": "5:18", "1": "7:0"}, "persistent://public/default/refunds": "9:4"}

Places of partitioned topics are by partition. Topics that are not listed are read from their start. The end of a batch
also records its number of tasks, so that the batch is split in the same way when it is repeated on a machine with more
cores or with another ``minPartitions``::

    {"minPartitions": {"tasks": 4, "entriesPerTask": 100}, …}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....errors import InvalidConfig
from ....wire.position import Position
from ....wire.topic_name import parse_topic_name
from ..offsets import CUT, is_cut
from ..ranges import Span, TopicRange


class Place(NamedTuple):
    """Position of the first unread message.

    Attributes:
        ledger_id: ledger of the entry; -1 for the start of a topic.
        entry_id: entry in the ledger. The entry may not exist; after the last entry of a ledger, the next ledger
            continues.
        batch_index: index of the message in its batch.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = 0

    @property
    def position(self) -> Position:
        """Position of the entry."""
        return Position(self.ledger_id, self.entry_id)

    @property
    def before(self) -> Position:
        """Position of the previous entry, which has been read completely."""
        return Position(self.ledger_id, self.entry_id - 1)

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return f"{text}:{self.batch_index}" if self.batch_index else text


BEGINNING = Place(-1, 0)
"""Place at the start of any topic."""
Places = Mapping[str, Place]
"""Places by full topic name; by partition name for partitioned topics."""


def behind(position: Position) -> Place:
    """Return the place after an entry."""
    return Place(position.ledger_id, position.entry_id + 1)


def to_json(places: Places) -> dict[str, Any]:
    """Encode places for Spark, which compares them as strings: in a fixed order, omitting topic starts."""
    record: dict[str, Any] = {}
    for name in sorted(map(parse_topic_name, places), key=lambda name: (name.base.text, name.partition)):
        place = places[name.text]
        if place == BEGINNING:
            continue
        if name.partition < 0:
            record[name.text] = str(place)
        else:
            record.setdefault(name.base.text, {})[str(name.partition)] = str(place)
    return record


class Cut(NamedTuple):
    """Parameters for splitting a batch into tasks.

    Attributes:
        tasks: minimum number of tasks, if there are enough entries.
        entries: minimum number of entries per task, if a topic has that many.
    """

    tasks: int
    entries: int = 1


def with_cut(record: Mapping[str, Any], cut: Cut) -> dict[str, Any]:
    """Return the record of a batch's end, including the parameters for splitting the batch."""
    return {CUT: {"tasks": cut.tasks, "entriesPerTask": cut.entries}, **record}


def cut_of(record: Mapping[str, Any]) -> Cut | None:
    """Return the parameters for splitting the batch that ends at a record; None if an older version wrote it."""
    if not is_cut(CUT, record.get(CUT)):
        return None
    return Cut(record[CUT]["tasks"], record[CUT]["entriesPerTask"])


def from_json(record: Mapping[str, Any]) -> dict[str, Place]:
    """Parse the places of a record from `to_json` or `with_cut`.

    Raises:
        InvalidConfig: the record is not ours, for example from the checkpoint of a query with another source.
    """
    places = {}
    for topic, value in record.items():
        if is_cut(topic, value):
            continue
        if isinstance(value, Mapping):
            name = parse_topic_name(topic)
            for partition, text in value.items():
                if not re.fullmatch(r"\d+", str(partition)):
                    raise InvalidConfig(f"invalid partition in offset {record!r}: {partition!r} of {topic}: {_REMEDY}")
                places[name.partition_name(int(partition)).text] = _place(topic, text)
        else:
            places[parse_topic_name(topic).text] = _place(topic, value)
    return places


_REMEDY = "the checkpoint may belong to another query; set a separate checkpointLocation for each query"


def _place(topic: str, text: object) -> Place:
    if not isinstance(text, str) or not re.fullmatch(r"\d+:\d+(:\d+)?", text):
        raise InvalidConfig(f"invalid offset {text!r} of {topic}: expected a position such as '5:18': {_REMEDY}")
    return Place(*map(int, text.split(":")))


def advance(spans: Sequence[Span], entries: int) -> Place:
    """Return the place after the first ``entries`` entries of spans, or after the last entry if there are fewer."""
    for span in spans:
        if entries <= span.entries:
            return Place(span.ledger_id, span.first + entries)
        entries -= span.entries
    return Place(spans[-1].ledger_id, spans[-1].last + 1)


def between(topic: str, spans: Sequence[Span], start: Place, end: Place) -> TopicRange | None:
    """Return the part of spans from ``start`` (inclusive) to ``end`` (exclusive), or None if it is empty."""
    kept = []
    for ledger_id, first, last in spans:
        if ledger_id == start.ledger_id:
            first = max(first, start.entry_id)
        if ledger_id == end.ledger_id:
            last = min(last, end.entry_id - 1)
        if start.ledger_id <= ledger_id <= end.ledger_id and first <= last:
            kept.append(Span(ledger_id, first, last))
    if not kept:
        return None
    is_inside = (kept[0].ledger_id, kept[0].first) == start.position
    return TopicRange(topic, tuple(kept), start.batch_index if is_inside else 0)


def may_be_lost(start: Place, first: Position, mark: Position | None) -> bool:
    """Return whether entries after ``start`` may be missing from a topic that now starts at ``first``.

    Within a ledger, missing entries can be counted. If the ledger of ``start`` no longer exists, it is unknown whether
    it had more entries, unless a subscription that has not moved beyond ``start`` has retained everything after it.

    Args:
        start: place at which to continue.
        first: first entry of the topic.
        mark: last acknowledged entry of such a subscription, or None.
    """
    if start == BEGINNING or start.position >= first:
        return False
    if start.ledger_id == first.ledger_id:
        return True
    # Apache Pulsar moves a subscription at the end of a ledger to the start of the next ledger.
    if mark is None or mark.ledger_id < 0:
        return True
    is_moved = mark.entry_id == -1 and start.ledger_id < mark.ledger_id <= first.ledger_id
    return mark > start.before and not is_moved
