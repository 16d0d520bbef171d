"""Scheduler manager: holds all assignments and, on the leader, publishes what a decision changes.

Which worker runs which instance is decided round-robin by pure functions, the same for the same input. An instance that
has a living worker stays there (sticky), so neither a new worker nor a new leader moves anything. Every other instance
goes, in order, to the worker with the fewest instances; among those to the one with the fewest instances of the same
function, so that one lost machine does not take a whole function; then to the first by name. `rebalance` is the one
decision that moves living instances, and it moves the fewest that even the load out.

A round looks at the functions that changed since the round before, as long as the workers are the same: the others have
what they shall have. Where that is not certain, as after a failed append, it looks at all.

A round is over when its last record has come back out of the log of assignments. Key is the instance, value an
`Assignment` with the whole record of its function (so that a worker needs nothing else to start it) but its history, an
empty value removes. Orders to drain a worker are records of the same log, under keys that no instance can have.
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
"""Begins the key of an order to drain a worker; no tenant's name has a space. The value is `=` and the incarnation."""


def parse_instance_key(text: str) -> InstanceKey:
    """Parse ``tenant/namespace/name:number``.

    Raises:
        ValueError: no number follows the last colon, or nothing precedes it.
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
        instances: all that should run.
        workers: ids of those that can run instances; without any, nothing new is decided.
        current: what was decided before; entries of other instances or other workers do not count.
        missing: ids of those that keep what they have and get nothing new: absent within their grace period.
        others: how many instances of other functions each worker has.
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
    functions: Iterable[FunctionMetaData],
    workforce: Workforce,
    current: Mapping[InstanceKey, Assignment],
    others: Mapping[str, int] = MappingProxyType({}),
) -> list[LogRecord]:
    """Return the records that turn the current assignments into the wanted ones; pure.

    Removals come first. Without any worker an instance keeps the assignment that it has.

    Args:
        functions: all that are looked at.
        workforce: the workers to place them on.
        current: the assignments of these functions.
        others: how many instances of functions that are not looked at each worker has.
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
    """Return a record as instances need it: what was deployed before would only make assignments larger.

    None of them runs before the leader has done with the state what is to be done.
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
"""Functions that changed, by ``tenant/namespace/name``; None is one that is gone."""


class SchedulerManager:
    """Holds who runs what and, on the leader, decides it.

    Attributes:
        log: of the assignments.
    """

    def __init__(self, storage: LogStorage, on_change: Callable[[InstanceKey], None]) -> None:
        """Hold no assignments yet.

        Args:
            storage: keeps the log.
            on_change: called after each record that changes an assignment.
        """
        self.log = ReplicatedLog(storage, self._apply, "assignments", "assignment")
        self._on_change = on_change
        self._assignments = Assignments()
        self._settled: Workforce | None = None  # for whom all that have not changed since have what they shall have
        self._is_in_round = False
        self._drained: dict[str, str] = {}

    def assignments(self) -> Mapping[InstanceKey, Assignment]:
        """Return every assignment; never modify them."""
        return self._assignments.all()

    def assignment(self, key: InstanceKey) -> Assignment | None:
        """Return the assignment of an instance, None without one; never modify it."""
        return self._assignments.get(key)

    def owners(self) -> Collection[str]:
        """Return the ids of all workers that have an assignment."""
        return self._assignments.owners()

    def drained(self) -> Mapping[str, str]:
        """Return the workers that were ordered to be drained, and in which incarnation; never modify it."""
        return self._drained

    def of_worker(self, worker_id: str) -> dict[str, Assignment]:
        """Return the assignments of one worker by ``tenant/namespace/name:number``."""
        return {str(key): held for key, held in self._assignments.of_worker(worker_id).items()}

    def count_of_worker(self, worker_id: str) -> int:
        """Return how many assignments a worker has."""
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
            raise ValueError(f"the assignment of {key} names no worker or another instance")
        self._assignments.put(key, assignment)
        return True

    async def schedule(
        self,
        functions: Callable[[], Iterable[FunctionMetaData]],
        workforce: Workforce,
        changed: Callable[[], Changed | None] | None = None,
    ) -> int:
        """Publish what changed; returns the number of records, 0 when this worker does not lead.

        Args:
            functions: all of them; asked once it is this round's turn, so that a round sees everything before it.
            workforce: the workers to place them on.
            changed: the functions that changed since this was asked for last, None if that is not known; asked then,
                too.

        Cancellation: may leave a part of the records written; the next round completes them.
        """
        async with self.log.turn() as turn:
            settled, self._settled = self._settled, None  # unless this round comes to its end
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
        """Return what `plan` returns of all functions, where those that did not change have what they shall have."""
        if not changed:
            return []
        current = {key: held for name in changed for key, held in self._assignments.of_function(name).items()}
        others = Counter(self._assignments.loads())
        others.subtract(held.workerId for held in current.values())
        return plan([metadata for metadata in changed.values() if metadata is not None], workforce, current, others)

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
