"""A story in which functions are created, used, deleted and recreated under one name while workers come and go.

Invariants, checked after each answer and at the end:

- who was answered that a function is created finds everything that is published from then on processed by that
  incarnation of the function, with Earliest everything from the first message on, and with Latest nothing from before;
- who was answered that it is deleted finds its subscription gone;
- every worker shows the same assignments in the end, one leads, and every call is answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar.errors import MagnetarError, RequestRefused
from magnetar.membership.manager import Member
from magnetar.wire.functions_pb2 import RUNNING, STOPPED
from magnetar.worker.functions.service import Deployment, FunctionName

from .function_world import World
from .simulated_broker import Broker
from .simulated_cluster import METADATA, WorkerKilled
from .story import Kind, Story
from .whole_worker import WholeWorker, register_tasks

NAMES = ("a", "b", "c")
INCARNATIONS = 4
PARALLELISM = 2
ANSWERED_S = 600.0
LEASE_S = 3.0


@dataclass
class Incarnation:
    """The requirements for one incarnation of a function.

    Attributes:
        uuid: of its record.
        first: the earliest message that it must process, and all behind it.
        least: it must not process any before this one.
    """

    uuid: str
    first: int
    least: int


class Incarnations(Story[WholeWorker]):
    """One run, in which functions are repeatedly created, used and deleted.

    Attributes:
        answers: how many requests were carried out.
    """

    mishaps_per_s = 0.5

    def __init__(self, seed: int, directory: Path) -> None:
        chance = random.Random(seed)
        self.broker = Broker(chance, METADATA)
        super().__init__(self.broker, chance)
        self.world = World()
        self.answers = 0
        self._directory = directory

    async def play(self) -> None:
        register_tasks()
        await super().play()

    async def _ask_all(self) -> None:
        try:
            async with asyncio.timeout(ANSWERED_S), asyncio.TaskGroup() as group:
                for name in NAMES:
                    group.create_task(self._use(name))
        except TimeoutError:
            raise AssertionError("not all calls were answered, or not all messages processed") from None
        except BaseExceptionGroup as exc:
            raise exc.exceptions[0] from None

    def _make_worker(self, member: Member) -> WholeWorker:
        return WholeWorker(self.broker, self.world, self.network, member, self._directory / member.worker_id)

    async def _use(self, name: str) -> None:
        function, topic = FunctionName("t", "n", name), f"persistent://t/n/{name}-in"
        for _ in range(INCARNATIONS):
            await asyncio.sleep(self.chance.expovariate(2))
            incarnation = await self._create(function, topic)
            for _ in range(self.chance.randrange(3)):
                await self._publish(topic)
                if self.chance.random() < 0.3:
                    await self._until(
                        function, "stop", "not permitted", lambda one: one.functions.set_state(function, None, STOPPED)
                    )
                    await self._until(
                        function, "start", "not permitted", lambda one: one.functions.set_state(function, None, RUNNING)
                    )
            if self.chance.random() < 0.7:
                await self._publish(topic)
                await self._processed(name, topic, incarnation)
            self._check(name, incarnation)
            await self._until(function, "delete", "doesn't exist", lambda one: one.functions.deregister(function))
            found = self.world.subscriptions.get((topic, str(function)))
            assert found is None, f"{name} is deleted, and its subscription there: {found}"

    async def _publish(self, topic: str) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self.world.publish(topic)
            await asyncio.sleep(self.chance.expovariate(20))

    async def _create(self, function: FunctionName, topic: str) -> Incarnation:
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

        return Incarnation(FunctionMetaData.FromString(record.value).functionUuid, first, least)

    async def _processed(self, name: str, topic: str, incarnation: Incarnation) -> None:
        wanted = set(range(incarnation.first, self.world.sent.get(topic, 0)))
        deadline_s = asyncio.get_running_loop().time() + 120
        while missing := wanted - self.world.done.get(incarnation.uuid, set()):
            if asyncio.get_running_loop().time() > deadline_s:
                raise AssertionError(
                    f"messages {sorted(missing)} of {name} are not processed by {incarnation}:"
                    f" {self.world.subscriptions}, locks {list(self.world.locks)}"
                )
            await asyncio.sleep(0.1)

    def _check(self, name: str, incarnation: Incarnation) -> None:
        early = {index for index in self.world.done.get(incarnation.uuid, set()) if index < incarnation.least}
        assert not early, f"{name} has processed {sorted(early)}, from before {incarnation}"

    async def _until(
        self, name: FunctionName, what: str, done: str, call: Callable[[WholeWorker], Coroutine[Any, Any, object]]
    ) -> None:
        """Send a request to workers until one responds that it is or was carried out."""
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

    def _kinds(self) -> list[Kind]:
        return [self._crash, self._cut, self._freeze, self._turn, self._turn, self._compact, self._restart_broker]

    async def _frozen(self, worker: WholeWorker, for_s: float) -> None:
        await super()._frozen(worker, min(for_s, LEASE_S))
        if for_s > LEASE_S:
            worker.kill_instances()
            await asyncio.sleep(for_s - LEASE_S)

    def _is_quiet(self) -> bool:
        if not self._is_led or self.world.locks or self.world.subscriptions:
            return False
        return not any(worker.scheduler.assignments() or list(worker.metadata.all()) for worker in self.workers)
