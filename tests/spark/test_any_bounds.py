"""Reads from any position to any other, cut into any number of ranges, against a list. No Spark."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from magnetar.errors import DataLoss, InvalidConfig
from magnetar.spark.source.options import ReadOptions, read_options
from magnetar.spark.source.range_reader import RangeReader
from magnetar.wire.message_id import deserialize
from magnetar.wire.position import Position

from tests.spark.conftest import SmallLedgers
from tests.spark.topics import fill, options_for, planned, publish, read_all

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SIZES = ((3, 1, 0, 5), (0, 0, 2), (), (), (4,) * 12, (1, 7, 0), ())
"""Messages in the entries of each time that the topic is loaded; 0 is one without a batch."""


class Row(NamedTuple):
    ledger: int
    entry: int
    place: int
    value: bytes


class Known(NamedTuple):
    topic: str
    rows: list[Row]


@pytest.fixture(scope="module")
def known(broker: SmallLedgers) -> Known:
    """A topic in ledgers of several sizes, some of them empty."""
    topic = broker.topic()
    number = 0
    for sizes in SIZES:
        for size in sizes:
            values = [b"%d" % (number + offset) for offset in range(max(size, 1))]
            number += len(values)
            if size:
                fill(broker.service_url, topic, [values])
            else:
                publish(broker.service_url, topic, values[0])
        broker.unload(topic)
    options = options_for(broker.service_url, topic)
    rows = []
    for row in read_all(options, planned(options)):
        id_ = deserialize(row["__messageId"])
        rows.append(Row(id_.ledger_id, id_.entry_id, max(id_.batch_index, 0), row["value"]))
    assert [row.value for row in rows] == [b"%d" % count for count in range(number)]
    return Known(topic, rows)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_two_positions_bound_what_is_read(broker: SmallLedgers, known: Known, data: st.DataObject) -> None:
    rows = known.rows
    bounds = {}
    begin, end = rows[0], rows[-1]
    if data.draw(st.booleans(), "has start"):
        begin = data.draw(st.sampled_from(rows), "start")
        bounds["startingOffsets"] = begin
    if data.draw(st.booleans(), "has end"):
        end = data.draw(st.sampled_from(rows), "end")
        bounds["endingOffsets"] = end
    whole = data.draw(st.booleans(), "whole entries")
    options = {
        name: f"{row.ledger}:{row.entry}" if whole else f"{row.ledger}:{row.entry}:{row.place}"
        for name, row in bounds.items()
    }
    first = begin[:2] if whole else begin[:3]
    last = end[:2] if whole else end[:3]
    expected = [row.value for row in rows if first <= row[: len(first)] and row[: len(last)] <= last]
    ranges = data.draw(st.integers(1, 12), "ranges")
    if len(bounds) == 2 and begin[:2] > end[:2]:
        with pytest.raises(InvalidConfig, match="is after its endingOffsets"):
            options_for(broker.service_url, known.topic, **options)
        return
    read = options_for(broker.service_url, known.topic, minPartitions=str(ranges), **options)
    assert [row["value"] for row in read_all(read, planned(read))] == expected


def test_reading_goes_on_behind_the_last_entry_of_a_ledger(broker: SmallLedgers, known: Known) -> None:
    """Who notes where to go on counts one up; the ledger may have ended there since."""
    for before, row in zip(known.rows, known.rows[1:], strict=False):
        if row.ledger > before.ledger:
            options = options_for(
                broker.service_url, known.topic, startingOffsets=f"{before.ledger}:{before.entry + 1}"
            )
            expected = [one.value for one in known.rows if one.ledger >= row.ledger]
            assert [one["value"] for one in read_all(options, planned(options))] == expected


def test_a_place_that_never_was_is_said(broker: SmallLedgers, known: Known) -> None:
    first = known.rows[0]
    options = options_for(broker.service_url, known.topic, startingOffsets=f"{first.ledger}:{first.entry + 500}")
    with pytest.raises(DataLoss, match="does not have start position"):
        planned(options)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_ledger_that_ends_early_under_a_reader_is_a_loss_if_it_was_deleted(
    broker: SmallLedgers, topic: str, is_deleted: bool
) -> None:
    """Brokers may also leave out entries that are not for readers: ends of transactions on Apache Pulsar."""
    fill(broker.service_url, topic, [[b"%d" % number] for number in range(25)])
    options = options_for(broker.service_url, topic)
    [wanted] = planned(options)
    reader = RangeReader(wanted, ReadOptions(service_url=options.service_url, poll_timeout_ms=10_000))
    first, second = wanted.spans[:2]
    for entry in range(4):
        assert reader._pass(Position(first.ledger_id, entry), entry == 0)
    if not is_deleted:
        assert reader._pass(Position(second.ledger_id, 0), False)
        return
    broker.trim(topic)
    with pytest.raises(DataLoss, match="at least 16 entries are lost"):
        reader._pass(Position(wanted.spans[2].ledger_id, 0), False)


def test_positions_of_topics_that_a_pattern_does_not_find_are_refused(broker: SmallLedgers, topic: str) -> None:
    fill(broker.service_url, topic, [[b"a"], [b"b"]])
    given = {"service.url": broker.service_url, "topicsPattern": f"{topic}()"}
    [first] = planned(read_options(given))
    assert first.entries == 2
    [second] = planned(read_options(given | {"startingOffsets": f'{{"{topic}": "{first.end}"}}'}))
    assert (second.start, second.end) == (first.end, first.end)
    other = read_options(given | {"startingOffsets": f'{{"{topic}-x": "{first.end}"}}'})
    with pytest.raises(InvalidConfig, match=r"startingOffsets names .*-x, which does not match topicsPattern="):
        planned(other)
