"""Where a stream stands in its topics, as JSON that a person can read. Pure functions.

A place names the first message that has not been read: ``5:18`` is entry 18 of ledger 5, ``5:18:3`` message 3 of the
batch in it. The places of a stream are its offsets in Spark's checkpoint and progress::

    {"persistent://public/default/orders": {"0": "5:18", "1": "7:0"}, "persistent://public/default/refunds": "9:4"}

by partition where a topic has some. A topic that is not named is read from its beginning. The end of a batch also says
into how many tasks the batch is cut, so that it is cut alike when it is run again on a machine with more cores or with
another ``minPartitions``::

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
    """The first message that has not been read.

    Attributes:
        ledger_id: of its entry; -1 for the beginning of a topic.
        entry_id: it need not be there yet: behind the last one of a ledger the next ledger goes on.
        batch_index: in its batch.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = 0

    @property
    def position(self) -> Position:
        """The entry."""
        return Position(self.ledger_id, self.entry_id)

    @property
    def before(self) -> Position:
        """The entry before it, of which nothing is left to read."""
        return Position(self.ledger_id, self.entry_id - 1)

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return f"{text}:{self.batch_index}" if self.batch_index else text


BEGINNING = Place(-1, 0)
"""Of any topic."""
Places = Mapping[str, Place]
"""By full names, of partitions where there are some."""


def behind(position: Position) -> Place:
    """Return the place behind an entry."""
    return Place(position.ledger_id, position.entry_id + 1)


def to_json(places: Places) -> dict[str, Any]:
    """Return places for Spark, which compares them as text: in a fixed order, beginnings left out."""
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
    """How a batch is cut into tasks.

    Attributes:
        tasks: at least so many, as far as there are entries.
        entries: that a task has at least, where a topic has so many.
    """

    tasks: int
    entries: int = 1


def with_cut(record: Mapping[str, Any], cut: Cut) -> dict[str, Any]:
    """Return the record of places where a batch ends, with how the batch is cut."""
    return {CUT: {"tasks": cut.tasks, "entriesPerTask": cut.entries}, **record}


def cut_of(record: Mapping[str, Any]) -> Cut | None:
    """Return how the batch is cut that ends at a record; None if an older version wrote it."""
    if not is_cut(CUT, record.get(CUT)):
        return None
    return Cut(record[CUT]["tasks"], record[CUT]["entriesPerTask"])


def from_json(record: Mapping[str, Any]) -> dict[str, Place]:
    """Return the places of a record that `to_json` or `with_cut` made.

    Raises:
        InvalidConfig: it is another's, such as the checkpoint of a query with another source.
    """
    places = {}
    for topic, value in record.items():
        if is_cut(topic, value):
            continue
        if isinstance(value, Mapping):
            name = parse_topic_name(topic)
            for partition, text in value.items():
                if not re.fullmatch(r"\d+", str(partition)):
                    raise InvalidConfig(f"offset {record!r} names partition {partition!r} of {topic}; {_REMEDY}")
                places[name.partition_name(int(partition)).text] = _place(topic, text)
        else:
            places[parse_topic_name(topic).text] = _place(topic, value)
    return places


_REMEDY = "is the checkpoint of another query? give each one its own checkpointLocation"


def _place(topic: str, text: object) -> Place:
    if not isinstance(text, str) or not re.fullmatch(r"\d+:\d+(:\d+)?", text):
        raise InvalidConfig(f"invalid offset {text!r} of {topic}: expected a position such as '5:18': {_REMEDY}")
    return Place(*map(int, text.split(":")))


def advance(spans: Sequence[Span], entries: int) -> Place:
    """Return the place behind the first ``entries`` (one or more, as far as there are) of spans."""
    for span in spans:
        if entries <= span.entries:
            return Place(span.ledger_id, span.first + entries)
        entries -= span.entries
    return Place(spans[-1].ledger_id, spans[-1].last + 1)


def between(topic: str, spans: Sequence[Span], start: Place, end: Place) -> TopicRange | None:
    """Return what of spans lies from ``start`` up to and without ``end``, None if that is nothing."""
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
    """Return whether entries from ``start`` on may be missing from a topic that now begins at ``first``.

    Entries of one ledger are counted, those of several are not: if the ledger of ``start`` no longer exists, it is
    unknown whether it had more entries. But a subscription that has not moved beyond ``start`` has retained everything
    after it.

    Args:
        start: the place to continue at.
        first: the topic's first entry.
        mark: the last acknowledged entry of such a subscription, None without one.
    """
    if start == BEGINNING or start.position >= first:
        return False
    if start.ledger_id == first.ledger_id:
        return True
    # Apache Pulsar moves a subscription that is at the end of a ledger to the beginning of the next one.
    if mark is None or mark.ledger_id < 0:
        return True
    is_moved = mark.entry_id == -1 and start.ledger_id < mark.ledger_id <= first.ledger_id
    return mark > start.before and not is_moved
