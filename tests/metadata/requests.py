"""A story of requests to the function metadata; all answers are recorded for the model."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from typing import Protocol

from magnetar.errors import MagnetarError
from magnetar.membership.manager import Member
from magnetar.metadata.functions import FunctionRequest
from magnetar.wire.functions_pb2 import RUNNING, STOPPED, FunctionDetails, FunctionMetaData

from .log_oracle import Call, Model
from .simulated_broker import Record
from .simulated_cluster import Worker, WorkerKilled, is_refusal
from .story import Kind, Scene, Story

FUNCTIONS = ("a", "b", "c")
CALLERS = 4
CALLS = 12
ANSWERED_S = 300.0


class RecordedScene(Scene, Protocol):
    """A broker that also shows the complete history of its metadata topic."""

    records: list[Record]

    async def look(self) -> None:
        """Wait until `records` contains everything in the topic."""

    def junk(self, key: str | None, value: bytes) -> None:
        """Write to the metadata topic as an unrelated client."""


class Requests(Story[Worker]):
    """One run: callers that request changes of a few functions from workers."""

    mishaps_per_s = 1.5

    def __init__(self, broker: RecordedScene, chance: random.Random, calls: int = CALLS) -> None:
        super().__init__(broker, chance)
        self.broker = broker
        self.can_freeze = True
        self.calls: list[Call] = []
        self._calls = calls
        self._times = itertools.count(1000)
        self._runs_compaction = self.chance.random() < 0.7

    async def _ask_all(self) -> None:
        callers = [asyncio.create_task(self._call(number)) for number in range(CALLERS)]
        try:
            async with asyncio.timeout(ANSWERED_S):
                await asyncio.gather(*callers)
        except TimeoutError:
            raise AssertionError(f"not all calls were answered: {[c for c in self.calls if c.ended is None]}") from None

    def _make_worker(self, member: Member) -> Worker:
        return Worker(self.broker, self.network, member, self.chance)

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
        """Send a request to one worker; if it does not answer, send the same request to another."""
        name = worker.member.worker_id
        self.note(f"{call.request.request_id} asks {name}")
        try:
            timeout_s = self.chance.uniform(0.01, 1) if self.chance.random() < 0.1 else None
            async with asyncio.timeout(timeout_s):
                await worker.ask(worker.hand_over.submit(call.request))
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

    def _kinds(self) -> list[Kind]:
        kinds: list[Kind] = [
            self._crash, self._cut, self._freeze, self._freeze, self._turn, self._turn, self._compact, self._compact,
            self._restart_broker, self._junk,
        ]  # fmt: skip
        return kinds if self.can_freeze else [kind for kind in kinds if kind != self._freeze]

    async def _compact(self) -> None:
        if self._runs_compaction:
            await super()._compact()

    async def _junk(self) -> None:
        """A stranger writes what nobody can read; under a function's key only where compaction cannot prefer it."""
        key = self.chance.choice((None, "t/n/junk", *(() if self._runs_compaction else ("t/n/a", "t/n/b"))))
        value = self.chance.choice((b"", b"\xff\xff\xff", FunctionMetaData(version=9).SerializeToString()))
        self.note(f"junk under {key}")
        self.broker.junk(key, value)

    async def _look(self) -> None:
        await self.broker.look()

    def _is_quiet(self) -> bool:
        if not self._is_led:
            return False
        model = {name: state[1] for name, state in Model(self.broker.records).table.items()}
        return all(self._table(worker) == model for worker in self.workers) and self._is_scheduled(set(model))

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

    def _check_all(self) -> None:
        model = Model(self.broker.records)
        for call in self.calls:
            model.check(call)
        assert len(self.calls) == CALLERS * self._calls
        assert sum(call.refusal is None for call in self.calls) > CALLERS, "hardly anything was accepted"
