"""Round-robin scheduling: which worker runs which instance, a pure decision, the same for the same input.

Design: an instance that has a living worker stays there (sticky), so neither a new worker nor a new leader moves
anything. Every other instance goes, in order, to the worker with the fewest instances; among those to the one with the
fewest instances of the same function, so that one lost machine does not take a whole function; then to the first by
name. `rebalance` is the one decision that moves living instances, and it moves the fewest that even the load out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple


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
        worker = _least_loaded(key.function, living, load, per_function)
        decided[key] = worker
        load[worker] += 1
        per_function[worker, key.function] += 1
    return decided


def _least_loaded(function: str, workers: list[str], load: Counter[str], per_function: Counter[tuple[str, str]]) -> str:
    return min(workers, key=lambda worker: (load[worker], per_function[worker, function], worker))


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
