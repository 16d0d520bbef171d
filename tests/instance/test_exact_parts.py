"""The parts of EFFECTIVELY_ONCE by themselves: sequence ids, output entries, and what is committed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.errors import FencedByPosition, MessageTooLarge, StateRefused
from magnetar.instance.exact.committer import COMMIT_ROWS_MAX, Committer, Ledger
from magnetar.instance.exact.entries import ENTRY_BYTES_MAX, EntryMaker
from magnetar.instance.exact.work import Result
from magnetar.instance.publish_request import PublishRequest
from magnetar.instance.state.layer import Layer
from magnetar.instance.state.retries import Retries
from magnetar.instance.state.session import StateSession
from magnetar.state.values import Change, Delete, Increment, Opened, OutboxEntry, Reading
from magnetar.wire import position_sequence as sequence
from magnetar.wire.batch import decode_batch, encode_attributes
from magnetar.wire.frames import DEFAULT_MAX_MESSAGE_BYTES
from magnetar.wire.payload import open_payload
from magnetar.wire.position import Position
from magnetar.wire.position_sequence import (
    SequenceOverflow,
    position_of_sequence,
    segment_of,
    segments_after,
    sequence_id,
)
from magnetar.wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata

# -- sequence ids ---------------------------------------------------------------------------------------------------

positions = st.builds(Position, st.integers(0, sequence.LEDGER_MAX), st.integers(0, sequence.ENTRY_MAX))


@given(positions, positions, st.integers(0, 1023), st.integers(0, 1023))
def test_sequence_ids_are_ordered_as_positions_and_outputs_are(one: Position, other: Position, i: int, j: int) -> None:
    assert (sequence_id(one, i) < sequence_id(other, j)) == ((one, i) < (other, j))
    assert position_of_sequence(sequence_id(one, i)) == one
    assert sequence_id(one, i) < 2**63


long_positions = st.builds(
    Position, st.integers(0, sequence.LEDGER_MAX), st.integers(0, 2**40) | st.integers(2**20 - 3, 2**20 + 3)
)


@given(long_positions, long_positions, st.integers(0, 1023), st.integers(0, 1023))
def test_every_position_of_a_long_ledger_has_a_name_and_number_of_its_own(
    one: Position, other: Position, i: int, j: int
) -> None:
    a, b = segment_of(one), segment_of(other)
    x, y = a.sequence_id(one, i), b.sequence_id(other, j)
    assert ((a.producer_name("n"), x) == (b.producer_name("n"), y)) == ((one, i) == (other, j))
    if a == b:
        assert (x < y) == ((one, i) < (other, j))
    assert a.position(x) == one
    assert 0 <= x < 2**63
    if one.entry_id < 2**20:  # as it always was
        assert (a.producer_name("n"), x) == ("n", one.ledger_id << 30 | one.entry_id << 10 | i)


@given(long_positions, long_positions, st.integers(0, 1023))
def test_the_first_number_of_a_segment_parts_what_is_before_a_position_from_what_is_not(
    start: Position, other: Position, i: int
) -> None:
    segment = segment_of(other)
    if other >= start:
        assert segment.sequence_id(other, i) >= segment.first_number(start)
    elif start.ledger_id < sequence.LEDGER_MAX:
        assert segment.sequence_id(other, i) < segment.first_number(start)


@given(long_positions, st.integers(0, 400_000))
def test_what_is_in_work_is_in_a_segment_that_is_asked_for(acknowledged: Position, ahead: int) -> None:
    segments = segments_after(acknowledged)
    assert segment_of(Position(acknowledged.ledger_id, acknowledged.entry_id + ahead)) in segments
    assert segment_of(Position(acknowledged.ledger_id + 1, ahead)) in segments
    assert segments[-1] == segment_of(acknowledged)
    assert len(set(segments)) == len(segments)


@pytest.mark.parametrize(
    ("position", "output", "text"),
    [
        (Position(2**33, 0), 0, "ledger id 8589934592 of the input exceeds 8589934591"),
        (Position(2**33, 2**20), 0, "ledger id 8589934592 of the input exceeds 8589934591"),
        (Position(5, 6), 1024, "input entry 5:6 produces more than 1024 output entries on one topic"),
        (Position(5, 2**20), 1024, "input entry 5:1048576 produces more than 1024 output entries on one topic"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_limit(position: Position, output: int, text: str) -> None:
    with pytest.raises(SequenceOverflow, match=text):
        segment_of(position).sequence_id(position, output)


# -- output entries -------------------------------------------------------------------------------------------------


class Partition:
    """A source of results."""

    topic = "persistent://public/default/in"
    serde: Any = None
    producer_name = "public/default/f/uuid/0/persistent://public/default/in"
    is_over = False


def result_at(entry_id: int, published: Sequence[PublishRequest] = ()) -> Result:
    return Result(cast(Any, Partition()), cast(ReceivedEntry, None), Position(7, entry_id), published=list(published))


def made(result: Result, outputs: list[bytes], partitions: int = 1) -> list[tuple[str, int, list[bytes]]]:
    """Return topic, sequence id and messages of the entries that a result is given."""

    def partitions_of(topic: str) -> list[str]:
        return [topic] if partitions == 1 else [f"{topic}-partition-{number}" for number in range(partitions)]

    EntryMaker("out", "ZLIB", partitions_of).make(result, outputs, None)
    return [opened(row) for row in result.rows]


def opened(row: OutboxEntry) -> tuple[str, int, list[bytes]]:
    metadata, offset = open_payload(row.payload)
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (row.sequence_id, row.sequence_id)
    assert metadata.producer_name == Partition.producer_name
    body = row.payload[offset:]
    if metadata.compression:
        import zlib

        body = zlib.decompress(body)
    messages, _ = decode_batch(body, metadata.num_messages_in_batch)
    assert len(messages) == row.messages
    return row.topic, row.sequence_id, messages


def test_all_outputs_of_an_input_entry_are_one_entry_on_one_partition() -> None:
    outputs = [b"%d" % number for number in range(3000)]
    ((topic, number, messages),) = made(result_at(3), outputs, partitions=4)
    assert topic.startswith("out-partition-")
    assert number == sequence_id(Position(7, 3))
    assert messages == outputs


def test_what_is_returned_and_published_to_one_topic_is_numbered_on() -> None:
    published = [PublishRequest("out", b"p"), PublishRequest("other", b"q"), PublishRequest("out", b"r")]
    first, second = sequence_id(Position(7, 3)), sequence_id(Position(7, 3), 1)
    assert made(result_at(3, published), [b"a", b"b"]) == [
        ("out", first, [b"a", b"b"]),
        ("out", second, [b"p", b"r"]),
        ("other", first, [b"q"]),
    ]


def test_messages_with_keys_go_where_their_keys_say() -> None:
    published = [PublishRequest("keyed", b"%d" % number, options={"key": f"k{number % 5}"}) for number in range(40)]
    where: dict[bytes, str] = {}
    for entry_id in range(3):
        for topic, _, messages in made(result_at(entry_id, published), [], partitions=3):
            for message in messages:
                key = b"k%d" % (int(message) % 5)
                assert where.setdefault(key, topic) == topic
    assert len(set(where.values())) > 1


def test_more_bytes_than_an_entry_may_have_are_several() -> None:
    outputs = [b"x" * (ENTRY_BYTES_MAX // 2 - 20), b"y" * (ENTRY_BYTES_MAX // 2 - 20), b"z"]
    entries = made(result_at(3), outputs)
    assert [messages for _, _, messages in entries] == [outputs[:2], outputs[2:]]
    assert [number for _, number, _ in entries] == [sequence_id(Position(7, 3), j) for j in (0, 1)]


@pytest.mark.parametrize("with_headers", [False, True])
def test_an_entry_keeps_the_limit_with_everything_that_frames_its_messages(with_headers: bool) -> None:
    """Readers refuse a larger one, compressed or not, and would drop it."""
    outputs = [b"%08d" % number * 32 for number in range(ENTRY_BYTES_MAX // 256)]
    headers: list[bytes] | None = None
    if with_headers:
        properties = [KeyValue(key="origin", value="v" * 50)]
        headers = [encode_attributes(SingleMessageMetadata(properties=properties))] * len(outputs)
    result = result_at(3)
    EntryMaker("out", "ZLIB", lambda topic: [topic]).make(result, outputs, headers)
    for row in result.rows:
        metadata, _ = open_payload(row.payload)
        assert metadata.uncompressed_size < DEFAULT_MAX_MESSAGE_BYTES
    assert [message for row in result.rows for message in opened(row)[2]] == outputs


def test_a_message_that_fits_no_entry_is_refused_before_it_is_committed() -> None:
    properties = {"origin": "v" * (ENTRY_BYTES_MAX // 2)}
    request = PublishRequest("other", b"p" * (ENTRY_BYTES_MAX // 2), options={"properties": properties})
    with pytest.raises(MessageTooLarge, match=f"with key and properties, exceeds the limit of {ENTRY_BYTES_MAX} bytes"):
        made(result_at(3, [request]), [])


# -- commits --------------------------------------------------------------------------------------------------------


class Store:
    """The state store as the committer sees it; commits wait until they are let in."""

    table = "public/default/f"

    def __init__(self) -> None:
        self.commits: list[tuple[str, Position | None, Position, list[Change], Position | None]] = []
        self.errors: dict[Position, Exception] = {}
        self.door = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)

    def call(self, action: Callable[[Any], Any]) -> Any:
        return action(self)

    def open(self, table: str, function: str, partition: str) -> Opened:
        return Opened(None, [])

    def commit(
        self,
        table: str,
        function: str,
        partition: str,
        expected: Position | None,
        new: Position,
        changes: list[Change],
        outbox: list[OutboxEntry],
        published: Position | None,
        *,
        writer: bytes,
    ) -> None:
        assert writer == b"w" * 16
        self.entered.release()
        assert self.door.acquire(timeout=60)
        if new in self.errors:
            raise self.errors[new]
        self.commits.append((partition, expected, new, changes, published))

    def stop(self) -> None:
        self.door.release(1000)


class Desk:
    """A committer with what it said."""

    def __init__(self) -> None:
        self.store = Store()
        self.said: list[tuple[list[int], BaseException | None]] = []
        self.has_said = threading.Semaphore(0)
        session = StateSession(lambda keys: Reading([None] * len(keys), 0))
        self.committer = Committer("commits", "u/0", cast(Retries, self.store), session, b"w" * 16, self._committed)

    def _committed(self, results: Sequence[Result], error: BaseException | None) -> None:
        self.said.append(([result.position.entry_id for result in results], error))
        self.has_said.release()

    def commit(self, ledger: Ledger, entry_id: int, changes: Layer | None = None) -> None:
        result = result_at(entry_id)
        result.changes = changes
        self.committer.commit(ledger, result)

    def begin(self, ledger: Ledger) -> None:
        """Have a commit under way when the next results come."""
        self.commit(ledger, 0)
        assert self.store.entered.acquire(timeout=60)

    def finish(self, answers: int) -> None:
        """Let all commits in and wait for so many answers."""
        self.store.door.release(1000)
        for _ in range(answers):
            assert self.has_said.acquire(timeout=60)
        self.committer.close(10)


def counted(key: str) -> Layer:
    return Layer(1, increments={key: 1})


def written(key: str) -> Layer:
    return Layer(1, values={key: b"v"})


def test_what_waits_is_merged_into_one_commit() -> None:
    desk, ledger = Desk(), Ledger("a")
    desk.begin(ledger)
    for entry_id in range(1, 5):
        desk.commit(ledger, entry_id, counted("k"))
    desk.finish(2)
    assert [results for results, _ in desk.said] == [[0], [1, 2, 3, 4]]
    assert desk.store.commits[-1][2] == Position(7, 4)
    assert [commit[1] for commit in desk.store.commits] == [None, *(commit[2] for commit in desk.store.commits[:-1])]
    amounts = [change.amount for commit in desk.store.commits for change in commit[3] if isinstance(change, Increment)]
    assert sum(amounts) == 4


def test_results_that_wrote_are_not_overtaken() -> None:
    desk, a, b = Desk(), Ledger("a"), Ledger("b")
    desk.begin(a)
    desk.commit(a, 1, counted("k"))
    desk.commit(b, 1, counted("k"))
    desk.commit(a, 2, counted("k"))
    desk.commit(b, 2, written("k"))
    desk.commit(a, 3, counted("k"))
    desk.finish(4)
    assert [commit[:3] for commit in desk.store.commits[1:]] == [
        ("a", Position(7, 0), Position(7, 2)),
        ("b", None, Position(7, 2)),
        ("a", Position(7, 2), Position(7, 3)),
    ]


def test_what_writes_overtakes_nothing_that_counted() -> None:
    """The other way round the store would count on top of what was written afterwards."""
    desk, a, b = Desk(), Ledger("a"), Ledger("b")
    desk.begin(a)
    desk.commit(a, 1)
    desk.commit(b, 1, counted("k"))
    desk.commit(a, 2, written("k"))
    desk.finish(4)
    assert [commit[:3] for commit in desk.store.commits[1:]] == [
        ("a", Position(7, 0), Position(7, 1)),
        ("b", None, Position(7, 1)),
        ("a", Position(7, 1), Position(7, 2)),
    ]


@pytest.mark.parametrize("error", [FencedByPosition("gone"), StateRefused("no", b"k"), RuntimeError("a defect")])
def test_nothing_is_committed_behind_what_failed(error: Exception) -> None:
    desk, ledger = Desk(), Ledger("a")
    desk.store.errors[Position(7, 2)] = error
    desk.store.errors[Position(7, 4)] = error  # of those that are merged at first
    desk.begin(ledger)
    for entry_id in range(1, 5):
        desk.commit(ledger, entry_id, counted("k"))
    desk.store.door.release(1000)
    while not desk.said or desk.said[-1][1] is None:
        assert desk.has_said.acquire(timeout=60)
    desk.commit(ledger, 5, counted("k"))
    desk.committer.close(10)
    assert desk.said[-1][1] is error
    assert max((commit[2].entry_id for commit in desk.store.commits), default=-1) < 2


def test_a_commit_keeps_its_bounds() -> None:
    desk, ledger = Desk(), Ledger("a")
    half = Layer(1, increments={f"k{number}": 1 for number in range(COMMIT_ROWS_MAX // 2)})
    desk.begin(ledger)
    for entry_id in range(1, 6):
        desk.commit(ledger, entry_id, half)
    desk.finish(4)
    assert [results for results, _ in desk.said] == [[0], [1, 2], [3, 4], [5]]


def test_an_idle_outbox_is_cleared_once() -> None:
    desk, ledger = Desk(), Ledger("a")
    desk.commit(ledger, 0)
    desk.store.door.release(1000)
    assert desk.has_said.acquire(timeout=60)
    ledger.published = Position(7, 0)
    desk.committer.clear(ledger)
    desk.committer.clear(ledger)
    opened = threading.Event()
    desk.committer.open(Ledger("b"), lambda _: opened.set())  # behind them
    assert opened.wait(60)
    desk.committer.close(10)
    assert [commit[1:] for commit in desk.store.commits] == [
        (None, Position(7, 0), [], None),
        (Position(7, 0), Position(7, 0), [], Position(7, 0)),
    ]


def test_an_outbox_that_is_somebody_elses_by_now_is_left_to_them() -> None:
    desk, ledger = Desk(), Ledger("a")
    desk.commit(ledger, 0)
    desk.store.door.release(1000)
    assert desk.has_said.acquire(timeout=60)
    ledger.published = Position(7, 0)
    desk.store.errors[Position(7, 0)] = FencedByPosition("another instance took over")
    desk.committer.clear(ledger)
    desk.commit(Ledger("b"), 1)
    assert desk.has_said.acquire(timeout=60)
    desk.committer.close(10)
    assert desk.said == [([0], None), ([1], None)]


def test_changes_keep_their_order_in_a_merged_commit() -> None:
    desk, ledger = Desk(), Ledger("a")
    desk.begin(ledger)
    for entry_id, layer in enumerate((written("k"), Layer(2, values={"k": None}), counted("k")), 1):
        desk.commit(ledger, entry_id, layer)
    desk.finish(2)
    changes = [change for commit in desk.store.commits for change in commit[3]]
    assert changes == [Delete(b"k"), Increment(b"k", 1)]
