"""A stream over topics: finds new data, and plans the next batch and the ranges that its tasks read.

Design: Spark requests the end of the topics, stores it with the batch number, and only then reads. A returned place
must therefore always denote the same messages, which holds because places refer to immutable entries. This object
stores nothing that Spark stores: every call passes the stream's position, and the object may be recreated at any time.
It keeps only connections and values that would change between calls: the position of "latest" on the first call, and
the end of a run that reads the available data.

Requests are retried for a while if a broker is unavailable, because an error here ends the query.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ....errors import (
    BrokerError,
    ConnectionLost,
    CredentialsUnavailable,
    DataLoss,
    OperationTimeout,
    TopicNotFound,
)
from ....tasks import Backoff
from ....wire.message_id import EARLIEST, LATEST
from ....wire.position import Position
from ..connection import Routes
from ..options import ReadOptions
from ..ranges import Span, TopicRange
from ..topic_metadata import bounds, matching, named_topics, place_of, spans_between, time_mark, time_of
from .admission import NO_LIMITS, Limits, Waiting, admit, must_wait
from .options import StreamOptions
from .places import BEGINNING, Place, Places, advance, behind, between, may_be_lost
from .sampling import Estimate, estimate
from .watch import Subscription, TopicWatch

DISCOVERY_S = 1.0
"""Minimum interval for discovering topics and partitions, as idle streams are polled many times per second."""
ESTIMATE_S = 0.1
"""Minimum interval per topic for updating estimates of entry sizes."""
_BACKOFF_S = (0.05, 2.0)
_Answer = TypeVar("_Answer")
log = logging.getLogger(__name__)


class TopicStream:
    """The input of one query. Not thread-safe."""

    def __init__(self, options: StreamOptions, clock: Callable[[], float] = time.monotonic):
        """Create the stream without connecting.

        Args:
            options: stream options.
            clock: returns monotonic seconds.
        """
        read = options.read
        self._options = options
        self._read: ReadOptions = read
        self._clock = clock
        self._routes = Routes(read.service_url, read.security, read.timeouts)
        name = options.subscription or read.subscription_prefix
        self._subscription = Subscription(name, is_durable=bool(options.subscription))
        self._watches: dict[str, TopicWatch] = {}
        self._names: dict[str, bool] = {}
        self._asked_names_s: float | None = None
        self._initial: dict[str, Place] | None = None
        self._last_batch_s: float | None = None
        self._fixed: dict[str, Place] | None = None
        self._newest: dict[str, Place] = {}
        self._estimates: dict[str, tuple[float, Estimate]] = {}

    # -- requests --------------------------------------------------------------------------------------------------

    def initial(self) -> Places:
        """Return the place at which a new query starts; always the same.

        A position from an option is not verified, because Spark also calls this method for existing queries, which
        continue at another place.

        Raises:
            TopicNotFound: a named topic does not exist.
            MagnetarError: a broker did not answer.
        """
        if self._initial is None:
            self._initial = self._persist(self._begin)
        return self._initial

    def latest(self, start: Places, limits: Limits = NO_LIMITS) -> Places:
        """Return the end of the next batch, or ``start`` without new data.

        Args:
            start: start of the batch, which is the place committed by Spark.
            limits: limits of the batch.

        Raises:
            DataLoss: entries after ``start`` are missing.
            MagnetarError: a broker did not answer.
        """
        return self._persist(lambda: self._latest(start, limits))

    def fix_end(self) -> None:
        """Limit `latest` to the messages that exist now; raises the same errors as `latest`."""
        self._asked_names_s = None
        self._fixed = self._persist(self._ends)

    def _ends(self) -> dict[str, Place]:
        ends = {}
        for topic in self._topics():
            with contextlib.suppress(TopicNotFound):  # `latest` decides whether that matters
                end = self._end_of(topic)
                if end is not None:
                    ends[topic] = end
        return ends

    def newest(self) -> Places:
        """Return the end of the topics at the last call of `latest`, without limits."""
        return self._newest

    def ranges(self, start: Places, end: Places) -> list[TopicRange]:
        """Return the entries between two places of the stream, as one range per topic with entries.

        Raises:
            DataLoss: some of these entries no longer exist.
            MagnetarError: a broker did not answer.
        """
        return self._persist(lambda: self._ranges(start, end))

    def acknowledge(self, places: Places) -> None:
        """Acknowledge to the broker all messages before places; raises the same errors as `latest`."""
        self._persist(lambda: self._acknowledge(places))

    def close(self) -> None:
        """Close all connections."""
        for topic in list(self._watches):
            self._drop(topic)

    def _persist(self, ask: Callable[[], _Answer]) -> _Answer:
        """Retry until brokers answer, for at most as long as a task waits for an entry."""
        backoff = Backoff(*_BACKOFF_S)
        deadline = self._clock() + self._read.poll_timeout_ms / 1000
        while True:
            try:
                return ask()
            except (ConnectionLost, OperationTimeout, BrokerError, CredentialsUnavailable) as error:
                pause_s = backoff.next_s()
                if getattr(error, "is_final", False) or self._clock() + pause_s >= deadline:
                    raise
                log.info("retrying the broker in %.1f s: %s", pause_s, error)
            self.close()
            time.sleep(pause_s)

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topics(self) -> Mapping[str, bool]:
        """Return the topics to read, and whether each may be missing."""
        now = self._clock()
        if self._fixed is None and (self._asked_names_s is None or now - self._asked_names_s >= DISCOVERY_S):
            read = self._read
            if read.pattern is not None:
                self._names = dict.fromkeys(matching(self._routes, read.pattern), True)
            else:
                self._names = self._named()
            self._asked_names_s = now
        return self._names

    def _named(self) -> dict[str, bool]:
        names: dict[str, bool] = {}
        for topic in self._read.topics:
            try:
                names |= named_topics(self._routes, (topic,))
            except TopicNotFound:
                names[topic.text] = False  # an error, if any, is raised when the end of the topic is requested
        return names

    def _watch(self, topic: str, place: Place) -> TopicWatch:
        watch = self._watches.get(topic)
        if watch is None:
            watch = self._watches[topic] = TopicWatch(self._routes, topic, self._subscription, place)
        return watch

    def _drop(self, topic: str) -> None:
        watch = self._watches.pop(topic, None)
        if watch is not None:
            watch.close()

    # -- start -----------------------------------------------------------------------------------------------------

    def _begin(self) -> dict[str, Place]:
        places = {}
        for topic, may_be_missing in self._topics().items():
            try:
                place = self._first_place(topic)
                if self._subscription.is_durable:
                    self._watch(topic, place)  # created if missing, and moved once its position is known
            except TopicNotFound:
                if may_be_missing or not self._read.fail_on_data_loss:
                    continue
                raise
            places[topic] = place
        return places

    def _first_place(self, topic: str) -> Place:
        read = self._read
        time_ms = time_of(read.starting_times_ms, topic, read.starting_time_ms)
        asked = place_of(read.starting, topic)
        if asked is not None and asked not in (EARLIEST, LATEST):
            return Place(asked.ledger_id, asked.entry_id, max(asked.batch_index, 0))
        with contextlib.closing(self._routes.connect_to(topic)) as connection:
            if time_ms is not None:
                mark = time_mark(connection, topic, time_ms, read.subscription_prefix)
                return BEGINNING if mark.ledger_id < 0 else behind(mark)
            first, newest = bounds(connection, topic, read.subscription_prefix)
        if first is None:
            return BEGINNING
        is_latest = asked == LATEST if asked is not None else read.starting.everywhere == "latest"
        return behind(newest.last) if is_latest else Place(*first)

    # -- the next batch --------------------------------------------------------------------------------------------

    def _latest(self, start: Places, limits: Limits) -> dict[str, Place]:
        self._acknowledge(start)
        names = self._topics()
        places = dict(start)
        for topic in [topic for topic in start if topic not in names]:
            self._lose(topic, f"{topic} no longer exists, or the options name it differently than before")
            del places[topic]
        spans: dict[str, tuple[Span, ...]] = {}
        newest: dict[str, Place] = {}
        for topic, may_be_missing in names.items():
            place = start.get(topic, BEGINNING)
            try:
                self._stand(topic, place)
                end = self._end_of(topic, place)
                newest[topic] = max(place, end or place)
                if self._fixed is not None:
                    end = self._fixed.get(topic)
                if end is not None and end > place:
                    spans[topic] = self._stretch(topic, place, end)
            except TopicNotFound:
                self._drop(topic)
                if place != BEGINNING:
                    self._lose(topic, f"{topic} no longer exists")
                    places.pop(topic, None)
                elif not may_be_missing and self._read.fail_on_data_loss:
                    raise
        self._newest = newest
        return self._admitted(places, {topic: found for topic, found in spans.items() if found}, limits)

    def _admitted(
        self, places: dict[str, Place], spans: Mapping[str, tuple[Span, ...]], limits: Limits
    ) -> dict[str, Place]:
        waiting = [self._waiting(topic, found, len(spans), limits) for topic, found in spans.items()]
        if not waiting:
            return places
        since_s = None if self._last_batch_s is None else self._clock() - self._last_batch_s
        if self._fixed is None and must_wait(waiting, limits, since_s):
            return places
        for topic, entries in admit(waiting, limits).items():
            places[topic] = advance(spans[topic], entries)
        self._last_batch_s = self._clock()
        return places

    def _waiting(self, topic: str, spans: Iterable[Span], topics: int, limits: Limits) -> Waiting:
        entries = sum(span.entries for span in spans)
        if not limits.needs_estimates:
            return Waiting(topic, entries)
        now = self._clock()
        asked_s, known = self._estimates.get(topic, (None, None))
        if known is None or asked_s is None or now - asked_s > ESTIMATE_S * (topics - 1):
            first = next(iter(spans))
            prefix = self._read.subscription_prefix
            position = Position(first.ledger_id, first.first)
            known = estimate(self._routes, topic, position, entries, prefix)
            self._estimates[topic] = now, known
        return Waiting(topic, entries, known.rows, known.size)

    def _stand(self, topic: str, place: Place) -> None:
        """Move the topic's subscription to a place, and check whether entries after it are missing."""
        watch = self._watch(topic, place)
        watch.stand_at(place)
        if not self._subscription.is_durable or watch.has_held or place == BEGINNING:
            return
        with contextlib.closing(self._routes.connect_to(topic)) as connection:
            first, _ = bounds(connection, topic, self._read.subscription_prefix)
        if first is not None and not may_be_lost(place, first, None):
            watch.trust()

    def _end_of(self, topic: str, place: Place = BEGINNING) -> Place | None:
        """Return the place after the newest entry of a topic, or None if the topic is empty."""
        last = self._watch(topic, place).last_message().last
        return behind(last) if last.entry_id >= 0 else None

    # -- entries ---------------------------------------------------------------------------------------------------

    def _ranges(self, start: Places, end: Places) -> list[TopicRange]:
        ranges = []
        for topic, until in end.items():
            place = start.get(topic, BEGINNING)
            if until <= place:
                continue
            try:
                spans = self._stretch(topic, place, until)
            except TopicNotFound:
                self._lose(topic, f"{topic} no longer exists, but entries {place} to {until} are still to be read")
                continue
            found = between(topic, spans, place, until)
            if found is not None:
                ranges.append(found)
        return ranges

    def _stretch(self, topic: str, start: Place, end: Place) -> tuple[Span, ...]:
        """Return the entries from one place (inclusive) to another (exclusive), ledger by ledger."""
        if start.ledger_id == end.ledger_id:
            # If some of these entries no longer exist, the task that reads them detects the loss.
            return (Span(start.ledger_id, start.entry_id, end.entry_id - 1),) if start < end else ()
        read = self._read
        with contextlib.closing(self._routes.connect_to(topic)) as connection:
            first, newest = bounds(connection, topic, read.subscription_prefix)
        if first is None:
            self._lose(topic, f"{topic} is empty, but entries {start} to {end} are still to be read")
            return ()
        begin = first if start == BEGINNING else start.position
        if begin < first:
            self._check_begin(topic, start, first)
            begin = first
        last = min(newest.last, end.before)
        return spans_between(self._routes, topic, begin, last, read.admin_url, read.subscription_prefix)

    def _check_begin(self, topic: str, start: Place, first: Position) -> None:
        watch = self._watches.get(topic)
        mark = watch.last_message().mark_delete if watch is not None and watch.has_held else None
        if may_be_lost(start, first, mark):
            self._lose(
                topic,
                f"{topic} begins at {first}, but {start} is next: the messages between them may be lost, or the topic"
                " was deleted and recreated",
            )

    def _lose(self, topic: str, what: str) -> None:
        self._drop(topic)
        if self._read.fail_on_data_loss:
            raise DataLoss(
                f"{what}; set failOnDataLoss=false to continue with the remaining data, and set predefinedSubscription"
                " or a retention policy to make the broker retain messages"
            )
        log.warning("%s", what)

    def _acknowledge(self, places: Places) -> None:
        for topic, place in places.items():
            watch = self._watches.get(topic)
            if watch is not None:
                watch.acknowledge(place)
