"""Scheduler manager: holds all assignments and, on the leader, publishes what a decision changes.

Which worker runs which instance is decided round-robin by pure functions, the same for the same input. An instance that
has a living worker stays there (sticky), so neither a new worker nor a new leader moves anything. Every other instance
goes, in order, to the worker with the fewest instances; among those to the one with the fewest instances of the same
function, so that one lost machine does not take a whole function; then to the first by name. `rebalance` is the one
decision that moves living instances, and it moves the fewest that even the load out.

A round is over when its last record has come back out of the log of assignments. Key is the instance, value an
`Assignment` with the whole record of its function (so that a worker needs nothing else to start it), an empty value
removes. Orders to drain a worker are records of the same log, under keys that no instance can have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ..errors import NotLeader
from ..metadata.replicated_log import LogRecord, LogStorage, ReplicatedLog
from ..wire.functions_pb2 import Assignment, FunctionMetaData, Instance

DRAINED = "drained worker:"
"""Begins the key of an order to drain a worker; no tenant's name has a space. The value is `=` and the incarnation."""


class InstanceKey(NamedTuple):
    """One instance of a function: tenant/namespace/name and the instance's number."""

    function: str
    instance_id: int

    def __str__(self) -> str:
        return f"{self.function}:{self.instance_id}"


def parse_instance_key(text: str) -> InstanceKey:
    """Return the key that ``tenant/namespace/name:number`` denotes.

    Raises:
        ValueError: there is no number behind the last colon.
    """
    function, _, number = text.rpartition(":")
    if not function or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is no instance: expected tenant/namespace/name:number")
    return InstanceKey(function, int(number))


def assign(
    instances: Iterable[InstanceKey],
    workers: Iterable[str],
    current: Mapping[InstanceKey, str],
    missing: Collection[str] = (),
) -> dict[InstanceKey, str]:
    """Return the worker of every instance.

    Args:
        instances: all that should run.
        workers: ids of those that can run instances; without any, nothing new is decided.
        current: what was decided before; entries of other instances or other workers do not count.
        missing: ids of those that keep what they have and get nothing new: absent within their grace period.
    """
    wanted = sorted(set(instances))
    living = sorted(set(workers))
    keeping = {*living, *missing}
    decided = {key: current[key] for key in wanted if current.get(key) in keeping}
    if not living:
        return decided
    load = Counter(decided.values())
    per_function = Counter((worker, key.function) for key, worker in decided.items())
    for key in wanted:
        if key in decided:
            continue
        worker = min(living, key=lambda one: (load[one], per_function[one, key.function], one))
        decided[key] = worker
        load[worker] += 1
        per_function[worker, key.function] += 1
    return decided


def rebalance(workers: Iterable[str], current: Mapping[InstanceKey, str]) -> dict[InstanceKey, str]:
    """Return the assignment after the fewest moves that leave no two workers more than one instance apart.

    Args:
        workers: ids of those that can run instances.
        current: every instance with its worker, all of them among `workers`.
    """
    decided = dict(current)
    held: dict[str, list[InstanceKey]] = {worker: [] for worker in sorted(set(workers))}
    for key in sorted(decided):
        held[decided[key]].append(key)
    if not held:
        return decided
    share, extra = divmod(len(decided), len(held))
    # The fullest workers may keep one instance more: that is what makes the number of moves the smallest.
    fullest = sorted(held, key=lambda worker: (-len(held[worker]), worker))
    target = {worker: share + (index < extra) for index, worker in enumerate(fullest)}
    spare = [key for worker in fullest for key in held[worker][target[worker] :]]
    smallest = [(len(keys), worker) for worker, keys in held.items() if len(keys) < target[worker]]
    heapify(smallest)
    for key in spare:
        size, worker = heappop(smallest)
        decided[key] = worker
        if size + 1 < target[worker]:
            heappush(smallest, (size + 1, worker))
    return decided


@dataclass(frozen=True, slots=True)
class Workforce:
    """Workers to place instances on (see `assign`).

    Attributes:
        workers: can run instances.
        missing: absent within their grace period; they keep what they have.
        is_evened_out: whether instances move from full workers to empty ones (see `rebalance`).
    """

    workers: frozenset[str]
    missing: frozenset[str] = frozenset()
    is_evened_out: bool = False


def plan(
    functions: Iterable[FunctionMetaData], workforce: Workforce, current: Mapping[InstanceKey, Assignment]
) -> list[LogRecord]:
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
    owners = assign(wanted, workforce.workers, held_by, workforce.missing)
    if workforce.is_evened_out:
        movable = {key: worker for key, worker in owners.items() if worker in workforce.workers}
        owners |= rebalance(workforce.workers, movable)
    records: list[LogRecord] = [LogRecord(str(key), b"") for key in sorted(current) if key not in wanted]
    for key in sorted(owners):
        held = current.get(key)
        metadata = wanted[key]
        if held is None or held.workerId != owners[key] or held.instance.functionMetaData != metadata:
            instance = Instance(functionMetaData=metadata, instanceId=key.instance_id)
            assignment = Assignment(instance=instance, workerId=owners[key])
            records.append(LogRecord(str(key), assignment.SerializeToString()))
    return records


class SchedulerManager:
    """Holds who runs what and, on the leader, decides it.

    Attributes:
        log: of the assignments.
    """

    def __init__(self, storage: LogStorage, on_change: Callable[[], None]) -> None:
        """Hold no assignments yet.

        Args:
            storage: keeps the log.
            on_change: called after each record that changes an assignment.
        """
        self.log = ReplicatedLog(storage, self._apply, "assignments", "assignment")
        self._on_change = on_change
        self._assignments: dict[InstanceKey, Assignment] = {}
        self._drained: dict[str, str] = {}

    def assignments(self) -> Mapping[InstanceKey, Assignment]:
        """Return every assignment; never modify them."""
        return self._assignments

    def drained(self) -> Mapping[str, str]:
        """Return the workers that were ordered to be drained, and in which incarnation; never modify it."""
        return self._drained

    def of_worker(self, worker_id: str) -> dict[str, Assignment]:
        """Return the assignments of one worker by ``tenant/namespace/name:number``."""
        return {str(key): held for key, held in self._assignments.items() if held.workerId == worker_id}

    def of_function(self, name: str) -> list[tuple[InstanceKey, Assignment]]:
        """Return the assignments of one function, by instance number."""
        found = [(key, held) for key, held in self._assignments.items() if key.function == name]
        return sorted(found, key=lambda item: item[0])

    def _apply(self, key: str | None, value: bytes, _properties: Mapping[str, str]) -> None:
        if key is not None and key.startswith(DRAINED):
            worker_id = key.removeprefix(DRAINED)
            if value:
                self._drained[worker_id] = value.decode().removeprefix("=")
            else:
                self._drained.pop(worker_id, None)
        elif self._apply_assignment(key, value):
            self._on_change()

    def _apply_assignment(self, text: str | None, value: bytes) -> bool:
        key = parse_instance_key(text or "")
        if not value:
            return self._assignments.pop(key, None) is not None
        assignment = Assignment.FromString(value)
        if not assignment.workerId or assignment.instance.instanceId != key.instance_id:
            raise ValueError(f"the assignment of {key} names no worker or another instance")
        self._assignments[key] = assignment
        return True

    async def schedule(self, functions: Callable[[], Iterable[FunctionMetaData]], workforce: Workforce) -> int:
        """Publish what changed; returns the number of records, 0 when this worker does not lead.

        Args:
            functions: asked once it is this round's turn, so that a round sees everything before it.
            workforce: the workers to place them on.

        Cancellation: may leave a part of the records written; the next round completes them.
        """
        async with self.log.turn() as turn:
            if turn is None:
                return 0
            records = plan(functions(), workforce, self._assignments)
            if records:
                await turn.append(records)
            return len(records)

    async def drain(self, worker_id: str, incarnation: str | None) -> None:
        """Keep the order to drain a worker in this incarnation, or forget it (None); returns once that is durable.

        Cancellation: the order may be kept nevertheless.

        Raises:
            NotLeader: another worker decides.
        """
        async with self.log.turn() as turn:
            if turn is None:
                raise NotLeader("this worker does not lead; a drain belongs to the leader")
            value = b"" if incarnation is None else f"={incarnation}".encode()
            await turn.append([LogRecord(DRAINED + worker_id, value)])
