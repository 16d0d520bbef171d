"""Assignments, indexed by instance, function and worker.

A cluster has thousands of instances, and every request for a function looks up its assignments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..wire.functions_pb2 import Assignment


class InstanceKey(NamedTuple):
    """Key of a function instance: ``tenant/namespace/name`` and the instance number."""

    function: str
    instance_id: int

    def __str__(self) -> str:
        return f"{self.function}:{self.instance_id}"


class Assignments:
    """The assignments of instances to workers."""

    def __init__(self) -> None:
        self._all: dict[InstanceKey, Assignment] = {}
        self._of_worker: dict[str, dict[InstanceKey, Assignment]] = {}
        self._of_function: dict[str, dict[InstanceKey, Assignment]] = {}

    def put(self, key: InstanceKey, assignment: Assignment) -> None:
        """Set or replace the assignment of an instance."""
        self.remove(key)
        self._all[key] = assignment
        self._of_worker.setdefault(assignment.workerId, {})[key] = assignment
        self._of_function.setdefault(key.function, {})[key] = assignment

    def remove(self, key: InstanceKey) -> bool:
        """Remove the assignment of an instance, and return whether it existed."""
        held = self._all.pop(key, None)
        if held is None:
            return False
        for index, name in ((self._of_worker, held.workerId), (self._of_function, key.function)):
            found = index[name]
            del found[key]
            if not found:
                del index[name]
        return True

    def all(self) -> Mapping[InstanceKey, Assignment]:
        """Return all assignments. The result must not be modified."""
        return self._all

    def get(self, key: InstanceKey) -> Assignment | None:
        """Return the assignment of an instance, or None."""
        return self._all.get(key)

    def of_worker(self, worker_id: str) -> Mapping[InstanceKey, Assignment]:
        """Return the assignments of a worker. The result must not be modified."""
        return self._of_worker.get(worker_id, {})

    def of_function(self, name: str) -> Mapping[InstanceKey, Assignment]:
        """Return the assignments of a function. The result must not be modified."""
        return self._of_function.get(name, {})

    def owners(self) -> Collection[str]:
        """Return the workers that have an assignment."""
        return self._of_worker.keys()

    def loads(self) -> dict[str, int]:
        """Return the number of assignments of each worker."""
        return {worker: len(held) for worker, held in self._of_worker.items()}
