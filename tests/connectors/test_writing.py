"""What becomes of records that a sink refuses, fails at or cannot take at the moment; decided without an instance."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from magnetar.api.connector import Batching, ConnectorContext, Record, RecordRefused, Retry, Sink
from magnetar.instance.acks.retries import FIRST_RETRY_S, LONGEST_RETRY_S
from magnetar.instance.connectors.records import Placed
from magnetar.instance.connectors.session import ConnectorSession, OpenFailed
from magnetar.instance.connectors.writing import Outcome, RecordWriter, Rules, WriteFailed
from magnetar.instance.stopping import InstanceStopping

NO_CONTEXT: Any = None


class Keeper(Sink):
    """Keeps numbers; of some it refuses so many tries, and at others it fails."""

    def __init__(self, refusals: dict[int, int], bugs: Sequence[int] = (), *, is_exact: bool = True) -> None:
        self.refusals = dict(refusals)
        self.bugs = set(bugs)
        self.kept: list[int] = []
        self.calls: list[list[int]] = []
        self.is_exact = is_exact

    def write_batch(self, records: Sequence[Record]) -> None:
        numbers = [record.value for record in records]
        self.calls.append(numbers)
        if self.bugs & set(numbers):
            raise ZeroDivisionError("a bug")
        for index, number in enumerate(numbers):
            if self.refusals.get(number, 0):
                self.refusals[number] -= 1
                written = index if self.is_exact else 0
                self.kept += numbers[:written]
                raise RecordRefused(f"not {number}", index, written)
        self.kept += numbers


class OneByOne(Keeper):
    """The same, record by record."""

    write_batch = Sink.write_batch  # type: ignore[assignment]

    def write(self, record: Record) -> None:
        Keeper.write_batch(self, [record])


class Quick(ConnectorSession):
    """Does not wait."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink, {}, _context(), logging.getLogger("test"))
        self.waited: list[float] = []

    def pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        if self.is_stopping:
            raise InstanceStopping

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def _context() -> ConnectorContext:
    return NO_CONTEXT  # type: ignore[no-any-return]


def writer_of(sink: Sink, rules: Rules, records: int = 1000) -> RecordWriter:
    return RecordWriter(sink, Quick(sink), Batching(records), rules)


def placed(count: int) -> list[Placed]:
    return [Placed(number, Record(number, message_id=f"7:{number}:-1", topic="in")) for number in range(count)]


def write_all(writer: RecordWriter, count: int) -> Outcome:
    """Write records, and those that are put aside until none is left."""
    outcome = Outcome()
    writer.write(placed(count), [1] * count, outcome)
    while outcome.later:
        later, outcome.later = outcome.later, []
        for one in later:
            writer.write_again(one, outcome)
    return outcome


REFUSALS = some.dictionaries(some.integers(0, 29), some.integers(1, 6), max_size=12)


@given(REFUSALS, some.integers(0, 4), some.booleans(), some.integers(1, 40), some.booleans())
def test_every_record_is_kept_once_or_given_away(
    refusals: dict[int, int], retries: int, in_order: bool, batch: int, one_by_one: bool
) -> None:
    sink = (OneByOne if one_by_one else Keeper)(refusals)
    outcome = write_all(writer_of(sink, Rules(in_order=in_order, retries=retries), batch), 30)
    given_away = sorted(number for number, tries in refusals.items() if tries > retries)
    assert sorted(position for position, _ in outcome.refused) == given_away
    assert sorted(sink.kept) == sorted(outcome.written) == [n for n in range(30) if n not in given_away]
    assert not outcome.lost
    if in_order:
        assert sink.kept == sorted(sink.kept)


@given(REFUSALS, some.integers(0, 3), some.booleans())
def test_a_sink_that_does_not_know_what_it_has_written_loses_nothing(
    refusals: dict[int, int], retries: int, in_order: bool
) -> None:
    sink = Keeper(refusals, is_exact=False)
    outcome = write_all(writer_of(sink, Rules(in_order=in_order, retries=retries)), 30)
    given_away = {number for number, tries in refusals.items() if tries > retries}
    assert {position for position, _ in outcome.refused} == given_away
    assert set(sink.kept) == set(outcome.written) == set(range(30)) - given_away


@given(some.sets(some.integers(0, 29), min_size=1, max_size=5), some.integers(1, 3), some.booleans())
def test_a_bug_gives_its_record_away_where_retries_are_set(bugs: set[int], retries: int, in_order: bool) -> None:
    sink = Keeper({}, list(bugs))
    outcome = write_all(writer_of(sink, Rules(in_order=in_order, retries=retries), 10), 30)
    assert {position for position, _ in outcome.refused} == bugs
    assert sorted(sink.kept) == sorted(set(range(30)) - bugs)
    assert all([bug] in sink.calls for bug in bugs)


def test_a_bug_ends_the_instance_at_its_record_where_no_retries_are_set() -> None:
    sink = Keeper({}, [4])
    outcome = Outcome()
    with pytest.raises(WriteFailed, match=r"message 7:4:-1 of in: ZeroDivisionError: a bug; it is redelivered"):
        writer_of(sink, Rules()).write(placed(10), [1] * 10, outcome)
    assert sink.kept == outcome.written == [0, 1, 2, 3]
    assert not outcome.refused


@pytest.mark.parametrize("error", [PermissionError("wrong password"), RecordRefused("wrong"), ValueError("two\nlines")])
@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_sink_that_cannot_be_opened_gives_no_record_away(error: Exception, at_most_once: bool) -> None:
    class Closed(Keeper):
        opened = 0

        def open(self, config: Any, context: Any) -> None:
            self.opened += 1
            if self.opened == 1 or not isinstance(error, OSError):
                raise error

    sink, outcome = Closed({}), Outcome()
    writer = writer_of(sink, Rules(at_most_once=at_most_once, retries=3))
    if isinstance(error, OSError):  # the other system may be away
        writer.write(placed(3), [1] * 3, outcome)
        assert sink.kept == [0, 1, 2]
        return
    with pytest.raises(OpenFailed, match=r"^open failed: (wrong|ValueError: two lines); it is retried at each"):
        writer.write(placed(3), [1] * 3, outcome)
    assert outcome == Outcome()
    assert not sink.calls


def test_pauses_between_tries_grow_or_are_what_is_set() -> None:
    pauses = [Rules(retries=99).pause_s(refusals) for refusals in range(1, 99)]
    assert pauses[:3] == [FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
    assert pauses[-1] == LONGEST_RETRY_S
    assert Rules(retry_s=5).pause_s(7) == 5
    sink = Keeper({3: 2})
    writer = writer_of(sink, Rules(in_order=True, retries=2))
    write_all(writer, 5)
    assert writer._session.waited == pytest.approx([FIRST_RETRY_S, 2 * FIRST_RETRY_S], rel=0.5)  # type: ignore[attr-defined]
    assert sink.kept == [0, 1, 2, 3, 4]


def test_at_most_once_makes_no_call_twice() -> None:
    class Flaky(Keeper):
        def write_batch(self, records: Sequence[Record]) -> None:
            self.calls.append([record.value for record in records])
            if len(self.calls) == 2:
                raise Retry("away")
            self.kept += self.calls[-1]

    sink = Flaky({})
    outcome = write_all(writer_of(sink, Rules(at_most_once=True), 10), 30)
    assert sink.calls == [list(range(10)), list(range(10, 20)), list(range(20, 30))]
    assert [position for position, _ in outcome.lost] == list(range(10, 20))
    assert sink.kept == outcome.written == [*range(10), *range(20, 30)]


def test_a_stop_in_a_pause_leaves_the_rest_open() -> None:
    sink = Keeper({3: 9})
    writer = writer_of(sink, Rules(in_order=True, retries=9))
    writer._session.request_stop()
    outcome = Outcome()
    with pytest.raises(InstanceStopping):
        writer.write(placed(5), [1] * 5, outcome)
    assert outcome.written == [0, 1, 2]
    assert not outcome.refused
