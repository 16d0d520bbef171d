"""Run several incarnations of one broker, each ended by a power failure, and check which data survived."""

from __future__ import annotations

import random
from typing import Any

from magnetar.broker.storage.store import Storage
from magnetar.metadata.store.store import Record
from magnetar.testing.simulated_disk import SimulatedDisk
from magnetar.wire.payload import open_payload

from tests.support.stepper import load_now

from .actions import TOPICS
from .checks import check_settled
from .facts import Facts
from .incarnation import DIRECTORY, STORAGE, Faults, Incarnation

INCARNATIONS = 2
SHOWN = 60
GATES = ("journal", "background", "read", "thread", "metadata", "bytes", "release", "time")


def race(seed: int, faults: Faults | None = None) -> dict[str, Any]:
    """Run one seed, and return statistics; raises AssertionError with the seed and the last steps."""
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    records: dict[str, Record] = {}
    facts = {name: Facts() for name in TOPICS}
    steps = 0
    if faults is None:
        faults = rng.choice(
            (Faults(), Faults(), Faults(metadata=True), Faults(disk=True), Faults(metadata=True, disk=True))
        )
    for _ in range(INCARNATIONS):
        incarnation = Incarnation(
            rng, disk, records, facts, faults,
            unload_idle_after_s=rng.choice((0.05, 1.0, 600.0)),
            stats_period_s=rng.choice((0.2, 60.0)),  # a log rests once the broker has looked at its changes
        )  # fmt: skip
        try:
            incarnation.play(rng.choice((10, 40, 120)))
            if rng.random() < 0.7:
                incarnation.settle()
                check_settled(incarnation)
            if rng.random() < 0.3:
                incarnation.stop()
        except Exception as error:
            trace = "\n".join([line for line in incarnation.trace if line.split(" ")[-1] not in GATES][-SHOWN:])
            raise AssertionError(f"seed {seed}, step {incarnation.steps}: {error}\n{trace}") from error
        finally:
            incarnation.end()
        steps += incarnation.steps
        records = incarnation.store.records
        disk.power_failure()
        try:
            _check_survivors(disk, facts)
        except AssertionError as error:
            trace = "\n".join([line for line in incarnation.trace if line.split(" ")[-1] not in GATES][-SHOWN:])
            raise AssertionError(f"seed {seed}, after the crash: {error}\n{trace}") from error
    return {"steps": steps}


def _check_survivors(disk: SimulatedDisk, facts: dict[str, Facts]) -> None:
    storage = Storage.open(DIRECTORY, STORAGE, disk)
    for name, promised in facts.items():
        promised.restarted()
        assert not promised.is_there or storage.has_log(name), f"{name} is gone"
        if not storage.has_log(name):
            continue
        log = storage.open_log(name)
        for position, body in promised.receipts.items():
            entries = load_now(log, position, 1, 1)
            assert entries, f"{name} has lost {position}"
            assert entries[0].position == position, f"{name} has lost {position}"
            _, start = open_payload(entries[0].payload)
            assert entries[0].payload[start:] == body, f"{name} has something else at {position}"
        missing = promised.subscriptions - set(log.cursors)
        assert not missing, f"{name} has lost the subscriptions {missing}"
        for subscription, positions in promised.acknowledged.items():
            cursor = log.cursors[subscription]
            again = [position for position in positions if not cursor.is_acknowledged(position)]
            assert not again, f"{subscription} of {name} has forgotten that {again} were acknowledged"
        dead = {ledger.id for ledger in log.ledgers()} & promised.dead_ledgers
        assert not dead, f"{name} has ledgers {dead} of a topic that was deleted"
    storage.abandon()
    disk.kill_process()
