"""Key_Shared without a broker: who has which slot, and the order of each key, against rules written down naively."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.dispatch.key_order import KeyOrder
from magnetar.broker.dispatch.key_slots import (
    SLOTS,
    HashRing,
    Range,
    Selector,
    SplitRanges,
    StickyRanges,
    check_ranges,
    entry_key,
    has_key,
    ranges_of,
)
from magnetar.errors import ConsumerAssignError
from magnetar.wire.hashing import murmur3_32
from magnetar.wire.payload import seal
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import CommandSubscribe, IntRange, KeySharedMode, MessageMetadata


@dataclass(eq=False)
class Eater:
    name: str
    key_ranges: list[Range] = field(default_factory=list)
    held: dict[Position, int] = field(default_factory=dict)


# The key of an entry


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"partition_key": "ключ"}, "ключ".encode()),
        ({"partition_key": "a", "ordering_key": b"o"}, b"o"),
        ({"partition_key": "a", "ordering_key": b""}, b""),
        ({"partition_key": "AAE=", "partition_key_b64_encoded": True}, b"\x00\x01"),
        ({"partition_key": "no base64", "partition_key_b64_encoded": True}, b"no base64"),
        ({}, b"p-7"),
    ],
)
def test_key_of_an_entry(fields: dict[str, object], key: bytes) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]
    assert entry_key(seal(metadata, b"body")) == key


@given(st.binary(max_size=200))
def test_any_bytes_have_a_key(payload: bytes) -> None:
    assert isinstance(entry_key(payload), bytes)


def test_a_key_that_is_no_utf8_is_its_bytes() -> None:
    head = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1).SerializeToString() + b"\x32\x02\xff\xfe"
    assert entry_key(len(head).to_bytes(4, "big") + head) == b"\xff\xfe"


# Selectors, with the vectors of the protocol's description


def test_newcomers_get_the_lower_half_of_the_largest_range() -> None:
    ranges: SplitRanges[Eater] = SplitRanges()
    eaters = [Eater(f"c{number}") for number in range(1, 6)]
    for eater in eaters:
        ranges.add(eater)
    found = {high: owner.name for owner, (_, high) in ranges.ranges()}
    assert found == {8192: "c5", 16384: "c3", 32768: "c2", 49152: "c4", 65536: "c1"}
    ranges.remove(eaters[0])  # the last range: the one below it takes over
    assert {high: owner.name for owner, (_, high) in ranges.ranges()} == {
        8192: "c5", 16384: "c3", 32768: "c2", 65536: "c4"
    }  # fmt: skip
    ranges.remove(eaters[2])
    assert {high: owner.name for owner, (_, high) in ranges.ranges()} == {8192: "c5", 32768: "c2", 65536: "c4"}


def test_points_on_the_ring() -> None:
    ring: HashRing[Eater] = HashRing()
    assert ring._points_of("c1", 0)[:4] == [34662, 61273, 23534, 54464]
    assert ring._points_of("c2", 0)[:4] == [18701, 2959, 61677, 13833]
    eater = Eater("c1")
    ring.add(eater)
    assert ring.ranges() == [(eater, (1, 65535))]


def test_ranges_that_nobody_can_have() -> None:
    for ranges, said in (
        ([], "Ranges for KeyShared policy must not be empty."),
        ([(9, 3)], "Fixed hash range start > end for range: [9,3]"),
        ([(0, 10), (5, 20)], "Consumer's own ranges conflict: [0,10] overlaps with [5,20]"),
    ):
        with pytest.raises(ConsumerAssignError) as refusal:
            check_ranges(ranges)
        assert said in str(refusal.value)
    sticky: StickyRanges[Eater] = StickyRanges()
    holder = Eater("a", [(0, 100), (200, 65536)])
    sticky.add(holder)
    assert sticky.conflict([(101, 199)]) is None
    assert sticky.conflict([(0, 0)]) is holder
    assert sticky.conflict([(101, 200)]) is holder
    next_one = Eater("b", [(150, 160)])
    sticky.add(next_one)
    assert sticky.conflict([(140, 300)]) is next_one
    assert sticky.conflict([(90, 155)]) is holder
    sticky.remove(next_one)
    with pytest.raises(ConsumerAssignError, match="Range conflict with consumer a"):
        sticky.add(Eater("c", [(100, 150)]))
    assert [sticky.select(slot) for slot in (1, 100, 101, 199, 200, 65535)] == [
        holder, holder, None, None, holder, holder
    ]  # fmt: skip


def disjoint(bounds: list[int]) -> list[Range]:
    return list(zip(*[iter(sorted(set(bounds))[: len(set(bounds)) // 2 * 2])] * 2, strict=True))


@given(*[st.lists(st.integers(0, 40), min_size=2, max_size=20).map(disjoint).filter(bool)] * 2, st.integers(1, 40))
def test_sticky_conflicts_and_owners_match_a_comparison_of_all_pairs(
    held: list[Range], asked: list[Range], slot: int
) -> None:
    sticky: StickyRanges[Eater] = StickyRanges()
    holder = Eater("a", held)
    sticky.add(holder)
    overlaps = any(first <= high and low <= last for first, last in asked for low, high in held)
    assert sticky.conflict(asked) is (holder if overlaps else None)
    assert sticky.select(slot) is (holder if any(low <= slot <= high for low, high in held) else None)


def test_consumers_with_every_second_slot_each_share_a_subscription() -> None:
    """Comparing all pairs of their ranges would take a billion steps, longer than the limit of a test."""
    sticky: StickyRanges[Eater] = StickyRanges()
    even, odd = (Eater(f"{first}", [(slot, slot) for slot in range(first, SLOTS, 2)]) for first in (0, 1))
    sticky.add(even)
    assert sticky.conflict(odd.key_ranges) is None
    sticky.add(odd)
    assert [sticky.select(slot) for slot in (0, 1, SLOTS - 1)] == [even, odd, odd]


def test_more_ranges_than_slots_are_refused_before_they_are_read() -> None:
    command = CommandSubscribe(
        topic="t", subscription="s", consumer_id=1, request_id=1, subType=CommandSubscribe.Shared
    )
    command.keySharedMeta.keySharedMode = KeySharedMode.STICKY
    for slot in (9, 3):
        command.keySharedMeta.hashRanges.add(start=slot, end=slot + 1)
    assert ranges_of(command) == [(3, 4), (9, 10)]
    command.keySharedMeta.hashRanges.extend([IntRange(start=0, end=0)] * SLOTS)
    with pytest.raises(ConsumerAssignError, match="65538 hash ranges: expected at most 65536"):
        ranges_of(command)


@given(st.lists(st.integers(0, 65535), min_size=2, max_size=20).map(disjoint).filter(bool), st.text(max_size=5))
def test_an_exclusive_consumer_takes_the_keys_of_its_ranges(ranges: list[Range], key: str) -> None:
    payload = seal(MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, partition_key=key), b"body")
    slot = murmur3_32(entry_key(payload)) % SLOTS or 1
    assert has_key(ranges, payload) is any(first <= slot <= last for first, last in ranges)


def selectors() -> st.SearchStrategy[Selector[Eater]]:
    return st.sampled_from(["ring", "split"]).map(lambda kind: HashRing(5) if kind == "ring" else SplitRanges())


@given(selectors(), st.lists(st.integers(0, 9), max_size=25), st.integers(1, 65535))
def test_a_slot_moves_only_to_who_joined_or_from_who_left(
    selector: Selector[Eater], steps: list[int], slot: int
) -> None:
    there: list[Eater] = []
    for step in steps:
        before = selector.select(slot)
        if there and step < 4:
            gone = there.pop(step % len(there))
            selector.remove(gone)
            selector.remove(gone)
            assert before is gone or selector.select(slot) is before
        else:
            newcomer = Eater(f"c{step % 3}")
            there.append(newcomer)
            selector.add(newcomer)
            assert selector.select(slot) in (before, newcomer)
        assert (selector.select(slot) in there) if there else selector.select(slot) is None
        shown = [owner for owner, (low, high) in selector.ranges() if low <= slot <= high]
        assert shown == ([selector.select(slot)] if there else [])


# The order of each key


SLOTS_USED = 3


class OneSlotEach(Selector[Eater]):
    """Slots in turn: moves many of them whenever somebody comes or goes, which is what order has to bear."""

    def __init__(self) -> None:
        self.there: list[Eater] = []

    def add(self, consumer: Eater) -> None:
        self.there.append(consumer)

    def remove(self, consumer: Eater) -> None:
        self.there.remove(consumer)

    def select(self, slot: int) -> Eater | None:
        return self.there[slot % len(self.there)] if self.there else None

    def ranges(self) -> list[tuple[Eater, Range]]:
        return []


class World:
    """Consumers of one subscription, entries that come in, and what was acknowledged of each slot."""

    def __init__(self) -> None:
        self.keys: KeyOrder[Eater] = KeyOrder(OneSlotEach(), keeps_order=True)
        self.there: list[Eater] = []
        self.slots: dict[Position, int] = {}
        self.acknowledged: set[Position] = set()
        self.log: dict[int, list[Position]] = defaultdict(list)

    def join(self, name: str) -> None:
        self.there.append(Eater(name))
        self.keys.add(self.there[-1])

    def leave(self, eater: Eater) -> None:
        self.there.remove(eater)
        self.keys.remove(eater, eater.held)

    def publish(self, number: int) -> None:
        position = Position(0, len(self.slots))
        slot = self.slots[position] = number % SLOTS_USED
        turn = self.keys.turn_of(slot)
        if turn is not None and number % 4:
            self.give(turn, position)
        else:
            self.keys.wait(position, slot)

    def give(self, eater: Eater, position: Position) -> None:
        slot = self.slots[position]
        for other in self.there:
            assert other is eater or slot not in other.held.values(), "two consumers have entries of one key"
        held = {each for one in self.there for each in one.held}
        for each, of in self.slots.items():
            if of == slot and each < position:
                assert each in self.acknowledged or each in held, "an entry overtook one of its key"
        self.keys.hold(eater, position, slot)
        eater.held[position] = slot

    def take(self, eater: Eater) -> bool:
        head = self.keys.head(eater)
        if head is None:
            return False
        assert self.keys.take(eater) == head
        self.give(eater, head)
        return True

    def acknowledge(self, eater: Eater) -> None:
        if eater.held:
            position = min(eater.held)
            self.log[eater.held.pop(position)].append(position)
            self.acknowledged.add(position)
            self.keys.release(position)
            self.keys.forget(position)

    def redeliver(self, eater: Eater, number: int) -> None:
        if eater.held:
            first = list(eater.held)[number % len(eater.held)]
            # Whole tails only: a client that asks for one in the middle gives up the order itself.
            for each in [held for held, slot in eater.held.items() if slot == eater.held[first] and held >= first]:
                del eater.held[each]
                self.keys.come_back(each)

    def skip(self, number: int) -> None:
        """Acknowledge an entry that waits, as a subscription does that is moved on."""
        if waiting := sorted(self.keys._waiting):
            position = waiting[number % len(waiting)]
            self.acknowledged.add(position)
            self.keys.forget(position)


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from("jjlnnnntttaars"), st.integers(0, 99)), min_size=10, max_size=120))
def test_each_key_is_in_order_while_consumers_come_and_go(steps: list[tuple[str, int]]) -> None:
    """Steps: j(oin), l(eave), n(ew entry), t(ake what waits), a(cknowledge), r(edeliver), s(kip)."""
    world = World()
    for step, number in steps:
        if step == "n":
            world.publish(number)
        elif step == "j" and len(world.there) < 5:
            world.join(f"c{number}")
        if not world.there:
            continue
        eater = world.there[number % len(world.there)]
        match step:
            case "l":
                world.leave(eater)
            case "t":
                world.take(eater)
            case "a":
                world.acknowledge(eater)
            case "r":
                world.redeliver(eater, number)
            case "s":
                world.skip(number)

    # With somebody there, everything goes out in the end, in order.
    if not world.there:
        world.join("last")
    for _ in range(len(world.slots) + 1):
        for eater in world.there:
            while world.take(eater):
                pass
            while eater.held:
                world.acknowledge(eater)
    keys = world.keys
    assert world.acknowledged == set(world.slots)
    assert all(positions == sorted(positions) for positions in world.log.values())
    assert not keys.waiting
    for store in (keys._held, keys._slots, keys._draining, keys._waiting_in):
        assert not store
