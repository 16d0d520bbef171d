"""Which workers are being emptied, or are empty and stay so; kept by the leader, in memory as with Apache Pulsar.

How far a drain has come is not kept but read off the assignments, so it cannot be wrong: it runs while the worker still
owns an instance. A drained worker gets nothing new until it has left the cluster; when it joins again, it is like new.
"""

from __future__ import annotations

from collections.abc import Collection

from ..errors import RequestRefused

TOO_FEW = "Too few workers (need at least 2)"
_RUNNING = {"status": "RUNNING", "lastError": ""}


class Drains:
    """Workers that were ordered to be emptied."""

    def __init__(self) -> None:
        self._drained: set[str] = set()

    def restart(self) -> None:
        """Begin anew: another worker led meanwhile, and whoever drains tells the new leader."""
        self._drained.clear()

    def available(self, members: Collection[str]) -> frozenset[str]:
        """Return the members that may run instances; forgets drained workers that have left."""
        self._drained &= set(members)
        return frozenset(set(members) - self._drained)

    def begin(self, worker_id: str, members: Collection[str], owners: Collection[str]) -> None:
        """Empty a worker from now on.

        Args:
            worker_id: which.
            members: ids of all workers that are there.
            owners: ids of the workers that own an instance.

        Raises:
            RequestRefused: with Pulsar's codes and texts.
        """
        available = self.available(members)
        if len(members) < 2:
            raise RequestRefused(400, TOO_FEW)
        if self._drained & set(owners):
            raise RequestRefused(409, "Another drain is in progress")
        if worker_id in self._drained:
            raise RequestRefused(412, f"Worker {worker_id} was not yet removed after a prior drain op; try later")
        if worker_id not in members:
            raise RequestRefused(400, f"Worker {worker_id} is not among the current workers in the system")
        if len(available) < 2:
            raise RequestRefused(400, TOO_FEW)
        self._drained.add(worker_id)

    def status(self, worker_id: str, members: Collection[str], owners: Collection[str]) -> dict[str, str]:
        """Return the JSON that says how far the drain of a worker is; arguments as for `begin`."""
        if worker_id in self._drained:
            return dict(_RUNNING) if worker_id in owners else {"status": "SUCCESS", "lastError": ""}
        if worker_id in members:
            return {"status": "NOT_RUN", "lastError": ""}
        return {"status": "ERROR", "lastError": f"Worker {worker_id} not found in drain records"}
