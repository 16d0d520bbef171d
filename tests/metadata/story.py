"""A story: workers, requests to them and faults, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from magnetar.membership.manager import Member

from .simulated_broker import KEEP_ALIVE_S
from .simulated_cluster import Ground, Network, SimulatedWorker

WORKERS = 3

W = TypeVar("W", bound=SimulatedWorker)
Kind = Callable[[], Coroutine[Any, Any, None]]


class Scene(Ground, Protocol):
    """The broker under the workers, which can be disturbed."""

    def turn(self) -> None:
        """Make another worker lead."""

    def compact(self) -> None:
        """Compact the topics."""

    def roll(self) -> None:
        """Start new ledgers, as after a restart."""


class Story(Generic[W]):
    """Workers and their faults; subclasses define the requests and the invariants.

    Attributes:
        chance: draws everything.
        mishaps_per_s: on average.
    """

    mishaps_per_s = 1.0

    def __init__(self, broker: Scene, chance: random.Random) -> None:
        self.chance = chance
        self.network = Network(chance)
        self.workers: list[W] = []
        self.events: list[str] = []
        self._scene = broker

    def note(self, what: str) -> None:
        """Record an event for failure reports."""
        self.events.append(f"{asyncio.get_running_loop().time():.3f} {what}")

    def tail(self) -> str:
        """Return the most recent events."""
        return "\n".join(self.events[-100:])

    async def play(self) -> None:
        """Run until the last answer, then check everything."""
        for number in range(WORKERS):
            self.workers.append(self._start(number))
        mishaps = asyncio.create_task(self._mishaps())
        try:
            await self._ask_all()
        finally:
            mishaps.cancel()
            await asyncio.gather(mishaps, return_exceptions=True)
        await self._calm_down()
        self._check_all()
        for worker in self.workers:
            worker.kill()
        await asyncio.sleep(0)

    @abstractmethod
    async def _ask_all(self) -> None:
        """Send all requests to the workers."""

    @abstractmethod
    def _make_worker(self, member: Member) -> W:
        """Return a worker that has not been started."""

    @abstractmethod
    def _kinds(self) -> list[Kind]:
        """Return the mishaps to draw from."""

    @abstractmethod
    def _is_quiet(self) -> bool:
        """Return whether all workers agree."""

    async def _look(self) -> None:
        """Prepare `_is_quiet`."""

    def _check_all(self) -> None:
        """Check the invariants at the end."""

    def _start(self, number: int) -> W:
        worker = self._make_worker(Member(f"w{number}", "h", 1000 + number))
        self.network.workers[1000 + number] = worker
        worker.start()
        return worker

    async def _somebody(self) -> W:
        while True:
            ready = [worker for worker in self.workers if worker.is_ready.is_set() and not worker.link.is_dead]
            if ready:
                return self.chance.choice(ready)
            await asyncio.sleep(0.05)

    async def _mishaps(self) -> None:
        kinds = self._kinds()
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self.chance.expovariate(self.mishaps_per_s))
                group.create_task(self.chance.choice(kinds)())

    def _victim(self) -> int:
        leading = [number for number, worker in enumerate(self.workers) if worker.metadata.log.is_leading]
        return self.chance.choice(leading) if leading and self.chance.random() < 0.7 else self.chance.randrange(WORKERS)

    async def _crash(self) -> None:
        number = self._victim()
        if self.workers[number].link.is_dead:
            return
        self.note(f"w{number} is killed")
        self.workers[number].kill()
        await asyncio.sleep(self.chance.uniform(0, 3))
        self.note(f"w{number} is started again")
        self.workers[number] = self._start(number)

    async def _cut(self) -> None:
        number = self._victim()
        self.note(f"w{number} is cut off")
        self._scene.cut(self.workers[number].link)

    async def _freeze(self) -> None:
        worker = self.workers[self._victim()]
        self.note(f"{worker.member.worker_id} freezes")
        worker.link.thawed.clear()
        await self._frozen(worker, self.chance.uniform(0, 3 * KEEP_ALIVE_S))
        self.note(f"{worker.member.worker_id} goes on")
        worker.link.thawed.set()

    async def _frozen(self, worker: W, for_s: float) -> None:
        """Wait while a worker is frozen; cut its connection once the keep-alive time has passed."""
        await asyncio.sleep(min(for_s, KEEP_ALIVE_S))
        if for_s > KEEP_ALIVE_S:
            self._scene.cut(worker.link)
            await asyncio.sleep(for_s - KEEP_ALIVE_S)

    async def _turn(self) -> None:
        self.note("another one is active")
        self._scene.turn()

    async def _compact(self) -> None:
        self.note("compaction")
        self._scene.compact()

    async def _restart_broker(self) -> None:
        self.note("the broker is killed and is back")
        self._scene.roll()
        for worker in self.workers:
            self._scene.cut(worker.link)

    async def _calm_down(self) -> None:
        """Stop all faults, resume frozen workers and restart killed ones, then wait until all agree."""
        self.network.is_mishap_free = True
        for number, worker in enumerate(self.workers):
            worker.link.thawed.set()
            if worker.link.is_dead:
                self.workers[number] = self._start(number)
        for worker in self.workers:
            worker.link.is_mishap_free = True
        for _ in range(120):
            await asyncio.sleep(0.5)
            await self._look()
            if self._is_quiet():
                return
        raise AssertionError(f"the workers never agree, although nobody disturbs them any more: {self.workers}")

    @property
    def _is_led(self) -> bool:
        """Return whether all workers are ready and one of them leads."""
        is_ready = all(worker.is_ready.is_set() for worker in self.workers)
        return is_ready and sum(worker.metadata.log.is_leading for worker in self.workers) == 1
