"""Topic metadata for planning a read: partitions, ledgers, first and last entries, and positions of times.

Design: this module uses the binary protocol, so that a service URL is sufficient. A reader of the topic provides its
first and last entry. The ledgers between them are found one by one: a reader that moves past the end of ledger L
receives the first entry of the next ledger, and its mark-delete position is the end of L. If the address of the REST
interface is known, a single request (internalStats) returns all ledgers.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ...errors import DataLoss, InvalidConfig, OperationTimeout, TopicNotFound
from ...tasks import Backoff
from ...wire.message_id import EARLIEST, LATEST, MessageId
from ...wire.position import Position
from ...wire.topic_name import TopicName, parse_topic_name
from .connection import REQUEST_TIMEOUT_S, BlockingConnection, Routes, ask
from .offsets import Offsets
from .options import ReadOptions, check_pattern
from .ranges import Span, TopicRange, clip, holds, plan
from .reader import NAME_PREFIX, BlockingReader, LastMessage, ReaderClosed
from .streaming.places import BEGINNING, Place, behind

BEHIND_ANY = (1 << 62) - 1
"""Entry id that is larger than any in a ledger."""
_BACKOFF_S = (0.05, 2.0)
_Found = TypeVar("_Found")


class ReadPlan(NamedTuple):
    """The plan of a batch.

    Attributes:
        ranges: ranges to read.
        ends: position of the first message after the read, by full topic name; topics without messages are omitted.
    """

    ranges: list[TopicRange]
    ends: dict[str, Place]


def plan_read(options: ReadOptions, default_ranges: int, min_entries: int) -> list[TopicRange]:
    """Same as `plan_with_ends`, but return only the ranges."""
    return plan_with_ends(options, default_ranges, min_entries).ranges


def plan_with_ends(options: ReadOptions, default_ranges: int, min_entries: int) -> ReadPlan:
    """Plan a batch that ends with the messages published so far.

    Args:
        options: read options.
        default_ranges: default number of ranges.
        min_entries: default minimum number of entries per range.

    Raises:
        TopicNotFound: a named topic does not exist.
        DataLoss: a start position no longer exists in the topic.
        MagnetarError: the broker does not answer.
    """
    routes = Routes(options.service_url, options.security, options.timeouts)
    wholes, ends = [], {}
    for topic, may_be_missing in topics_to_read(routes, options):
        try:
            whole, end = extent(routes, topic, options)
        except TopicNotFound:
            if not may_be_missing:
                raise
            continue
        if whole is not None:
            wholes.append(whole)
        if end != BEGINNING:
            ends[topic] = end
    if not wholes:
        return ReadPlan([], ends)
    if options.min_partitions is not None:
        return ReadPlan(plan(wholes, options.min_partitions), ends)
    return ReadPlan(plan(wholes, default_ranges, min_entries), ends)


def topics_to_read(routes: Routes, options: ReadOptions) -> list[tuple[str, bool]]:
    """Return the full names of the topics to read, in order, and whether each may be missing.

    Partitions are listed by their own names. A partition without published messages may not exist yet, which counts as
    empty.
    """
    if options.pattern is not None:
        names = matching(routes, options.pattern)
        if not names:
            raise TopicNotFound(
                f"no topic matches topicsPattern={options.pattern!r}; run magnetar topics list to see the existing"
                " topics"
            )
        _check_named(names, options)
        # A topic deleted between the two requests has no messages either.
        return [(name, True) for name in names]
    return list(named_topics(routes, options.topics).items())


def named_topics(routes: Routes, topics: Sequence[TopicName]) -> dict[str, bool]:
    """Return the full names of topics or their partitions, and whether each may be missing."""
    found: dict[str, bool] = {}
    for topic in topics:
        count = routes.partitions(topic) if topic.partition < 0 else 0
        found |= {topic.partition_name(index).text: True for index in range(count)} if count else {topic.text: False}
    return found


def matching(routes: Routes, pattern: str) -> list[str]:
    """Return the full names of the topics that match a pattern, with partitions listed separately."""
    expression = re.compile(pattern)
    is_local = "/" not in pattern
    found = []
    for text in routes.topics_of(check_pattern(pattern)):
        base = parse_topic_name(text).base
        # Match with and without the scheme, because users write patterns both ways, and by local name, as in Kafka.
        spellings = [base.text, base.text.partition("://")[2], *([base.local] if is_local else [])]
        if any(expression.fullmatch(one) for one in spellings):
            found.append(text)
    return sorted(found, key=_natural)


def _check_named(names: list[str], options: ReadOptions) -> None:
    """Reject positions for topics that do not match the pattern."""
    found = {*names, *(parse_topic_name(name).base.text for name in names)}
    for option, offsets in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        for name in offsets.by_topic:
            if name not in found:
                raise InvalidConfig(f"{option} names {name}, which does not match topicsPattern={options.pattern!r}")


def _natural(text: str) -> tuple[str, int]:
    name = parse_topic_name(text)
    return name.base.text, name.partition


def extent(routes: Routes, topic: str, options: ReadOptions) -> tuple[TopicRange | None, Place]:
    """Return the part of a topic that the options select, or None, and the start of the next read."""
    return _with_open_readers(lambda: _extent(routes, topic, options))


def _with_open_readers(look: Callable[[], _Found]) -> _Found:
    """Retry if the broker closes a reader, because an unloaded topic is immediately available again."""
    backoff = Backoff(*_BACKOFF_S)
    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return look()
        except ReaderClosed:
            pause_s = backoff.next_s()
            if time.monotonic() + pause_s >= deadline_s:
                raise
        time.sleep(pause_s)


def _extent(routes: Routes, topic: str, options: ReadOptions) -> tuple[TopicRange | None, Place]:
    prefix = options.subscription_prefix
    with contextlib.closing(routes.connect_to(topic)) as connection:
        spans, last_index = _spans(routes, connection, topic, options.admin_url, prefix)
        if not spans:
            return None, BEGINNING
        start, end = place_of(options.starting, topic), place_of(options.ending, topic)
        begin = _checked_start(start, spans, topic, options.fail_on_data_loss)
        until = Position(end.ledger_id, end.entry_id) if end is not None else None
        first_index = max(start.batch_index, 0) if start is not None and begin == start[:2] else 0
        stop_index: int | None = end.batch_index if end is not None and end.batch_index >= 0 else None
        from_ms = time_of(options.starting_times_ms, topic, options.starting_time_ms)
        if from_ms is not None:
            begin, first_index = _after(time_mark(connection, topic, from_ms, prefix)), 0
        to_ms = time_of(options.ending_times_ms, topic, options.ending_time_ms)
        if to_ms is not None:
            until, stop_index = time_mark(connection, topic, to_ms + 1, prefix), None
    kept = clip(spans, begin, until)
    if not kept:
        if begin is None:
            return None, BEGINNING if until is None else behind(until)
        newest = Position(spans[-1].ledger_id, spans[-1].last)
        return None, behind(newest) if begin == LATEST[:2] else Place(*begin, first_index)
    last = Position(kept[-1].ledger_id, kept[-1].last)
    if stop_index is not None and until != last:
        stop_index = None  # the end position is after the end of the topic
    ended = behind(last) if stop_index is None else Place(*last, stop_index + 1)
    if stop_index is None and last == (spans[-1].ledger_id, spans[-1].last) and last_index >= 0:
        stop_index = last_index
    return TopicRange(topic, kept, first_index, stop_index), ended


def backlog(routes: Routes, topic: str, done: Position, admin_url: str | None) -> TopicRange | None:
    """Return the part of a topic after the entry ``done``, in whole entries, or None.

    Raises:
        TopicNotFound: the topic does not exist.
        MagnetarError: the broker does not answer.
    """

    def look() -> tuple[Span, ...]:
        with contextlib.closing(routes.connect_to(topic)) as connection:
            return _spans(routes, connection, topic, admin_url)[0]

    kept = clip(_with_open_readers(look), _after(done), None)
    return TopicRange(topic, kept) if kept else None


def time_of(times_ms: Mapping[str, int], topic: str, everywhere_ms: int | None) -> int | None:
    """Look up the time for a topic or partition in times by topic; return None if it is missing."""
    base = parse_topic_name(topic).base.text
    return times_ms.get(topic, times_ms.get(base, everywhere_ms))


def place_of(offsets: Offsets, topic: str) -> MessageId | None:
    """Return a position as a message id, or None for no bound; in a partitioned topic the id names the partition."""
    if topic in offsets.by_topic:
        return offsets.by_topic[topic]
    name = parse_topic_name(topic)
    whole = offsets.by_topic.get(name.base.text)
    if whole is None or name.partition < 0:
        return None
    if whole in (EARLIEST, LATEST):
        return whole
    if whole.partition < 0:
        raise InvalidConfig(
            f"{name.base} is partitioned, so positions must name a partition: '{name.base}-partition-N'"
        )
    return whole if whole.partition == name.partition else None


def _checked_start(
    start: MessageId | None, spans: tuple[Span, ...], topic: str, fail_on_data_loss: bool
) -> Position | None:
    """Return the start of a read; a deleted position is data loss, but a position after the end is not."""
    if start is None or start == EARLIEST:
        return None
    position = Position(start.ledger_id, start.entry_id)
    first = Position(spans[0].ledger_id, spans[0].first)
    last = Position(spans[-1].ledger_id, spans[-1].last)
    # After the last entry of a ledger, reading continues in the next ledger, so an incremented offset may be one entry
    # past the end of a ledger.
    is_there = holds(spans, position) or holds(spans, Position(position.ledger_id, position.entry_id - 1))
    is_gone = position < first or (position < last and not is_there)
    if is_gone and fail_on_data_loss:
        raise DataLoss(
            f"{topic} does not have start position {position}; it holds {first} to {last}: start at another position,"
            " or set failOnDataLoss=false to continue with the remaining data"
        )
    return position


def _after(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)


def time_mark(connection: BlockingConnection, topic: str, time_ms: int, prefix: str = NAME_PREFIX) -> Position:
    """Return the last entry before the first one published at or after a time."""
    reader = BlockingReader(connection, topic, EARLIEST, prefix)
    reader.seek_to_time(time_ms)
    newest = reader.last_message()
    reader.close()
    if newest.mark_delete is None:
        raise InvalidConfig(
            f"{connection.address.physical} cannot look up positions by time: use startingOffsets and endingOffsets"
        )
    return newest.mark_delete


def bounds(
    connection: BlockingConnection, topic: str, prefix: str = NAME_PREFIX
) -> tuple[Position | None, LastMessage]:
    """Return the first entry of a topic, or None, and the last message."""
    reader = BlockingReader(connection, topic, EARLIEST, prefix)
    newest = reader.last_message()
    first: Position | None = None
    if newest.last.entry_id >= 0:
        mark = newest.mark_delete
        first = _after(mark) if mark is not None else _first_entry(reader, topic)
    reader.close()
    return first, newest


def _spans(
    routes: Routes, connection: BlockingConnection, topic: str, admin_url: str | None, prefix: str = NAME_PREFIX
) -> tuple[tuple[Span, ...], int]:
    """Return the entries of a topic, ledger by ledger, and the batch index of the newest message."""
    first, newest = bounds(connection, topic, prefix)
    if first is None:
        return (), -1
    return spans_between(routes, topic, first, newest.last, admin_url, prefix), newest.last_index


def spans_between(
    routes: Routes, topic: str, first: Position, last: Position, admin_url: str | None, prefix: str = NAME_PREFIX
) -> tuple[Span, ...]:
    """Return the entries of a topic from ``first`` to ``last``, both inclusive, ledger by ledger.

    Args:
        routes: connects to the topic's broker.
        topic: full topic name.
        first: position after which no entry has been deleted; may be after the last entry of its ledger.
        last: existing entry.
        admin_url: URL of the REST interface, which returns all ledgers in one response; None to find them one by one.
        prefix: prefix of the subscription names that this requires.
    """
    if first.ledger_id == last.ledger_id:
        return (Span(*first, last.entry_id),) if first <= last else ()
    if admin_url is not None:
        path = f"/admin/v2/{parse_topic_name(topic).rest_path}/internalStats"
        statistics = ask(admin_url, "GET", path, credentials=routes.credentials)
        return clip(_spans_of_statistics(statistics, last), first, last)
    found: list[Span] = []
    # A reader before the first entry may be at the end of a deleted ledger, of which no entry arrives.
    ledger, entry = first
    while ledger < last.ledger_id:
        end, following = _end_of_ledger(routes, topic, ledger, prefix)
        if entry <= end:
            found.append(Span(ledger, entry, end))
        ledger, entry = following
    if ledger == last.ledger_id and entry <= last.entry_id:
        found.append(Span(ledger, entry, last.entry_id))
    return tuple(found)


def _end_of_ledger(routes: Routes, topic: str, ledger_id: int, prefix: str) -> tuple[int, Position]:
    """Return the last entry of a ledger that is not the newest, and the first entry after it."""
    # Use a separate connection, so that surplus entries from the broker are discarded with it.
    with contextlib.closing(routes.connect_to(topic)) as connection:
        reader = BlockingReader(connection, topic, EARLIEST, prefix)
        reader.seek_to_id(MessageId(ledger_id, BEHIND_ANY))
        mark = reader.last_message().mark_delete
        following = _first_entry(reader, topic)
    if mark is None or mark.ledger_id > ledger_id or mark.entry_id >= BEHIND_ANY - 1:
        raise InvalidConfig(
            f"{connection.address.physical} does not report where ledger {ledger_id} of {topic} ends: set option"
            " admin.url to its REST address"
        )
    # This is before the first remaining entry if the ledger was deleted meanwhile.
    return mark.entry_id if mark.ledger_id == ledger_id else -1, following


def _first_entry(reader: BlockingReader, topic: str) -> Position:
    reader.flow(1)
    entry = reader.next_entry(time.monotonic() + REQUEST_TIMEOUT_S)
    if entry is None:
        raise OperationTimeout(f"received no entry of {topic} within {REQUEST_TIMEOUT_S:g} s: retry")
    return entry[0]


def _spans_of_statistics(statistics: dict[str, Any], last: Position) -> tuple[Span, ...]:
    spans = []
    for ledger in statistics["ledgers"]:
        # The open ledger counts as empty.
        entries = last.entry_id + 1 if ledger["ledgerId"] == last.ledger_id else ledger["entries"]
        if entries > 0:
            spans.append(Span(ledger["ledgerId"], 0, entries - 1))
    return tuple(spans)
