"""What attempts publish that end anywhere, to a broker that drops repetitions by name and number."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.producers.producer import Producer
from magnetar.errors import ConnectionLost, OperationTimeout, ProducerBusy
from magnetar.spark.source import publishing
from magnetar.spark.source.publishing import TaskPublisher
from magnetar.wire.message_id import MessageId
from magnetar.wire.position import Position
from magnetar.wire.position_sequence import segment_of

pytestmark = pytest.mark.spark

TOPICS = ("a", "b")
STORED, REPEATED = MessageId(1, 1), MessageId(-1, -1)


class Topic:
    """What a broker has of a topic."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.entries: list[Position] = []

    def store(self, name: str, number: int, position: Position) -> MessageId:
        if number <= self.last.get(name, -1):
            return REPEATED
        self.last[name] = number
        self.entries.append(position)
        return STORED


class FakeProducer(Producer):
    """Stores what is sent when it is told to; what it has not stored when the attempt ends is lost."""

    def __init__(self, cluster: Cluster, topic: Topic, name: str) -> None:
        self._cluster, self._at, self.name = cluster, topic, name
        self.last_sequence_id = topic.last.get(name, -1)
        self._unstored: deque[tuple[int, Position, asyncio.Future[MessageId]]] = deque()
        self._is_over = False
        assert name not in cluster.attached.setdefault(id(topic), set()), "two producers of one name"
        cluster.attached[id(topic)].add(name)

    def take(self, number: int, position: Position) -> asyncio.Future[MessageId]:
        assert not self._is_over
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        self._unstored.append((number, position, future))
        return future

    async def ready(self) -> None:
        for _ in range(self._cluster.choose(3)):
            self._store_one()

    def _store_one(self) -> None:
        if not self._unstored:
            return
        if self._cluster.choose(20) == 0:
            while self._unstored:
                self._unstored.popleft()[2].set_exception(OperationTimeout("lost"))
            self._is_over = True
            raise OperationTimeout("lost")
        number, position, future = self._unstored.popleft()
        future.set_result(self._at.store(self.name, number, position))

    async def flush(self) -> None:
        while self._unstored:
            self._store_one()

    async def close(self) -> None:
        assert not self._unstored
        self._is_over = True
        self._cluster.attached[id(self._at)].discard(self.name)


class Cluster:
    """Topics that outlive attempts."""

    def __init__(self, data: st.DataObject | None) -> None:
        """Prepare; without data nothing fails."""
        self._data = data
        self.topics = {name: Topic() for name in TOPICS}
        self.attached: dict[int, set[str]] = {}
        self.refusals: deque[Exception | None] = deque()  # what creating producers meets, one after the other

    def choose(self, count: int) -> int:
        """Return a number below ``count``; never 0 of many once it is calm."""
        return 1 if self._data is None else self._data.draw(st.integers(0, count - 1))

    def calm_down(self) -> None:
        self._data = None

    async def create_producer(self, topic: str, config: ProducerConfig) -> Producer:
        if self.refusals and (refusal := self.refusals.popleft()) is not None:
            raise refusal
        return FakeProducer(self, self.topics[topic], config.name or "")

    async def attempt(self, positions: list[Position], *, is_first: bool) -> bool:
        """Publish an output of each position; return whether the attempt came to its end."""
        self.attached.clear()
        publisher = TaskPublisher("name", 60_000, "", start=positions[0] if is_first else None)
        try:
            for position in positions:
                if self.choose(15) == 0:
                    return False  # killed
                segment = segment_of(position)
                number = segment.sequence_id(position)
                await publisher.send(
                    cast(AsyncClient, self),
                    TOPICS[position.entry_id % 2],
                    1,
                    lambda producer, n=number, p=position: cast(FakeProducer, producer).take(n, p),  # type: ignore[misc]
                    segment,
                )
            await publisher.finish()
        except OperationTimeout:
            return False
        return True


@st.composite
def ranges(draw: st.DrawFn) -> list[list[Position]]:
    """Positions of one slot in plan after plan, over ends of segments and ledgers."""
    found = []
    for ledger_id in sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=4))):
        for segment in sorted(draw(st.sets(st.integers(0, 2), min_size=1))):
            first = segment * 2**20 + draw(st.integers(0, 2))
            found += [Position(ledger_id, first + number) for number in range(draw(st.integers(1, 5)))]
    cuts = sorted(draw(st.sets(st.integers(1, len(found)), max_size=2)) | {len(found)})
    return [found[begin:end] for begin, end in zip([0, *cuts], cuts, strict=False)]


@pytest.mark.slow
@given(st.data(), ranges())
def test_attempts_that_end_anywhere_store_every_output_once_and_in_order(
    data: st.DataObject, plans: list[list[Position]]
) -> None:
    cluster: Any = Cluster(data)
    for positions in plans:
        is_first = True
        for _ in range(3):
            if asyncio.run(cluster.attempt(positions, is_first=is_first)):
                break
            is_first = False
        else:
            cluster.calm_down()
            assert asyncio.run(cluster.attempt(positions, is_first=is_first))
    for number, topic in enumerate(cluster.topics.values()):
        assert topic.entries == [one for plan in plans for one in plan if one.entry_id % 2 == number]


POSITIONS = [Position(1, 2**20 - 2), Position(1, 2**20)]
"""In two segments, to one topic."""


@pytest.mark.parametrize("refusal", [ConnectionLost("away"), OperationTimeout("late"), ProducerBusy("busy")])
def test_a_task_between_two_segments_waits_for_a_broker_that_is_away(
    refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_BUSY_PAUSE_S", 0)
    cluster = Cluster(None)
    cluster.refusals.extend([None, refusal, refusal])
    assert asyncio.run(cluster.attempt(POSITIONS, is_first=True))
    assert cluster.topics["a"].entries == POSITIONS


def test_a_task_that_cannot_begin_does_not_wait_longer_than_its_client() -> None:
    cluster = Cluster(None)
    cluster.refusals.append(OperationTimeout("away"))
    assert not asyncio.run(cluster.attempt(POSITIONS, is_first=True))
    assert not cluster.refusals
