"""Numbers of a stream's entries, on a model of the broker: attempts that die anywhere, and rows that come otherwise."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig, MagnetarError
from magnetar.spark.source.entry_boundaries import RowEntry
from magnetar.spark.source.streaming.epochs import (
    DIGEST_BITS,
    MAX_ENTRIES,
    MAX_EPOCH,
    CheckpointBehind,
    EntryNumber,
    EpochChain,
    RowsDiffer,
)
from magnetar.spark.source.streaming.plan_verdict import JOB_GROUP, PROPERTY, UNKNOWN, PlanVerdict, plan_verdict
from magnetar.spark.source.streaming.sink_options import check_order, stream_write_options

NUMBERS = st.builds(
    EntryNumber,
    st.integers(0, MAX_EPOCH),
    st.integers(0, MAX_ENTRIES - 1),
    st.integers(0, (1 << DIGEST_BITS) - 1),
)
Made = tuple[int, bytes]
"""An entry: the partition that it goes to, and its only row."""
ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=2)), max_size=8)


class Partitions:
    """What brokers do with the entries of one producer name: judge by the lowest id, keep the highest."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {f"p{index}": -1 for index in range(3)}
        self.rows: list[bytes] = []

    def attempt(self, epoch: int, made: list[Made], received: dict[str, int] | None = None) -> None:
        """One attempt; of each partition's entries the first ``received`` arrive, all of them without it."""
        chain = EpochChain("q-stream-0", epoch, 3, dict(self.last))
        arrived: Counter[str] = Counter()
        for index, payload in made:
            topic = f"p{index}"
            ids = chain.add(topic, RowEntry(0, [payload], None))
            arrived[topic] += 1
            if received is not None and arrived[topic] > received[topic]:
                continue
            if ids.lowest > self.last[topic]:
                self.last[topic] = ids.highest
                self.rows.append(payload)
        if received is None:
            chain.end()


RECEIVED = st.fixed_dictionaries({f"p{index}": st.integers(0, 8) for index in range(3)})


@given(NUMBERS)
def test_a_number_survives_as_a_sequence_id(number: EntryNumber) -> None:
    assert EntryNumber.unpack(number.pack()) == number
    assert 0 <= number.pack() < 1 << 63


@given(NUMBERS, NUMBERS)
def test_sequence_ids_rise_with_epoch_and_entry_whatever_the_digest(one: EntryNumber, other: EntryNumber) -> None:
    if one[:2] < other[:2]:
        assert one.pack() < other._replace(digest=0).pack()


@given(st.lists(st.tuples(ENTRIES, st.lists(RECEIVED, max_size=3)), max_size=4))
def test_each_row_is_stored_once_wherever_attempts_end(epochs: list[tuple[list[Made], list[dict[str, int]]]]) -> None:
    partitions = Partitions()
    for epoch, (made, deaths) in enumerate(epochs):
        for received in deaths:
            partitions.attempt(epoch, made, received)
        partitions.attempt(epoch, made)
        partitions.attempt(epoch, made)  # its commit was lost
    assert Counter(partitions.rows) == Counter(payload for made, _ in epochs for _, payload in made)


@given(ENTRIES, RECEIVED, ENTRIES)
def test_other_rows_are_never_taken_for_those_that_are_stored(
    first: list[Made], received: dict[str, int], second: list[Made]
) -> None:
    partitions = Partitions()
    partitions.attempt(0, first, received)
    stored = dict(partitions.last)
    with contextlib.suppress(RowsDiffer):
        partitions.attempt(0, second)
        if Counter(partitions.rows) != Counter(payload for _, payload in second):
            # Only by chance: then the digest of all rows up to each entry that was stored is the same.
            numbers: dict[str, list[int]] = {name: [] for name in stored}
            chain = EpochChain("q-stream-0", 0, 3, {})
            for index, payload in second:
                numbers[f"p{index}"].append(chain.add(f"p{index}", RowEntry(0, [payload], None)).highest)
            assert all(last in numbers[name] for name, last in stored.items() if last >= 0)


def test_rows_that_change_places_are_refused() -> None:
    partitions = Partitions()
    partitions.attempt(4, [(0, b"a"), (0, b"b")])
    with pytest.raises(
        RowsDiffer, match="batch 4 of producer q-stream-0 was repeated with different rows or in a different"
    ):
        partitions.attempt(4, [(0, b"b"), (0, b"a")])
    with pytest.raises(RowsDiffer, match="only 0 entries were produced, but p0 already holds entry 1"):
        partitions.attempt(4, [])
    assert partitions.rows == [b"a", b"b"]


def test_another_number_of_partitions_is_refused() -> None:
    rows = RowEntry(0, [b"a"], None)
    stored = EpochChain("q", 1, 1, {}).add("p0", rows).highest
    assert EpochChain("q", 1, 1, {"p0": stored}).add("p0", rows).highest == stored
    with pytest.raises(RowsDiffer, match=r"option topic\.partitions"):
        EpochChain("q", 1, 2, {"p0": stored, "p1": -1}).add("p0", rows)


@given(NUMBERS, st.integers(0, MAX_EPOCH))
def test_a_checkpoint_that_has_fallen_behind_is_refused(stored: EntryNumber, epoch: int) -> None:
    if stored.epoch > epoch:
        with pytest.raises(CheckpointBehind, match=f"has batch {stored.epoch} of producer q"):
            EpochChain("q", epoch, 1, {"p0": stored.pack()})
    else:
        EpochChain("q", epoch, 1, {"p0": stored.pack()})


def test_a_batch_without_a_number_is_refused() -> None:
    with pytest.raises(MagnetarError, match=f"exceeds {MAX_EPOCH}"):
        EpochChain("q", MAX_EPOCH + 1, 1, {})


@given(st.booleans(), st.booleans(), st.sampled_from([(), ("id",), ("id", "at")]))
def test_statements_about_the_order_must_not_contradict_each_other(
    is_exact: bool, is_unshuffled: bool, sort_by: tuple[str, ...]
) -> None:
    is_right = not (is_unshuffled and sort_by) if is_exact else not (is_unshuffled or sort_by)
    with contextlib.nullcontext() if is_right else pytest.raises(InvalidConfig, match="omit"):
        check_order(is_exact=is_exact, is_unshuffled=is_unshuffled, sort_by=sort_by)


ADDRESSES = {"service.url": "pulsar://h", "admin.url": "http://h", "topic": "a"}


@pytest.mark.parametrize("statement", [{}, {"unshuffled": "true"}, {"sortBy": "id"}, {"effectivelyOnce": "false"}])
@pytest.mark.parametrize("why", ["", "it has the operator Repartition"])
def test_the_plan_decides_only_where_the_options_do_not(statement: dict[str, str], why: str) -> None:
    options = stream_write_options({**ADDRESSES, **statement}).decided(why)
    is_exact = statement != {"effectivelyOnce": "false"} and not (why and not statement)
    assert options.write.effectively_once is is_exact
    if statement or not why:
        assert options.warning == ""
    else:
        assert why in options.warning
        assert "sortBy=" in options.warning
        assert "unshuffled=true" in options.warning


def test_exactly_once_that_is_demanded_is_refused_where_the_plan_does_not_allow_it() -> None:
    options = stream_write_options({**ADDRESSES, "effectivelyOnce": "true"})
    assert options.decided("") is options
    with pytest.raises(InvalidConfig, match=r"does not guarantee: it has the operator Limit; set sortBy="):
        options.decided("it has the operator Limit")


@pytest.mark.parametrize("left_out", ["topic", "admin.url"])
def test_without_topic_or_admin_url_rows_are_written_at_least_once_with_a_warning(left_out: str) -> None:
    given = {name: value for name, value in ADDRESSES.items() if name != left_out}
    options = stream_write_options(given).decided("")
    assert not options.write.effectively_once
    assert options.warning.endswith("set both")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({PROPERTY: PlanVerdict("", 3).text("run"), JOB_GROUP: "run"}, PlanVerdict("", 3)),
        ({PROPERTY: PlanVerdict("it is so", 0).text("run"), JOB_GROUP: "run"}, PlanVerdict("it is so", 0)),
        ({PROPERTY: PlanVerdict("", 3).text("another"), JOB_GROUP: "run"}, PlanVerdict(UNKNOWN)),
        ({PROPERTY: PlanVerdict("", 3).text("run")}, PlanVerdict(UNKNOWN)),
        ({PROPERTY: "run", JOB_GROUP: "run"}, PlanVerdict(UNKNOWN)),
        ({PROPERTY: "", JOB_GROUP: ""}, PlanVerdict(UNKNOWN)),
        ({JOB_GROUP: "run"}, PlanVerdict(UNKNOWN)),
    ],
)
def test_a_verdict_holds_for_its_own_run_alone(properties: dict[str, str], expected: PlanVerdict) -> None:
    assert plan_verdict(properties.get) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effectivelyOnce": "true", "topic": "a"}, "exactly-once writes require the options topic and admin.url"),
        ({"unshuffled": "true", "sortBy": "id"}, "omit unshuffled"),
        ({"unshuffled": "true", "topic": "a"}, "exactly-once writes require the options topic and admin.url"),
        ({"sortBy": " , "}, "sortBy is empty"),
        ({"effectivelyOnce": "false", "topic": "a", "producer.name.prefix": " "}, "producer.name.prefix is empty"),
        ({"sortedBy": "id"}, "did you mean sortBy"),
    ],
)
def test_a_wrong_sink_is_refused_with_the_remedy(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        stream_write_options({"service.url": "pulsar://localhost", **options})
    assert message in str(error.value)


def test_names_of_producers_follow_the_query_unless_they_are_given() -> None:
    given = {"service.url": "pulsar://h", "admin.url": "http://h", "topic": "a", "unshuffled": "true", "queryName": "q"}
    assert stream_write_options(given).prefix("id") == "spark-id"
    assert stream_write_options({**given, "producer.name.prefix": "totals"}).prefix("id") == "totals"
