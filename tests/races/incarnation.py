"""Run one incarnation of a broker with a seeded schedule, from its start to a crash.

Each step of the schedule is one of: run the next callback of the loop; let the disk, the metadata store or a peer's
bytes advance by one piece; advance the time to the next timer; perform an action of a client or an administrator. The
probabilities are random for each incarnation, so that some delay the disk for long, and others the metadata store.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.policies.policies import default_policies
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.config import StorageConfig
from magnetar.broker.storage.store import Storage
from magnetar.errors import MagnetarError
from magnetar.metadata.store.store import Record
from magnetar.testing.simulated_disk import SimulatedDisk

from .actions import NAMESPACE, Actions
from .checks import check
from .facts import Facts
from .gates import HeldLanes, HeldStore
from .loop import SteppedLoop
from .peer import Peer

DIRECTORY = "/data"
STORAGE = StorageConfig(
    journal_file_bytes=64 * 1024,
    group_bytes=8 * 1024,
    checkpoint_bytes=64 * 1024,
    checkpoint_interval_s=1.0,
    max_ledger_entries=4,
    tail_cache_bytes=200,
    read_cache_bytes=1000,
)
CONFIG = BrokerConfig(broker_port=0, failover_delay_s=0.05)
MAX_STEPS = 200_000
SETTLING_S = 45.0
"""Longer than the slowest reply: a few successive checks of a peer's liveness."""


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


class Faults(NamedTuple):
    """Failures during an incarnation, besides the crash at its end."""

    metadata: bool = False
    disk: bool = False


class Incarnation:
    """Return whether a reply may never arrive: a producer is queued, or the consumer of the acks was closed.

    Args:
        rng: selects the steps.
        disk: directory of the storage.
        records: content of the metadata store.
        facts: promises to clients, by topic; passed on to the next incarnation.
        faults: whether metadata store and disk fail now and then.
        settings: broker settings that differ from `CONFIG`.

    Attributes:
        peers: all clients, including disconnected ones.
        fenced: topics that a client has tried to take over exclusively.
        admin: pending requests of administrators.
        errors: errors logged by the broker.
    """

    def __init__(
        self,
        rng: random.Random,
        disk: SimulatedDisk,
        records: dict[str, Record],
        facts: dict[str, Facts],
        faults: Faults,
        **settings: Any,
    ) -> None:
        self.rng = rng
        self.facts = facts
        self.trace: deque[str] = deque(maxlen=4000)
        self.steps = 0
        self.peers: list[Peer] = []
        self.fenced: set[str] = set()
        self.admin: dict[asyncio.Task[Any], str] = {}
        self.loop = SteppedLoop()
        self.store = HeldStore(self.loop, records)
        self.storage = Storage.open(DIRECTORY, STORAGE, disk, self.now_s, random.Random(rng.random()))
        journal = self.storage._core.journal
        self.lanes = HeldLanes(self.loop, journal.hand_over, journal.write_turn)
        self.storage.use(self.lanes)
        config = replace(CONFIG, **settings)
        namespaces = Namespaces(self.store, config)
        self._run(namespaces.start())
        if not namespaces.has_namespace(NAMESPACE):
            kept = {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}
            self._run(namespaces.create_namespace(NAMESPACE, default_policies("standalone") | kept))
        self.broker = BrokerService(config, self.storage, namespaces, self.now_s)
        self._run(self.broker.start())
        self._weights = {name: rng.choice((0.05, 0.3, 1.0, 3.0)) for name in self._gates()}
        self._actions = Actions(self)
        self._action_weight = rng.choice((0.03, 0.1, 0.5))
        self._timer_weight = rng.choice((0.0, 0.0, 0.01, 0.1))
        self.errors = _Errors()
        self.faults = faults
        self.disk = disk
        if faults.metadata:
            self.store.fails = lambda: rng.random() < 0.1
        logging.getLogger("magnetar").addHandler(self.errors)

    def now_s(self) -> float:
        return 1_700_000_000.0 + self.loop.time()

    def now_ms(self) -> int:
        return int(self.now_s() * 1000)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.steps:6} {text}")

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine with all gates open."""
        task = self.loop.create_task(work)
        while not task.done():
            if self.loop.is_ready:
                self.loop.step()
            elif (release := self._any_gate()) is not None:
                release()
            else:
                self.loop.advance()
        return task.result()

    # The schedule

    def _gates(self) -> dict[str, Callable[[], None] | None]:
        lanes = self.lanes
        return {
            "journal": lanes.write if lanes.wakes else None,
            "background": self._work if lanes.background else None,
            "read": self._read if lanes.reads else None,
            "thread": self._think if self.loop.jobs else None,
            "metadata": self.store.release if self.store.queue else None,
            "bytes": self._deliver if any(peer.can_deliver for peer in self.peers) else None,
        }

    def _any_gate(self) -> Callable[[], None] | None:
        return next((release for release in self._gates().values() if release is not None), None)

    def _work(self) -> None:
        self.lanes.background.popleft()()

    def _think(self) -> None:
        self.loop.jobs.popleft()()

    def _read(self) -> None:
        self.lanes.reads.popleft()()

    def _deliver(self) -> None:
        peer = self.rng.choice([peer for peer in self.peers if peer.can_deliver])
        peer.deliver(self.rng.choice((1, 1, 2, 5)))

    def play(self, actions: int) -> None:
        """Run steps until a number of actions were started."""
        while actions:
            choices: list[tuple[str, Callable[[], None], float]] = [
                (name, release, self._weights[name]) for name, release in self._gates().items() if release is not None
            ]
            choices.append(("action", self._actions.act, self._action_weight))
            if self.loop.is_ready:
                choices.append(("", self.loop.step, 3.0))
            if self.loop.next_timer_s is not None:
                choices.append(("time", self.loop.advance, self._timer_weight))
            name, do, _ = self.rng.choices(choices, [weight for _, _, weight in choices])[0]
            actions -= name == "action"
            self._step(name, do)

    def settle(self) -> None:
        """Open all gates, then advance the time, until all activity has ended."""
        self.store.fails = None
        self.disk.failures.clear()
        until_s = self.loop.time() + SETTLING_S
        while True:
            if self.loop.is_ready:
                self._step("", self.loop.step)
            elif (release := self._any_gate()) is not None:
                self._step("release", release)
            elif (due_s := self.loop.next_timer_s) is not None and due_s <= until_s:
                self._step("time", self.loop.advance)
            else:
                return

    def hold(self, *held: str) -> None:
        """Open all gates but these, without advancing the time, until all activity has ended."""
        while True:
            gates = [(name, release) for name, release in self._gates().items() if release is not None]
            free = [release for name, release in gates if name not in held]
            if self.loop.is_ready:
                self._step("", self.loop.step)
            elif free:
                self._step("release", free[0])
            else:
                return

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine, which advances with the steps."""
        return self.loop.create_task(work)

    def stop(self) -> None:
        """Stop the broker as a signal does, regardless of pending work."""
        self.note("stop")
        self._run(self.broker.stop())
        assert not self.broker.tasks, f"{self.broker.tasks} still run"
        check(self)

    def _step(self, name: str, do: Callable[[], None]) -> None:
        self.steps += 1
        assert self.steps < MAX_STEPS, "the schedule does not come to an end"
        if name and name != "action":
            self.note(name)
        do()
        for task, what in list(self.admin.items()):
            if task.done():
                del self.admin[task]
                self._ended(task, what)
        check(self)

    def _ended(self, task: asyncio.Task[Any], what: str) -> None:
        error = task.exception()
        self.note(f"{what} ended: {error!r}")
        assert error is None or isinstance(error, MagnetarError), f"{what} ended by {error!r}"

    def end(self) -> None:
        """Crash the broker."""
        logging.getLogger("magnetar").removeHandler(self.errors)
        for peer in self.peers:
            peer.forget()
        self.loop.end()
