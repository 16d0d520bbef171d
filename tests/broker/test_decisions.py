"""The decisions of the broker that need no broker, against rules written down as naively as possible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.dispatch.replay import Replay
from magnetar.broker.dispatch.shared import SharedOrder
from magnetar.broker.dispatch.single_active import Candidate, choose_active
from magnetar.broker.session.lookup_commands import list_answer
from magnetar.broker.topics.producer_access import Own, Producers, Share, Wait, admit
from magnetar.broker.topics.topic_index import TopicIndex
from magnetar.broker.topics.topic_list import topics_hash
from magnetar.errors import BrokerError, MetadataError, ProducerBusy, ProducerFenced
from magnetar.wire.bulk import MessageHeads, message_frame_head, receipt_frames
from magnetar.wire.frames import FrameDecoder
from magnetar.wire.hashing import murmur3_32
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import CommandGetTopicsOfNamespace, ProducerAccessMode

TOPIC = "persistent://public/default/my-topic"
names = st.text("abc", min_size=1, max_size=3)

# Failover: who is active


def naive_ring(consumers: list[Candidate], topic: str) -> str:
    """Walk up the ring from the topic's point, one number at a time if need be."""
    points: list[tuple[int, int]] = []
    for order, (_, name) in enumerate(consumers):
        points += [(murmur3_32(f"{name}{number}".encode()), order) for number in range(100)]
    wanted = murmur3_32(topic.encode())
    above = [point for point in points if point[0] >= wanted] or points
    nearest = min(point for point, _ in above)
    return consumers[max(order for point, order in above if point == nearest)].name


@pytest.mark.parametrize(("joined", "active"), [("c1 c2", "c1"), ("c1 c2 c3", "c3"), ("c3 c1 c2", "c3"), ("c2", "c2")])
def test_active_consumer_of_a_topic_without_partitions_is_the_one_on_the_ring(joined: str, active: str) -> None:
    candidates = [Candidate(0, name) for name in joined.split()]
    chosen = choose_active(candidates, TOPIC, -1)
    assert chosen is not None
    assert candidates[chosen].name == active


@given(st.lists(st.builds(Candidate, st.integers(0, 2), names), min_size=1, max_size=6), st.integers(-1, 5))
def test_active_consumer_is_of_the_best_priority_and_spread_by_partition(
    candidates: list[Candidate], partition: int
) -> None:
    best = sorted(c for c in candidates if c.priority == min(c.priority for c in candidates))
    expected = best[partition % len(best)].name if partition >= 0 else naive_ring(best, TOPIC)
    chosen = choose_active(candidates, TOPIC, partition)
    assert chosen is not None
    assert candidates[chosen] == Candidate(best[0].priority, expected)


def test_nobody_is_active_without_consumers() -> None:
    assert choose_active([], TOPIC, 0) is None


# Shared: whose turn it is


@dataclass(eq=False)
class Eater:
    name: str
    priority: int
    permits: int

    @property
    def is_available(self) -> bool:
        return self.permits > 0


def feed(order: SharedOrder[Any], turns: int) -> list[str]:
    eaten = []
    for _ in range(turns):
        eater = order.next()
        if eater is None:
            break
        eater.permits -= 1
        eaten.append(eater.name)
    return eaten


def test_shared_consumers_are_served_by_priority_then_in_turn() -> None:
    order: SharedOrder[Any] = SharedOrder()
    for eater in (Eater("C1", 0, 2), Eater("C4", 1, 2), Eater("C2", 0, 1), Eater("C5", 1, 1), Eater("C3", 0, 1)):
        order.add(eater)
    assert " ".join(feed(order, 20)) == "C1 C2 C3 C1 C4 C5 C4"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=6), st.data())
def test_shared_order_serves_whoever_waits_longest_of_the_best_priority(
    eaters: list[tuple[int, int]], data: st.DataObject
) -> None:
    order: SharedOrder[Any] = SharedOrder()
    there = [Eater(f"C{number}", priority, permits) for number, (priority, permits) in enumerate(eaters)]
    for eater in there:
        order.add(eater)
    last_served = {eater.name: (-1, number) for number, eater in enumerate(there)}
    for turn in range(12):
        if there and data.draw(st.integers(0, 5)) == 0:
            gone = there.pop(data.draw(st.integers(0, len(there) - 1)))
            assert order.remove(gone)
            assert not order.remove(gone)
        able = [eater for eater in there if eater.permits > 0]
        best = [eater for eater in able if eater.priority == min(e.priority for e in able)]
        served = order.next()
        if not able:
            assert served is None
            break
        assert served in best
        if len(best) == sum(eater.priority == best[0].priority for eater in there):
            # Nobody was passed over for lack of permits: then it is strictly in turn.
            assert last_served[served.name] == min(last_served[eater.name] for eater in best)
        served.permits -= 1
        last_served[served.name] = (turn, 0)


class Asked(Eater):
    """Counts how often it is asked whether it takes something."""

    asked = 0

    @property
    def is_available(self) -> bool:
        Asked.asked += 1
        return self.permits > 0


def test_a_thousand_consumers_are_not_all_asked_for_each_read() -> None:
    order: SharedOrder[Any] = SharedOrder()
    for number in range(1000):
        order.add(Asked(f"C{number}", 0, 40))
    Asked.asked = 0
    assert order.permits(100) == 100
    assert Asked.asked == 3
    assert order.permits(10**9) == 40_000


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 20))
def test_shared_permits_are_those_of_all_up_to_the_limit(permits: list[int], most: int) -> None:
    order: SharedOrder[Any] = SharedOrder()
    for number, own in enumerate(permits):
        order.add(Eater(f"C{number}", number % 2, own))
    assert order.permits(most) == min(most, sum(permits))


# Shared: what comes again


@dataclass
class NaiveReplay:
    queued: set[Position] = field(default_factory=set)
    counts: dict[Position, int] = field(default_factory=dict)

    def add(self, positions: Iterable[Position], *, counted: bool) -> None:
        for position in positions:
            self.queued.add(position)
            if counted:
                self.counts[position] = self.counts.get(position, 0) + 1

    def first_run(self, limit: int, span: int) -> list[Position]:
        if not self.queued:
            return []
        first = min(self.queued)
        end = first.entry_id + span
        return sorted(each for each in self.queued if each.ledger_id == first.ledger_id and each.entry_id < end)[:limit]


positions = st.builds(Position, st.integers(0, 1), st.integers(0, 6))
replay_steps = st.one_of(
    st.tuples(st.just("add"), st.lists(positions, max_size=4), st.booleans()),
    st.tuples(st.just("discard"), positions),
    st.tuples(st.just("forget"), positions),
    st.tuples(st.just("forget_up_to"), positions),
)


@given(st.lists(replay_steps, max_size=25), st.integers(1, 5), st.integers(1, 7))
def test_replay_queue_keeps_order_and_counts(steps: list[tuple[object, ...]], limit: int, span: int) -> None:
    replay, naive = Replay(), NaiveReplay()
    for name, argument, *rest in steps:
        if name == "add":
            replay.add(argument, counted=bool(rest[0]))  # type: ignore[arg-type]
            naive.add(argument, counted=bool(rest[0]))  # type: ignore[arg-type]
        elif name == "discard":
            replay.discard(argument)  # type: ignore[arg-type]
            naive.queued.discard(argument)
        elif name == "forget":
            replay.forget(argument)  # type: ignore[arg-type]
            naive.queued.discard(argument)
            naive.counts.pop(argument, None)  # type: ignore[call-overload]
        else:
            replay.forget_up_to(argument)  # type: ignore[arg-type]
            naive.queued = {p for p in naive.queued if p > argument}  # type: ignore[operator]
            naive.counts = {p: n for p, n in naive.counts.items() if p > argument}  # type: ignore[operator]
        assert len(replay) == len(naive.queued)
        assert replay.first_run(limit, span) == naive.first_run(limit, span)
        assert all(replay.count(p) == n for p, n in naive.counts.items())
    replay.clear()
    assert not replay


# Producers: who may


def there(exclusive: str | None = None, connected: int = 0, waiting: int = 0, epoch: int | None = None) -> Producers:
    return Producers(exclusive=exclusive, connected=connected, waiting=waiting, epoch=epoch)


MODE = ProducerAccessMode


@pytest.mark.parametrize(
    ("mode", "requested", "producers", "outcome"),
    [
        (MODE.Shared, None, there(connected=3), Share()),
        (MODE.Shared, None, there(exclusive="x", connected=1, epoch=0), ProducerBusy),
        (MODE.Shared, None, there(waiting=1), ProducerBusy),
        (MODE.Exclusive, None, there(), Own(0, False)),
        (MODE.Exclusive, None, there(epoch=4), Own(5, False)),
        (MODE.Exclusive, 4, there(epoch=4), Own(4, False)),
        (MODE.Exclusive, 3, there(epoch=4), ProducerFenced),
        (MODE.Exclusive, None, there(connected=1), ProducerFenced),
        (MODE.Exclusive, None, there(exclusive="x", connected=1, epoch=0), ProducerFenced),
        (MODE.WaitForExclusive, None, there(connected=1), Wait()),
        (MODE.WaitForExclusive, None, there(epoch=1), Own(2, False)),
        (MODE.ExclusiveWithFencing, None, there(exclusive="x", connected=1, waiting=2, epoch=1), Own(2, True)),
        (MODE.ExclusiveWithFencing, None, there(), Own(0, False)),
    ],
)
def test_access_mode_decides_who_produces(
    mode: int, requested: int | None, producers: Producers, outcome: object
) -> None:
    if isinstance(outcome, type):
        assert issubclass(outcome, BrokerError)
        with pytest.raises(outcome):
            admit(mode, requested, producers)
    else:
        assert admit(mode, requested, producers) == outcome


# Receipts in bursts

sizes = st.one_of(st.integers(0, 300), st.integers(16_000, 17_000), st.integers(0, (1 << 63) - 1))


@given(
    st.integers(0, 1 << 40),
    st.lists(st.tuples(sizes, st.one_of(st.just(0), sizes), st.builds(Position, sizes, sizes)), max_size=30),
)
def test_receipts_in_a_burst_say_what_they_say_alone(
    producer_id: int, receipts: list[tuple[int, int, Position]]
) -> None:
    frames = FrameDecoder().feed(receipt_frames(producer_id, receipts))
    seen = []
    for frame in frames:
        receipt = frame.command.send_receipt
        assert receipt.producer_id == producer_id
        position = Position(receipt.message_id.ledgerId, receipt.message_id.entryId)
        seen.append((receipt.sequence_id, receipt.highest_sequence_id, position))
    assert seen == receipts


@given(
    st.integers(0, 1 << 40),
    st.integers(-1, 300),
    st.one_of(st.none(), sizes),
    st.lists(st.tuples(st.integers(0, 3), sizes, st.integers(0, 300)), max_size=20),
)
def test_heads_of_messages_are_those_of_each_alone(
    consumer_id: int, partition: int, epoch: int | None, messages: list[tuple[int, int, int]]
) -> None:
    heads = MessageHeads(consumer_id, partition, epoch)
    for ledger_id, entry_id, size in messages:
        alone = message_frame_head(consumer_id, ledger_id, entry_id, partition, 0, (), epoch, size)
        assert b"".join(heads.parts(ledger_id, entry_id, size)) == alone


# Topics of a namespace


@pytest.mark.parametrize(
    ("topics", "digest"),
    [
        ([], "00000000"),
        (["persistent://my-property/my-ns/pattern-topic-1"], "0d0602ed"),
        ([f"persistent://my-property/my-ns/pattern-topic-{n}" for n in (1, 2, 3)], "90d4a04a"),
    ],
)
def test_topics_hash_is_that_of_pulsar(topics: list[str], digest: str) -> None:
    assert topics_hash(topics) == digest


ALL = CommandGetTopicsOfNamespace.ALL


def asked(pattern: str = "", digest: str = "", mode: int = ALL) -> CommandGetTopicsOfNamespace:
    return CommandGetTopicsOfNamespace(
        request_id=1, namespace="public/ns", mode=mode, topics_pattern=pattern, topics_hash=digest  # type: ignore[arg-type]
    )  # fmt: skip


TOPICS = [f"persistent://public/ns/{local}" for local in ("a", "ab", "b-partition-0", "__change_events")]


@pytest.mark.parametrize(
    ("pattern", "locals_", "filtered"),
    [
        ("", ["a", "ab", "b-partition-0"], False),
        ("public/ns/a.*", ["a", "ab"], True),
        ("persistent://public/ns/b", ["b-partition-0"], True),
        ("public/ns/a", ["a"], True),
        ("public/ns/" + "a" * 60, ["a", "ab", "b-partition-0"], False),
        ("public/ns/(a+)+", ["a"], True),
        ("public/ns/(?!a).*", ["a", "ab", "b-partition-0"], False),  # only Java's engine has that: the client filters
    ],
)
def test_topics_are_filtered_where_that_is_safe(pattern: str, locals_: list[str], filtered: bool) -> None:
    response = list_answer(TopicIndex(lambda: TOPICS), asked(pattern))
    assert list(response.topics) == [f"persistent://public/ns/{local}" for local in locals_]
    assert response.filtered == filtered
    assert response.changed


def test_topics_are_left_out_when_the_client_has_them() -> None:
    response = list_answer(TopicIndex(lambda: TOPICS), asked(digest=topics_hash(TOPICS[:3])))
    assert not response.topics
    assert not response.changed


def test_bad_pattern_is_an_error() -> None:
    with pytest.raises(MetadataError, match="PatternSyntaxException"):
        list_answer(TopicIndex(lambda: TOPICS), asked("public/ns/("))
