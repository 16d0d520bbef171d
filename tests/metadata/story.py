"""A story: workers, who calls them, and what befalls them, drawn from a seed; every answer is kept for the model."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from magnetar.errors import MagnetarError
from magnetar.membership.roster import Member
from magnetar.metadata.function_table import FunctionRequest
from magnetar.wire.functions_pb2 import RUNNING, STOPPED, FunctionDetails, FunctionMetaData

from .log_oracle import Call, Model
from .simulated_broker import KEEP_ALIVE_S, Record
from .simulated_cluster import Ground, Network, Worker, WorkerKilled, is_refusal

WORKERS = 3
FUNCTIONS = ("a", "b", "c")
CALLERS = 4
CALLS = 12
ANSWERED_S = 300.0


class Scene(Ground, Protocol):
    """The broker under the workers, which can be disturbed, and what its metadata topic ever held."""

    records: list[Record]

    async def look(self) -> None:
        """Return when `records` holds everything that the topic does."""

    def turn(self) -> None:
        """Make another worker lead."""

    def compact(self) -> None:
        """Compact the topics."""

    def roll(self) -> None:
        """Begin new ledgers, as after a restart."""

    def junk(self, key: str | None, value: bytes) -> None:
        """Write into the metadata topic as a stranger."""


class Story:
    """One run: workers, who calls them, and what befalls them."""

    def __init__(self, seed: int, broker: Scene, chance: random.Random, calls: int = CALLS) -> None:
        self.chance = chance
        self.seed = seed
        self.broker = broker
        self.network = Network(self.chance)
        self.can_freeze = True
        self._calls = calls
        self.workers: list[Worker] = []
        self.calls: list[Call] = []
        self.events: list[str] = []
        self._times = itertools.count(1000)
        self._runs_compaction = self.chance.random() < 0.7

    def note(self, what: str) -> None:
        """Keep what happens for whoever reads a failure."""
        self.events.append(f"{asyncio.get_running_loop().time():.3f} {what}")

    def tail(self) -> str:
        """What happened last."""
        return "\n".join(self.events[-80:])

    async def play(self) -> None:
        """Run until the last answer, and check everything."""
        for number in range(WORKERS):
            self.workers.append(self._born(number))
        mishaps = asyncio.create_task(self._mishaps())
        callers = [asyncio.create_task(self._call(number)) for number in range(CALLERS)]
        try:
            async with asyncio.timeout(ANSWERED_S):
                await asyncio.gather(*callers)
        except TimeoutError:
            raise AssertionError(f"not all calls were answered: {[c for c in self.calls if c.ended is None]}") from None
        finally:
            mishaps.cancel()
        await self._calm_down()
        self._check()
        for worker in self.workers:
            worker.kill()
        await asyncio.sleep(0)

    def _born(self, number: int) -> Worker:
        worker = Worker(self.broker, self.network, Member(f"w{number}", "h", 1000 + number), self.chance)
        self.network.workers[1000 + number] = worker
        worker.start()
        return worker

    async def _call(self, caller: int) -> None:
        for number in range(self._calls):
            await asyncio.sleep(self.chance.expovariate(3))
            worker = await self._somebody()
            request = self._request(worker, f"{caller}.{number}-{uuid.UUID(int=self.chance.getrandbits(128)).hex[:6]}")
            await self.broker.look()
            call = Call(request, len(self.broker.records))
            self.calls.append(call)
            while call.ended is None:
                await self._try(worker, call)
                worker = await self._somebody()

    async def _try(self, worker: Worker, call: Call) -> None:
        """Ask one worker; without an answer the same request goes to another."""
        name = worker.member.worker_id
        self.note(f"{call.request.request_id} asks {name}")
        try:
            patience_s = self.chance.uniform(0.01, 1) if self.chance.random() < 0.1 else None
            async with asyncio.timeout(patience_s):
                await worker.ask(call.request)
        except TimeoutError:
            outcome = "the caller went away"
        except (MagnetarError, WorkerKilled) as exc:
            outcome = f"{type(exc).__name__}: {exc}"
            if is_refusal(exc):
                await self.broker.look()
                call.refusal, call.ended = outcome, len(self.broker.records)
        else:
            outcome = "success"
            shown = worker.metadata.get(call.key)
            await self.broker.look()
            call.ended = len(self.broker.records)
            Model(self.broker.records).check_seen(call, shown)
        self.note(f"{call.request.request_id} from {name}: {outcome}")

    async def _somebody(self) -> Worker:
        while True:
            ready = [worker for worker in self.workers if worker.is_ready.is_set() and not worker.link.is_dead]
            if ready:
                return self.chance.choice(ready)
            await asyncio.sleep(0.05)

    def _request(self, worker: Worker, request_id: str) -> FunctionRequest:
        """Draw what to ask, by what a worker shows; now and then from a version that is not the last."""
        name = self.chance.choice(FUNCTIONS)
        held = worker.metadata.get(f"t/n/{name}")
        metadata = FunctionMetaData()
        if held is None:
            metadata.functionDetails.CopyFrom(FunctionDetails(tenant="t", namespace="n", name=name, parallelism=2))
            metadata.version = self.chance.choice((0, 0, 0, 0, 1))
        else:
            metadata.CopyFrom(held)
            metadata.version = max(0, held.version + self.chance.choice((1, 1, 1, 1, 1, 0, -1)))
        if held is None or metadata.version == 0:
            metadata.createTime = next(self._times)
        metadata.functionDetails.className = request_id
        verb = self.chance.choice(("update", "update", "start", "stop", "delete", "delete"))
        if verb in ("start", "stop"):
            metadata.instanceStates[self.chance.randrange(2)] = STOPPED if verb == "stop" else RUNNING
        return FunctionRequest(metadata, request_id, is_deletion=verb == "delete" and metadata.version > 0)

    async def _mishaps(self) -> None:
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._crash, self._cut, self._freeze, self._freeze, self._turn, self._turn, self._compact, self._compact,
            self._restart_broker, self._junk,
        ]  # fmt: skip
        if not self.can_freeze:
            kinds = [kind for kind in kinds if kind != self._freeze]
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self.chance.expovariate(1.5))
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
        number = self._victim()
        link = self.workers[number].link
        self.note(f"w{number} freezes")
        link.thawed.clear()
        for_s = self.chance.uniform(0, 3 * KEEP_ALIVE_S)
        await asyncio.sleep(min(for_s, KEEP_ALIVE_S))
        if for_s > KEEP_ALIVE_S:
            self.broker.cut(link)
            await asyncio.sleep(for_s - KEEP_ALIVE_S)
        self.note(f"w{number} goes on")
        link.thawed.set()

    async def _turn(self) -> None:
        self.note("another one is active")
        self.broker.turn()

    async def _compact(self) -> None:
        if self._runs_compaction:
            self.note("compaction")
            self.broker.compact()

    async def _restart_broker(self) -> None:
        self.note("the broker dies and is back")
        self.broker.roll()
        for worker in self.workers:
            self.broker.cut(worker.link)

    async def _junk(self) -> None:
        """A stranger writes what nobody can read; under a function's key only where compaction cannot prefer it."""
        key = self.chance.choice((None, "t/n/junk", *(() if self._runs_compaction else ("t/n/a", "t/n/b"))))
        value = self.chance.choice((b"", b"\xff\xff\xff", FunctionMetaData(version=9).SerializeToString()))
        self.note(f"junk under {key}")
        self.broker.junk(key, value)

    async def _calm_down(self) -> None:
        """No more mishaps; whoever is frozen goes on, whoever is dead comes back; then all catch up."""
        self.network.is_mishap_free = True
        for number, worker in enumerate(self.workers):
            worker.link.thawed.set()
            if worker.link.is_dead:
                self.workers[number] = self._born(number)
        for worker in self.workers:
            worker.link.is_mishap_free = True
        for _ in range(120):
            await asyncio.sleep(0.5)
            await self.broker.look()
            if self._is_quiet():
                return
        shown = [(worker.metadata.log.is_leading, worker.is_ready.is_set()) for worker in self.workers]
        raise AssertionError(f"the workers never agree, although nobody disturbs them any more: {shown}")

    def _is_quiet(self) -> bool:
        if not all(worker.is_ready.is_set() for worker in self.workers):
            return False
        tables = [self._table(worker) for worker in self.workers]
        model = {name: state[1] for name, state in Model(self.broker.records).table.items()}
        is_led = sum(worker.metadata.log.is_leading for worker in self.workers) == 1
        return is_led and all(table == model for table in tables) and self._is_scheduled(set(model))

    def _is_scheduled(self, names: set[str]) -> bool:
        wanted = {f"{name}:{number}" for name in names for number in range(2)}
        shown = [
            {str(key): held.workerId for key, held in worker.scheduler.assignments().items()} for worker in self.workers
        ]
        return set(shown[0]) == wanted and all(one == shown[0] for one in shown)

    def _table(self, worker: Worker) -> dict[str, bytes]:
        return {
            f"t/n/{metadata.functionDetails.name}": metadata.SerializeToString(deterministic=True)
            for metadata in worker.metadata.all()
        }

    def _check(self) -> None:
        model = Model(self.broker.records)
        for call in self.calls:
            model.check(call)
        assert len(self.calls) == CALLERS * self._calls
        assert sum(call.refusal is None for call in self.calls) > CALLERS, "hardly anything was accepted"
