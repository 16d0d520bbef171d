"""Scheduler manager: holds all assignments and, on the leader, publishes changes.

Instances are assigned round-robin by pure, deterministic functions. An instance with a live worker stays there
(sticky), so neither a new worker nor a new leader moves any. Other instances are assigned, in order, to the worker with
the fewest instances. Ties go to the worker with the fewest instances of the same function, so that losing one machine
does not stop a whole function, and then to the first by name. Only `rebalance` moves running instances, and it moves as
few as necessary to even out the load.

A round examines only the functions that changed since the previous round, as long as the workers are the same: the
others are up to date. If that is not certain, for example after a failed append, it examines all.

A round ends when its last record has been read back from the assignments log. The key of a record is the instance. Its
value is an `Assignment` with the function's whole record except its history, so that a worker needs nothing else to
start the instance; an empty value deletes. Drain orders are records in the same log, with keys that no instance has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from ..errors import NotLeader
from ..metadata.replicated_log import LogRecord, LogStorage, ReplicatedLog
from ..wire.functions_pb2 import STOPPED, Assignment, FunctionMetaData, Instance
from .assignments import Assignments, InstanceKey

DRAINED = "drained worker:"
"""Key prefix of a drain order, distinct because tenant names have no spaces. The value is `=` and the incarnation."""


def parse_instance_key(text: str) -> InstanceKey:
    """Parse ``tenant/namespace/name:number``.

    Raises:
        ValueError: no number follows the last colon, or no name precedes it.
    """
    function, _, number = text.rpartition(":")
    if not function or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not an instance key: expected tenant/namespace/name:number")
    return InstanceKey(function, int(number))


def assign(
    instances: Iterable[InstanceKey],
    workers: Iterable[str],
    current: Mapping[InstanceKey, str],
    missing: Collection[str] = (),
    others: Mapping[str, int] = MappingProxyType({}),
) -> dict[InstanceKey, str]:
    """Return the worker of every instance.

    Args:
        instances: all instances that should run.
        workers: ids of the workers that can run instances. If empty, no instance is assigned to a new worker.
        current: current assignments. Entries for other instances or workers are ignored.
        missing: ids of absent workers within their grace period, which keep their instances but receive no new ones.
        others: number of instances of other functions on each worker.
    """
    wanted = sorted(set(instances))
    living = sorted(set(workers))
    keeping = {*living, *missing}
    decided = {key: current[key] for key in wanted if current.get(key) in keeping}
    if not living:
        return decided
    load = Counter(others)
    load.update(decided.values())
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
    """Return the assignment in which any two workers differ by at most one instance, after the fewest moves.

    Args:
        workers: ids of the workers that can run instances.
        current: every instance with its worker, which must be among ``workers``.
    """
    decided = dict(current)
    held: dict[str, list[InstanceKey]] = {worker: [] for worker in sorted(set(workers))}
    for key in sorted(decided):
        held[decided[key]].append(key)
    if not held:
        return decided
    share, extra = divmod(len(decided), len(held))
    # The fullest workers keep one more instance, which minimizes the number of moves.
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
        workers: workers that can run instances.
        missing: absent workers within their grace period, which keep their instances.
        is_evened_out: whether to rebalance instances (see `rebalance`).
    """

    workers: frozenset[str]
    missing: frozenset[str] = frozenset()
    is_evened_out: bool = False


def plan(
    functions: Iterable[FunctionMetaData],
    workforce: Workforce,
    current: Mapping[InstanceKey, Assignment],
    others: Mapping[str, int] = MappingProxyType({}),
) -> list[LogRecord]:
    """Return the records that change the current assignments to the desired ones. Pure.

    Deletions come first. Without workers, instances keep their assignments.

    Args:
        functions: functions to examine.
        workforce: workers to place instances on.
        current: assignments of these functions.
        others: number of instances of all other functions on each worker.
    """
    wanted: dict[InstanceKey, FunctionMetaData] = {}
    for metadata in functions:
        details = metadata.functionDetails
        name = f"{details.tenant}/{details.namespace}/{details.name}"
        record = _to_assign(metadata)
        for instance_id in range(details.parallelism):
            wanted[InstanceKey(name, instance_id)] = record
    held_by = {key: assignment.workerId for key, assignment in current.items()}
    owners = assign(wanted, workforce.workers, held_by, workforce.missing, others)
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


def _to_assign(metadata: FunctionMetaData) -> FunctionMetaData:
    """Return a record without earlier deployments, which instances do not need.

    Instances do not run until the leader has finished its work on the function's state.
    """
    if not metadata.HasField("deployments") and not metadata.HasField("stateChange"):
        return metadata
    record = FunctionMetaData()
    record.CopyFrom(metadata)
    record.ClearField("deployments")
    if metadata.HasField("stateChange"):
        record.ClearField("stateChange")
        for instance_id in range(metadata.functionDetails.parallelism):
            record.instanceStates[instance_id] = STOPPED
    return record


Changed = Mapping[str, FunctionMetaData | None]
"""Changed functions by ``tenant/namespace/name``; None for a deleted function."""


class SchedulerManager:
    """Holds all assignments and, on the leader, decides them.

    Attributes:
        log: the log of assignments.
    """

    def __init__(self, storage: LogStorage, on_change: Callable[[InstanceKey], None]) -> None:
        """Create a manager without assignments.

        Args:
            storage: storage of the log.
            on_change: called after each record that changes an assignment.
        """
        self.log = ReplicatedLog(storage, self._apply, "assignments", "assignment")
        self._on_change = on_change
        self._assignments = Assignments()
        self._settled: Workforce | None = None  # workers for which all unchanged functions are up to date
        self._is_in_round = False
        self._drained: dict[str, str] = {}

    def assignments(self) -> Mapping[InstanceKey, Assignment]:
        """Return all assignments, which must not be modified."""
        return self._assignments.all()

    def assignment(self, key: InstanceKey) -> Assignment | None:
        """Return the assignment of an instance, which must not be modified, or None."""
        return self._assignments.get(key)

    def owners(self) -> Collection[str]:
        """Return the ids of all workers that have an assignment."""
        return self._assignments.owners()

    def drained(self) -> Mapping[str, str]:
        """Return the incarnations of workers with a drain order. The result must not be modified."""
        return self._drained

    def of_worker(self, worker_id: str) -> dict[str, Assignment]:
        """Return the assignments of one worker by ``tenant/namespace/name:number``."""
        return {str(key): held for key, held in self._assignments.of_worker(worker_id).items()}

    def count_of_worker(self, worker_id: str) -> int:
        """Return the number of a worker's assignments."""
        return len(self._assignments.of_worker(worker_id))

    def of_function(self, name: str) -> list[tuple[InstanceKey, Assignment]]:
        """Return the assignments of one function, by instance number."""
        return sorted(self._assignments.of_function(name).items(), key=lambda item: item[0])

    def _apply(self, key: str | None, value: bytes, _properties: Mapping[str, str]) -> None:
        if key is not None and key.startswith(DRAINED):
            worker_id = key.removeprefix(DRAINED)
            if value:
                self._drained[worker_id] = value.decode().removeprefix("=")
            else:
                self._drained.pop(worker_id, None)
            return
        if not self._is_in_round:
            self._settled = None  # another worker decided
        instance = parse_instance_key(key or "")
        if self._apply_assignment(instance, value):
            self._on_change(instance)

    def _apply_assignment(self, key: InstanceKey, value: bytes) -> bool:
        if not value:
            return self._assignments.remove(key)
        assignment = Assignment.FromString(value)
        if not assignment.workerId or assignment.instance.instanceId != key.instance_id:
            raise ValueError(f"the assignment of {key} has no worker, or is for another instance")
        self._assignments.put(key, assignment)
        return True

    async def schedule(
        self,
        functions: Callable[[], Iterable[FunctionMetaData]],
        workforce: Workforce,
        changed: Callable[[], Changed | None] | None = None,
    ) -> int:
        """Publish changed assignments, and return the number of records: 0 if this worker is not the leader.

        Args:
            functions: returns all functions. Called when this round's turn starts, so that it includes all earlier
                changes.
            workforce: workers to place instances on.
            changed: returns the functions that changed since its last call, or None if unknown. Called at the same
                time.

        Cancellation: some of the records may have been written; the next round completes them.
        """
        async with self.log.turn() as turn:
            settled, self._settled = self._settled, None  # restored if this round completes
            if turn is None:
                return 0
            known = changed() if changed is not None else None
            if known is None or workforce != settled or workforce.is_evened_out:
                records = plan(functions(), workforce, self._assignments.all())
            else:
                records = self._plan_changed(known, workforce)
            if records:
                self._is_in_round = True
                try:
                    await turn.append(records)
                finally:
                    self._is_in_round = False
            self._settled = workforce if workforce.workers else None
            return len(records)

    def _plan_changed(self, changed: Changed, workforce: Workforce) -> list[LogRecord]:
        """Return the same records as `plan` for all functions, but examine only the changed functions."""
        if not changed:
            return []
        current = {key: held for name in changed for key, held in self._assignments.of_function(name).items()}
        others = Counter(self._assignments.loads())
        others.subtract(held.workerId for held in current.values())
        return plan([metadata for metadata in changed.values() if metadata is not None], workforce, current, others)

    async def drain(self, worker_id: str, incarnation: str | None) -> None:
        """Store a drain order for a worker's incarnation, or delete it (None), and wait until that is durable.

        Cancellation: the order may still be stored.

        Raises:
            NotLeader: another worker is the leader.
        """
        async with self.log.turn() as turn:
            if turn is None:
                raise NotLeader("this worker is not the leader: send the drain request to the leader")
            value = b"" if incarnation is None else f"={incarnation}".encode()
            await turn.append([LogRecord(DRAINED + worker_id, value)])
