"""A story of functions that are created, used, deleted and created again under one name, while workers come and go.

Invariants, checked after each answer and at the end:

- who was answered that a function is created finds everything that is published from then on processed by that life of
  the function, with Earliest everything from the first message on, and with Latest nothing from before;
- who was answered that it is deleted finds its subscription gone;
- every worker shows the same assignments in the end, one leads, and every call is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar.errors import MagnetarError, RequestRefused
from magnetar.membership.roster import Member
from magnetar.worker.functions.service import Deployment, FunctionName

from .function_world import World
from .simulated_broker import KEEP_ALIVE_S, Broker
from .simulated_cluster import METADATA, WorkerKilled
from .whole_worker import WholeNetwork, WholeWorker, register_tasks

WORKERS = 3
NAMES = ("a", "b", "c")
LIVES = 4
PARALLELISM = 2
ANSWERED_S = 600.0
LEASE_S = 3.0


@dataclass
class Life:
    """What must hold of one life of a function.

    Attributes:
        uuid: of its record.
        first: the earliest message that it must process, and all behind it.
        least: it must not process any before this one.
    """

    uuid: str
    first: int
    least: int


class Lives:
    """One run: workers, who calls them, and what befalls them, drawn from a seed."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.broker = Broker(self.chance, METADATA)
        self.world = World()
        self.network = WholeNetwork(self.chance)
        self.workers: list[WholeWorker] = []
        self.events: list[str] = []
        self.answers = 0
        self._directory = directory
        self._numbers = itertools.count()

    def note(self, what: str) -> None:
        """Keep what happens for whoever reads a failure."""
        self.events.append(f"{asyncio.get_running_loop().time():.3f} {what}")

    def tail(self) -> str:
        """What happened last."""
        return "\n".join(self.events[-100:])

    async def play(self) -> None:
        """Run until the last answer, and check everything."""
        register_tasks()
        for number in range(WORKERS):
            self.workers.append(self._born(number))
        mishaps = asyncio.create_task(self._mishaps())
        try:
            async with asyncio.timeout(ANSWERED_S), asyncio.TaskGroup() as group:
                for name in NAMES:
                    group.create_task(self._live(name))
        except TimeoutError:
            raise AssertionError("not all calls were answered, or not all messages processed") from None
        except BaseExceptionGroup as exc:
            raise exc.exceptions[0] from None
        finally:
            mishaps.cancel()
            await asyncio.gather(mishaps, return_exceptions=True)
        await self._calm_down()
        for worker in self.workers:
            worker.kill()
        await asyncio.sleep(0)

    def _born(self, number: int) -> WholeWorker:
        member = Member(f"w{number}", "h", 1000 + number)
        worker = WholeWorker(self.broker, self.world, self.network, member, self._directory / f"w{number}")
        self.network.workers[1000 + number] = worker
        worker.start()
        return worker

    async def _live(self, name: str) -> None:
        function, topic = FunctionName("t", "n", name), f"persistent://t/n/{name}-in"
        for _ in range(LIVES):
            await asyncio.sleep(self.chance.expovariate(2))
            life = await self._create(function, topic)
            for _ in range(self.chance.randrange(3)):
                await self._publish(topic)
                if self.chance.random() < 0.3:
                    await self._until(function, "stop", "not permitted", lambda one: one.functions.stop(function, None))
                    await self._until(
                        function, "start", "not permitted", lambda one: one.functions.start(function, None)
                    )
            if self.chance.random() < 0.7:
                await self._publish(topic)
                await self._processed(name, topic, life)
            self._check(name, life)
            await self._until(function, "delete", "doesn't exist", lambda one: one.functions.deregister(function))
            found = self.world.subscriptions.get((topic, str(function)))
            assert found is None, f"{name} is deleted, and its subscription there: {found}"

    async def _publish(self, topic: str) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self.world.publish(topic)
            await asyncio.sleep(self.chance.expovariate(20))

    async def _create(self, function: FunctionName, topic: str) -> Life:
        position = self.chance.choice(("Earliest", "Latest"))
        least = 0 if position == "Earliest" else self.world.sent.get(topic, 0)
        config = {
            "className": "f.f", "inputs": [topic], "subscriptionPosition": position, "parallelism": PARALLELISM,
            "py": "f.py",
        }  # fmt: skip
        await self._until(
            function,
            f"create {position}",
            "already exists",
            lambda one: one.functions.register(function, Deployment(config)),
        )
        first = least if position == "Earliest" else self.world.sent.get(topic, 0)
        record = next(one for one in reversed(self.broker.records) if one.key == str(function) and one.value)
        from magnetar.wire.functions_pb2 import FunctionMetaData

        return Life(FunctionMetaData.FromString(record.value).functionUuid, first, least)

    async def _processed(self, name: str, topic: str, life: Life) -> None:
        wanted = set(range(life.first, self.world.sent.get(topic, 0)))
        deadline_s = asyncio.get_running_loop().time() + 120
        while missing := wanted - self.world.done.get(life.uuid, set()):
            if asyncio.get_running_loop().time() > deadline_s:
                raise AssertionError(
                    f"messages {sorted(missing)} of {name} are not processed by {life}: {self.world.subscriptions},"
                    f" locks {list(self.world.locks)}"
                )
            await asyncio.sleep(0.1)

    def _check(self, name: str, life: Life) -> None:
        early = {index for index in self.world.done.get(life.uuid, set()) if index < life.least}
        assert not early, f"{name} has processed {sorted(early)}, from before {life}"

    async def _until(
        self, name: FunctionName, what: str, done: str, call: Callable[[WholeWorker], Coroutine[Any, Any, None]]
    ) -> None:
        """Ask workers until one answers that it is done, or was done."""
        while True:
            worker = await self._somebody()
            self.note(f"{what} {name.name} asks {worker.member.worker_id}")
            try:
                await worker.ask(call(worker))
            except WorkerKilled:
                outcome = "no answer"
            except RequestRefused as exc:
                outcome = f"{exc.status} {exc}"
                if done in str(exc):
                    self.note(f"{what} {name.name}: {outcome}")
                    return
            except MagnetarError as exc:
                outcome = f"{type(exc).__name__}: {exc}"
            else:
                self.note(f"{what} {name.name}: done")
                self.answers += 1
                return
            self.note(f"{what} {name.name}: {outcome}")
            await asyncio.sleep(0.1)

    async def _somebody(self) -> WholeWorker:
        while True:
            ready = [worker for worker in self.workers if worker.is_ready.is_set() and not worker.link.is_dead]
            if ready:
                return self.chance.choice(ready)
            await asyncio.sleep(0.05)

    async def _mishaps(self) -> None:
        kinds = (self._crash, self._cut, self._freeze, self._turn, self._turn, self._compact, self._restart_broker)
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self.chance.expovariate(0.5))
                group.create_task(self.chance.choice(kinds)())

    def _victim(self) -> int:
        leading = [number for number, worker in enumerate(self.workers) if worker.metadata.log.is_leading]
        return self.chance.choice(leading) if leading and self.chance.random() < 0.7 else self.chance.randrange(WORKERS)

    async def _crash(self) -> None:
        number = self._victim()
        if self.workers[number].link.is_dead:
            return
        self.note(f"w{number} dies")
        self.workers[number].kill()
        await asyncio.sleep(self.chance.uniform(0, 3))
        self.note(f"w{number} is born again")
        self.workers[number] = self._born(number)

    async def _cut(self) -> None:
        number = self._victim()
        self.note(f"w{number} is cut off")
        self.broker.cut(self.workers[number].link)

    async def _freeze(self) -> None:
        worker = self.workers[self._victim()]
        self.note(f"{worker.member.worker_id} freezes")
        worker.link.thawed.clear()
        for_s = self.chance.uniform(0, 3 * KEEP_ALIVE_S)
        await asyncio.sleep(min(for_s, KEEP_ALIVE_S))
        if for_s > KEEP_ALIVE_S:
            self.broker.cut(worker.link)
            await asyncio.sleep(min(for_s, LEASE_S) - KEEP_ALIVE_S)
        if for_s > LEASE_S:
            worker.kill_instances()
            await asyncio.sleep(for_s - LEASE_S)
        self.note(f"{worker.member.worker_id} goes on")
        worker.link.thawed.set()

    async def _turn(self) -> None:
        self.note("another one is active")
        self.broker.turn()

    async def _compact(self) -> None:
        self.note("compaction")
        self.broker.compact()

    async def _restart_broker(self) -> None:
        self.note("the broker dies and is back")
        self.broker.roll()
        for worker in self.workers:
            self.broker.cut(worker.link)

    async def _calm_down(self) -> None:
        """No more mishaps; whoever is frozen goes on, whoever is dead comes back; then all agree."""
        self.network.is_mishap_free = True
        for number, worker in enumerate(self.workers):
            worker.link.thawed.set()
            if worker.link.is_dead:
                self.workers[number] = self._born(number)
        for worker in self.workers:
            worker.link.is_mishap_free = True
        for _ in range(120):
            await asyncio.sleep(0.5)
            if self._is_quiet():
                return
        shown = [(one.metadata.log.is_leading, one.is_ready.is_set(), one.runtime._held) for one in self.workers]
        raise AssertionError(f"the workers never agree, although nobody disturbs them any more: {shown}")

    def _is_quiet(self) -> bool:
        if not all(worker.is_ready.is_set() for worker in self.workers) or self.world.locks:
            return False
        is_led = sum(worker.metadata.log.is_leading for worker in self.workers) == 1
        is_empty = not any(worker.scheduler.assignments() or list(worker.metadata.all()) for worker in self.workers)
        return is_led and is_empty and not self.world.subscriptions
