"""The scheduler manager: holds all assignments and, on the leader, publishes what a decision changes.

The log of assignments is used like that of functions: whoever tails the assignments topic calls `apply`, the leader
gives `append` when it starts to lead, and a round is over when its last record has come back. Key is the instance,
value an `Assignment` with the whole record of its function (so that a worker needs nothing else to start it), an empty
value removes. Orders to empty a worker are records of the same topic, under keys that no instance can have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from ..errors import NotLeader, OperationTimeout
from ..wire.functions_pb2 import Assignment, FunctionMetaData, Instance
from .round_robin import InstanceKey, assign, parse_instance_key, rebalance

Position = tuple[int, int]
"""Ledger and entry of a record in the log; later records are greater."""

Record = tuple[str, bytes]
"""Key and value of a record to write."""

DRAINED = "drained worker:"
"""Begins the key of an order to empty a worker; no tenant's name holds a space. The value is `=` and the life."""

APPLY_TIMEOUT_S = 30.0
"""How long written records may take to come back out of the log."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogAccess:
    """What a leader needs of the log.

    Attributes:
        append: writes records in order; returns the position of the last once all are durable.
        catch_up: returns when everything that the log held at the call has been applied.
    """

    append: Callable[[Sequence[Record]], Awaitable[Position]]
    catch_up: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Workforce:
    """Who can run instances, and who only keeps what he has (see `round_robin.assign`).

    Attributes:
        workers: can run instances.
        excused: keep what they have.
        is_evened_out: whether instances move from full workers to empty ones (see `round_robin.rebalance`).
    """

    workers: frozenset[str]
    excused: frozenset[str] = frozenset()
    is_evened_out: bool = False


def plan(
    functions: Iterable[FunctionMetaData], workforce: Workforce, current: Mapping[InstanceKey, Assignment]
) -> list[Record]:
    """Return the records that turn the current assignments into the wanted ones; pure.

    Removals come first. Without any worker an instance keeps the assignment that it has.
    """
    wanted: dict[InstanceKey, FunctionMetaData] = {}
    for metadata in functions:
        details = metadata.functionDetails
        name = f"{details.tenant}/{details.namespace}/{details.name}"
        for instance_id in range(details.parallelism):
            wanted[InstanceKey(name, instance_id)] = metadata
    held_by = {key: assignment.workerId for key, assignment in current.items()}
    owners = assign(wanted, workforce.workers, held_by, workforce.excused)
    if workforce.is_evened_out:
        movable = {key: worker for key, worker in owners.items() if worker in workforce.workers}
        owners |= rebalance(workforce.workers, movable)
    records: list[Record] = [(str(key), b"") for key in sorted(current) if key not in wanted]
    for key in sorted(owners):
        held = current.get(key)
        metadata = wanted[key]
        if held is None or held.workerId != owners[key] or held.instance.functionMetaData != metadata:
            instance = Instance(functionMetaData=metadata, instanceId=key.instance_id)
            records.append((str(key), Assignment(instance=instance, workerId=owners[key]).SerializeToString()))
    return records


class SchedulerManager:
    """Holds who runs what and, on the leader, decides it."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each record that changes an assignment."""
        self._on_change = on_change
        self._assignments: dict[InstanceKey, Assignment] = {}
        self._drained: dict[str, str] = {}
        self._applied: Position = (-1, -1)
        self._waiting: list[tuple[Position, asyncio.Future[None]]] = []
        self._log: LogAccess | None = None
        self._turn = asyncio.Lock()
        self._is_unsure = False
        self.unreadable_records = 0

    def assignments(self) -> Mapping[InstanceKey, Assignment]:
        """Return every assignment; never modify them."""
        return self._assignments

    def drained(self) -> Mapping[str, str]:
        """Return the workers that were ordered to be emptied, and in which life of theirs; never modify it."""
        return self._drained

    def of_worker(self, worker_id: str) -> dict[str, Assignment]:
        """Return the assignments of one worker by ``tenant/namespace/name:number``."""
        return {str(key): held for key, held in self._assignments.items() if held.workerId == worker_id}

    def of_function(self, name: str) -> list[tuple[InstanceKey, Assignment]]:
        """Return the assignments of one function, by instance number."""
        found = [(key, held) for key, held in self._assignments.items() if key.function == name]
        return sorted(found, key=lambda item: item[0])

    def apply(self, position: Position, key: str | None, value: bytes) -> None:
        """Take the next record of the log; one that was seen before is passed over."""
        if position <= self._applied:
            return
        self._applied = position
        try:
            has_changed = self._take(key, value)
        except (ValueError, DecodeError) as exc:
            has_changed = False
            self.unreadable_records += 1
            _log.warning("skipped record %d:%d of the assignments topic: %s", *position, exc)
        self._wake()
        if has_changed:
            self._on_change()

    def _take(self, text: str | None, value: bytes) -> bool:
        if text is not None and text.startswith(DRAINED):
            self._take_drain(text.removeprefix(DRAINED), value.decode())
            return False
        key = parse_instance_key(text or "")
        if not value:
            return self._assignments.pop(key, None) is not None
        assignment = Assignment.FromString(value)
        if not assignment.workerId or assignment.instance.instanceId != key.instance_id:
            raise ValueError(f"the assignment of {key} names no worker or another instance")
        self._assignments[key] = assignment
        return True

    def _take_drain(self, worker_id: str, value: str) -> None:
        if value:
            self._drained[worker_id] = value.removeprefix("=")
        else:
            self._drained.pop(worker_id, None)

    def _wake(self) -> None:
        for position, future in self._waiting:
            if position <= self._applied and not future.done():
                future.set_result(None)

    def lead(self, log: LogAccess) -> None:
        """Decide from now on; the log has been caught up with."""
        self._log = log
        self._is_unsure = False

    def follow(self) -> None:
        """Decide nothing from now on; somebody else leads."""
        self._log = None

    async def schedule(self, functions: Callable[[], Iterable[FunctionMetaData]], workforce: Workforce) -> int:
        """Publish what changed; returns the number of records, 0 when this worker does not lead.

        Args:
            functions: asked once it is this round's turn, so that a round sees everything before it.
            workforce: who there is to run them.

        Cancellation: may leave a part of the records written; the next round completes them.
        """
        async with self._turn:
            log = self._log
            if log is None:
                return 0
            if self._is_unsure:
                await log.catch_up()
            self._is_unsure = False
            records = plan(functions(), workforce, self._assignments)
            if records:
                self._is_unsure = True
                await self._wait_for(await log.append(records))
                self._is_unsure = False
            return len(records)

    async def drain(self, worker_id: str, life: str | None) -> None:
        """Keep the order to empty a worker in this life of it, or forget it (None); returns once that is durable.

        Cancellation: the order may be kept nevertheless.

        Raises:
            NotLeader: another worker decides.
        """
        async with self._turn:
            log = self._log
            if log is None:
                raise NotLeader("this worker does not lead; a drain belongs to the leader")
            self._is_unsure = True
            value = b"" if life is None else f"={life}".encode()
            await self._wait_for(await log.append([(DRAINED + worker_id, value)]))
            self._is_unsure = False

    async def _wait_for(self, position: Position) -> None:
        if position <= self._applied:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (position, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(APPLY_TIMEOUT_S):
                await future
        except TimeoutError:
            raise OperationTimeout(
                f"assignment {position[0]}:{position[1]} was written but not read back within {APPLY_TIMEOUT_S:g} s"
            ) from None
        finally:
            self._waiting.remove(entry)
