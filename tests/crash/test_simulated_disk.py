"""Crashes at random operations on a disk that loses whatever was not synced, compared with an exact expectation.

Everything durable goes through one journal in the order of the calls. So what a crash may leave is exactly known: the
state after the first k calls, for some k that includes every call that was confirmed. A naive model replays the calls
one by one; one of its states must equal what recovery brought back, down to each position, acknowledgement and ack set.
"""

from __future__ import annotations

import copy
import errno
import gc
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from magnetar.broker.storage import DiskFailure, Position, Storage, StorageConfig, TopicLog
from magnetar.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from magnetar.wire.ack_set import from_wanted, intersect

from tests.support.stepper import Stepper, load_now, step_by_hand

DIRECTORY = "/data"
TINY = StorageConfig(
    journal_file_bytes=48 * 1024,
    group_bytes=8 * 1024,
    checkpoint_bytes=64 * 1024,
    max_ledger_entries=9,
    max_ledger_bytes=24 * 1024,
    max_ledger_age_s=50.0,
    tail_cache_bytes=12 * 1024,
    read_cache_bytes=16 * 1024,
)
SEEDS = int(os.environ.get("MAGNETAR_CRASH_SEEDS", "200"))
ROUNDS = 6
ALL_WANTED = from_wanted(range(62))

State = dict[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def short_collections() -> Iterator[None]:
    """Leave out of collections what other tests and modules have left: histories ask for thousands of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Model:
    """The calls since the last start, and what each does to a naive picture of the storage."""

    def __init__(self) -> None:
        self.state: State = {}
        self.calls: list[Callable[[State], object]] = []
        self.confirmed = 0
        self.failed = 0
        self.contents: dict[Position, bytes] = {}
        self.old_ledgers: set[int] = set()
        self.deleted: set[str] = set()

    def call(self, apply: Callable[[State], object]) -> Callable[[Exception | None], None]:
        self.calls.append(apply)
        number = len(self.calls)

        def done(error: Exception | None) -> None:
            if error is None:
                assert number > self.confirmed, "confirmations come in the order of the calls"
                self.confirmed = number
            else:
                self.failed += 1

        return done

    def confirmed_entries(self, name: str) -> list[tuple[Position, bytes]]:
        """The entries that were confirmed for a log since it was begun, oldest first, dropped ones included."""
        state = copy.deepcopy(self.state)
        for apply in self.calls[: self.confirmed]:
            apply(state)
        entries: list[tuple[Position, bytes]] = state[name]["entries"] if name in state else []
        return entries

    def possible(self) -> list[State]:
        """The states that a crash may leave now."""
        state = copy.deepcopy(self.state)
        states = [copy.deepcopy(state)] if self.confirmed == 0 else []
        for number, apply in enumerate(self.calls, 1):
            apply(state)
            if number >= self.confirmed:
                states.append(copy.deepcopy(state))
        return states

    def recovered(self, state: State, *, is_new_start: bool = True) -> None:
        """Go on from what was found: all of it has been seen now."""
        for log in state.values():
            for position, payload in log["entries"]:
                assert self.contents.setdefault(position, payload) == payload, f"{position} named other content before"
                if is_new_start:
                    self.old_ledgers.add(position.ledger_id)
        self.state, self.calls, self.confirmed = state, [], 0
        self.deleted.clear()


def picture(storage: Storage, rng: random.Random) -> State:
    """Read everything that a storage holds through its own interface."""
    state: State = {}
    for name in storage.log_names():
        log = storage.open_log(name)
        entries = []
        position = Position(-1, -1)
        while found := load_now(log, position, rng.randint(1, 20), rng.randint(1, 20_000)):
            entries += [(entry.position, entry.payload) for entry in found]
            position = log.next_position(found[-1].position)
        assert [p for p, _ in entries] == sorted({p for p, _ in entries})
        assert log.entry_count == len(entries)
        cursors = {}
        for cursor in log.cursors.values():
            acked = {p for p, _ in entries if cursor.is_acknowledged(p)}
            assert cursor.backlog_entries == len(entries) - len(acked)
            partly = {p: words for p, _ in entries if (words := cursor.remaining(p)) is not None}
            cursors[cursor.name] = (acked, partly, dict(cursor.properties))
        state[name] = {"entries": entries, "cursors": cursors}
    return state


class Workload:
    """Random calls on one storage, each told to the model."""

    def __init__(self, storage: Storage, stepper: Stepper, model: Model, rng: random.Random) -> None:
        self.storage = storage
        self.stepper = stepper
        self.model = model
        self.rng = rng
        self.serial = rng.getrandbits(40)
        self.still_held: list[TopicLog] = []
        self.unloaded = 0
        self.to_free: list[Callable[[], bool]] = []
        self.acts = [
            (self.append, 30), (self.acknowledge, 14), (self.acknowledge_up_to, 4), (self.acknowledge_partly, 6),
            (self.open_cursor, 5), (self.delete_cursor, 1), (self.reset, 1), (self.trim, 3), (self.create_log, 4),
            (self.delete_log, 1), (self.checkpoint, 3), (self.run_lanes, 30), (self.unload, 10),
        ]  # fmt: skip

    def act(self) -> None:
        acts, weights = zip(*self.acts, strict=True)
        self.rng.choices(acts, weights)[0]()

    def run_lanes(self) -> None:
        for _ in range(self.rng.randint(1, 12)):
            self.stepper.step()

    def log(self) -> TopicLog | None:
        names = self.storage.log_names()
        if not names:
            return None
        name = self.rng.choice(names)
        for log in self.still_held:
            if log.name == name and not log.is_deleted and self.rng.random() < 0.7:
                return log  # of a log at rest: who still holds it may go on
        return self.storage.open_log(name)

    def unload(self) -> None:
        for name in self.storage.used_names():
            log = self.storage.open_log(name)
            if self.rng.random() < 0.3:
                log.close_ledger()
            if self.rng.random() < 0.3:
                self.still_held = [log for log in self.still_held if log.name != name]
                self.still_held.append(log)
        if self.rng.random() < 0.3:  # else seldom all of a log is on the disk
            self.checkpoint()
            self.stepper.run()
        self.storage.take_touched()
        names = self.storage.used_names()
        unloaded = self.storage.unload(self.rng.sample(names, self.rng.randint(0, len(names))))
        self.unloaded += len(unloaded)
        self.to_free += unloaded
        if self.rng.random() < 0.3:
            self.to_free = [free for free in self.to_free if not free()]
        if self.rng.random() < 0.3:
            self.still_held.clear()

    def cursor(self) -> Any:
        log = self.log()
        return self.rng.choice(list(log.cursors.values())) if log and log.cursors else None

    def create_log(self) -> None:
        name = f"log-{self.rng.randint(1, 5)}"
        if self.storage.has_log(name):
            return
        done = self.model.call(lambda state: state.__setitem__(name, {"entries": [], "cursors": {}}))
        self.storage.open_log(name).create(done)

    def delete_log(self) -> None:
        if log := self.log():
            self.model.deleted.add(log.name)
            done = self.model.call(lambda state: state.pop(log.name))
            self.storage.delete_log_with(log.name, done)

    def append(self) -> None:
        if not (log := self.log()):
            return
        for _ in range(self.rng.randint(1, 6)):
            self.serial += 1
            size = self.rng.choice((0, 10, 300, self.rng.randint(0, 9000)))
            payload = b"%d|" % self.serial + self.rng.randbytes(size)
            self.append_one(log, payload)

    def append_one(self, log: TopicLog, payload: bytes) -> None:
        if self.storage.failure is not None:
            refusals: list[Exception | None] = []
            log.append(payload, 1, self.serial, lambda _, error: refusals.append(error))
            assert refusals == [self.storage.failure]
            return
        place: list[Position] = []
        done = self.model.call(lambda state: state[log.name]["entries"].append((place[0], payload)))

        def appended(position: Position, error: Exception | None) -> None:
            assert error is not None or position == place[0]
            done(error)

        log.append(payload, 1, self.serial, appended)
        ledger = list(log.ledgers_by_id.values())[-1]
        place.append(Position(ledger.id, ledger.appended - 1))
        assert place[0] not in self.model.contents
        assert ledger.id not in self.model.old_ledgers, "an old ledger goes on"

    def some_positions(self, cursor: Any) -> list[Position]:
        held = [entry.position for entry in self.held(cursor.log)]
        return self.rng.sample(held, min(len(held), self.rng.randint(1, 12)))

    def held(self, log: TopicLog) -> list[Any]:
        found: list[Any] = []
        position = Position(-1, -1)
        while more := load_now(log, position, 1000, 10**9):
            found += more
            position = log.next_position(more[-1].position)
        return found

    def acknowledge(self) -> None:
        if not (cursor := self.cursor()):
            return
        positions = self.some_positions(cursor)
        name = cursor.log.name

        def apply(state: State) -> None:
            acked, partly, _ = state[name]["cursors"][cursor.name]
            acked.update(positions)
            for position in positions:
                partly.pop(position, None)

        cursor.acknowledge([(position, None) for position in positions], self.maybe(self.model.call(apply)))

    def maybe(self, done: Callable[[Exception | None], None]) -> Callable[[Exception | None], None] | None:
        return done if self.rng.random() < 0.7 else None

    def acknowledge_up_to(self) -> None:
        if not (cursor := self.cursor()) or not (positions := self.some_positions(cursor)):
            return
        up_to, confirmed = positions[0], cursor.log.last_confirmed
        name = cursor.log.name

        def apply(state: State) -> None:
            acked, partly, _ = state[name]["cursors"][cursor.name]
            for position, _ in state[name]["entries"]:
                if position <= min(up_to, confirmed):
                    acked.add(position)
                    partly.pop(position, None)

        cursor.acknowledge_up_to(up_to, None, self.maybe(self.model.call(apply)))

    def acknowledge_partly(self) -> None:
        if not (cursor := self.cursor()):
            return
        acks = []
        for position in self.some_positions(cursor):
            wanted = tuple(word & self.rng.getrandbits(62) for word in ALL_WANTED)
            acks.append((position, wanted if any(wanted) else ()))
        name = cursor.log.name

        def apply(state: State) -> None:
            acked, partly, _ = state[name]["cursors"][cursor.name]
            for position, words in acks:
                if position not in acked:
                    left = intersect(partly.get(position, ALL_WANTED), words)
                    partly[position] = left
                    if not any(left):
                        del partly[position]
                        acked.add(position)

        cursor.acknowledge(acks, self.maybe(self.model.call(apply)))

    def open_cursor(self) -> None:
        if not (log := self.log()):
            return
        name = f"sub-{self.rng.randint(1, 4)}"
        if name in log.cursors:
            return
        held = [entry.position for entry in self.held(log)]
        mark = self.rng.choice([Position(-1, -1), log.last_confirmed, *held[:3]])
        properties = {"k": str(self.serial)}

        def apply(state: State) -> None:
            acked = {position for position, _ in state[log.name]["entries"] if position <= mark}
            state[log.name]["cursors"][name] = (acked, {}, properties)

        done = self.model.call(apply)
        # A refusal is raised where nobody is told.
        log.open_cursor(name, mark, properties, done if self.storage.failure is not None else self.maybe(done))

    def delete_cursor(self) -> None:
        if cursor := self.cursor():
            name = cursor.log.name
            done = self.model.call(lambda state: state[name]["cursors"].pop(cursor.name))
            cursor.log.delete_cursor_with(cursor.name, done)

    def reset(self) -> None:
        if not (cursor := self.cursor()) or not (positions := self.some_positions(cursor)):
            return
        name = cursor.log.name

        def apply(state: State) -> None:
            acked, partly, _ = state[name]["cursors"][cursor.name]
            acked.clear()
            partly.clear()
            acked.update(p for p, _ in state[name]["entries"] if p < positions[0])

        cursor.reset_with(positions[0], self.model.call(apply))

    def trim(self) -> None:
        if not (log := self.log()):
            return
        drop: list[int] = []

        def apply(state: State) -> None:
            entries = state[log.name]["entries"]
            gone = {position for position, _ in entries if position.ledger_id in drop}
            entries[:] = [(position, payload) for position, payload in entries if position not in gone]
            for acked, partly, _ in state[log.name]["cursors"].values():
                acked -= gone
                assert not gone & set(partly), "retention dropped what a cursor still wants"

        drop += log.trim_with(0, 0, self.model.call(apply))

    def checkpoint(self) -> None:
        self.storage._checkpoint.begin()


def start(disk: SimulatedDisk, rng: random.Random) -> tuple[Storage, Stepper]:
    clock = iter(range(10**9))
    storage = Storage.open(DIRECTORY, TINY, disk, lambda: next(clock) * 0.5, rng, lambda: next(clock) * 0.5)
    return storage, step_by_hand(storage, rng)


def crash(disk: SimulatedDisk, rng: random.Random) -> None:
    """Stop the machine, or only the process, perhaps more than once, perhaps in the middle of a recovery."""
    while True:
        if rng.random() < 0.7:
            disk.power_failure()
        else:
            disk.kill_process()
        if rng.random() < 0.6:
            return
        disk.crash_at = disk.operations + rng.randint(1, 30)
        try:
            storage, _ = start(disk, rng)
        except SimulatedCrash:
            continue
        storage.abandon()


def heal(workload: Workload, disk: SimulatedDisk) -> None:
    """Let the storage get over an error of the disk, with calls meanwhile.

    What it then has in memory is what a crash must leave, whatever was refused.
    """
    model, storage = workload.model, workload.storage
    crash_at, disk.crash_at = disk.crash_at, None
    disk.failures.clear()
    workload.stepper.run()
    for _ in range(5):
        storage.maintain()
        while storage.failure is not None and workload.stepper.step():
            if storage.failure is not None and workload.rng.random() < 0.7:
                workload.act()
    assert storage.failure is None
    workload.stepper.run()
    found = picture(storage, workload.rng)
    for name, log in found.items():
        first = storage.open_log(name).first_position
        confirmed = {entry for entry in model.confirmed_entries(name) if entry[0] >= first}
        assert name in model.deleted or confirmed <= set(log["entries"]), "an entry was confirmed and is gone"
    model.recovered(found, is_new_start=False)
    disk.crash_at = None if crash_at is None else max(crash_at, disk.operations + 1)


def one_history(seed: int, *, has_errors: bool = False) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    model = Model()
    for _ in range(ROUNDS):
        disk.crash_at = disk.operations + rng.randint(1, rng.choice((30, 100, 400)))
        try:
            storage, stepper = start(disk, rng)
            workload = Workload(storage, stepper, model, rng)
            if has_errors:
                disk.failures[disk.operations + rng.randint(1, 120)] = rng.choice((errno.EIO, errno.ENOSPC))
            while True:
                try:
                    workload.act()
                except DiskFailure:
                    continue  # in reading, before anything was called
                if storage.failure is not None:
                    heal(workload, disk)
        except SimulatedCrash:
            crash(disk, rng)
        disk.crash_at = None
        disk.failures.clear()
        storage, stepper = start(disk, rng)
        found = picture(storage, rng)
        possible = model.possible()
        assert found in possible, describe(found, possible)
        model.recovered(found)
        storage.abandon()


def describe(found: State, possible: list[State]) -> str:
    return f"recovery found\n{summary(found)}\nwhich is none of {len(possible)} possible states, the last being\n" + (
        summary(possible[-1])
    )


def summary(state: State) -> str:
    lines = []
    for name, log in sorted(state.items()):
        lines.append(f"{name}: {[(tuple(p), payload[:20]) for p, payload in log['entries']]}")
        for cursor, (acked, partly, _) in sorted(log["cursors"].items()):
            lines.append(f"  {cursor}: {sorted(map(tuple, acked))} partly {sorted(map(tuple, partly))}")
    return "\n".join(lines)


BLOCK = 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_crash_leaves_a_state_that_the_confirmed_calls_explain(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        try:
            one_history(seed)
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_crash_after_an_error_of_the_disk_leaves_what_memory_had(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        try:
            one_history(seed, has_errors=True)
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise


@pytest.mark.crash
@pytest.mark.timeout(1200)
def test_thousand_crashes_leave_states_that_the_confirmed_calls_explain() -> None:
    for seed in range(10_000, 10_000 + max(1000, SEEDS)):
        try:
            one_history(seed, has_errors=seed % 2 == 1)
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise
