"""The table service killed at random moments below writers: exactly what was acknowledged is there, each once."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from magnetar.errors import BadVersion, StateStoreUnavailable
from magnetar.state.client import Change, Delete, Increment, OutboxEntry, Position, Put, TableClient

from tests.support.waiting import wait_for

from .conftest import TABLE
from .processes import running_service

T = TypeVar("T")

SHARED = b"shared"
UUID = "uuid"


class Traffic:
    """Threads that write as instances do: a call without an answer is repeated as it was."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.seed = seed
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        self.shared = 0
        self.repeats = 0
        self.kept: dict[bytes, bytes] = {}
        self.counted: dict[bytes, int] = {}
        self.positions: dict[str, Position] = {}
        self.outbox: dict[str, list[OutboxEntry]] = {}
        self.plan = 0
        self._lock = threading.Lock()

    def run(self, during: Callable[[], None]) -> None:
        """Write with all threads while the function runs, then let them end."""
        writers = [(self.count, number) for number in range(3)] + [(self.commit, number) for number in range(2)]
        threads = [
            threading.Thread(target=self._guarded, args=(write, number))
            for write, number in [*writers, (self.replace_plan, 0)]
        ]
        for thread in threads:
            thread.start()
        try:
            during()
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()

    @property
    def least(self) -> int:
        """How often every kind of call was answered, at least."""
        return min(self.plan, self.shared, len(self.kept))

    def _guarded(self, write: Callable[[TableClient, int, random.Random], None], number: int) -> None:
        client = TableClient(self.url)
        try:
            write(client, number, random.Random(self.seed * 100 + number))
        except BaseException as error:  # noqa: BLE001  told by the test
            self.failures.append(error)
            self.stopping.set()
        finally:
            client.close()

    def _until_answered(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except StateStoreUnavailable:
                self.repeats += 1
                time.sleep(0.005)  # what the service's absence costs, nothing waits for it

    def count(self, client: TableClient, number: int, rng: random.Random) -> None:
        writer, sequence = os.urandom(16), 0
        while not self.stopping.is_set():
            sequence += 1
            mine = b"%d-" % number
            words = [mine + b"%d" % rng.randrange(500) for _ in range(rng.choice((1, 5, 300)))]
            put, gone = mine + b"put-%d" % sequence, mine + b"put-%d" % rng.randrange(1, sequence + 1)
            data = rng.randbytes(rng.choice((0, 10, 5000)))
            changes: list[Change] = [Increment(SHARED, len(words)), *(Increment(word, 1) for word in words)]
            changes += [Put(put, data), Delete(gone)]
            self._until_answered(partial(client.apply, TABLE, writer, sequence, changes, timeout_s=2))
            with self._lock:
                self.shared += len(words)
            for word in words:
                self.counted[word] = self.counted.get(word, 0) + 1
            self.kept[put] = data
            self.kept.pop(gone, None)

    def commit(self, client: TableClient, number: int, rng: random.Random) -> None:
        partition = f"in-partition-{number}"
        position: Position | None = None
        kept: list[OutboxEntry] = []
        while not self.stopping.is_set():
            new = Position(1, 0) if position is None else Position(position.ledger_id, position.entry_id + 1)
            outputs = [OutboxEntry("out", new.entry_id, 1, rng.randbytes(100), new) for _ in range(rng.randrange(3))]
            published = position if rng.random() < 0.7 else None
            changes = [Increment(SHARED, 1), Increment(partition.encode(), 1)]
            where = (TABLE, UUID, partition)
            self._until_answered(
                partial(client.commit, *where, position, new, changes, outputs, published, timeout_s=2)
            )
            with self._lock:
                self.shared += 1
            kept = ([] if published else kept) + outputs
            self.positions[partition], self.outbox[partition], position = new, kept, new

    def replace_plan(self, client: TableClient, _: int, rng: random.Random) -> None:
        version, sure = 0, True
        while not (sure and self.stopping.is_set()):
            number = self.plan + 1
            try:
                version = client.put(TABLE, b"plan", b"%d" % number, version, timeout_s=2)
            except StateStoreUnavailable:
                sure = False
                continue
            except BadVersion:
                assert not sure, "another one wrote the plan"
                held = self._until_answered(partial(client.read, TABLE, [b"plan"]))[0]
                assert held is not None
                assert held.data == b"%d" % number  # the call whose answer was lost
                version = held.version
            self.plan, sure = number, True


def check(client: TableClient, traffic: Traffic) -> None:
    """Compare everything that was acknowledged with what is there."""
    put_keys = list(traffic.kept)
    counters = [*traffic.counted, *(partition.encode() for partition in traffic.positions), SHARED]
    expected = [*traffic.counted.values(), *(p.entry_id + 1 for p in traffic.positions.values()), traffic.shared]
    numbers = [value and value.number for value in client.read(TABLE, counters)]
    assert dict(zip(counters, numbers, strict=True)) == dict(zip(counters, expected, strict=True))
    for start in range(0, len(put_keys), 10_000):
        asked = put_keys[start : start + 10_000]
        assert [v and v.data for v in client.read(TABLE, asked)] == [traffic.kept[key] for key in asked]
    for partition, position in traffic.positions.items():
        assert client.open(TABLE, UUID, partition) == (position, traffic.outbox[partition])
    plan = client.read(TABLE, [b"plan"])[0]
    assert plan is not None
    assert plan.data == b"%d" % traffic.plan


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(2, marks=pytest.mark.slow), pytest.param(40, marks=[pytest.mark.crash, pytest.mark.timeout(600)])],
)
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, rounds: int) -> None:
    seed = 100 + rounds
    rng = random.Random(seed)
    with running_service(tmp_path / "state") as (service, client):
        traffic = Traffic(service.url, seed)

        def made_progress(least: int) -> bool:
            return traffic.stopping.is_set() or traffic.least > least

        def kills() -> None:
            for number in range(rounds):
                # Something was done since the last kill, however slow it was; then comes a random moment.
                wait_for(partial(made_progress, 10 * (number + 1)), "progress", 60)
                traffic.stopping.wait(rng.uniform(0.02, 0.6))
                service.kill()
                service.start()

        traffic.run(kills)
        assert traffic.failures == []
        check(client, traffic)
        service.kill()
        service.start()
        check(client, traffic)
        assert traffic.repeats > 0
        assert traffic.least > 10 * rounds
