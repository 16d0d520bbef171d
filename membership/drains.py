"""Drains: workers that are being emptied of instances, or are drained.

A drain order is a record in the assignments topic, so it outlives the leader that accepted it. The progress of a drain
is not stored but derived from the assignments: it is running while the worker still owns an instance. The order applies
to one incarnation of the worker: a worker that reconnects is still drained, one that restarts is not. An order whose
worker is gone is deleted after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..errors import RequestRefused
from .grace_period import GracePeriod

TOO_FEW = "Too few workers (need at least 2)"
FORGET_S = 600.0
"""How long a drained worker may be absent and still be drained when it returns."""

_RUNNING = {"status": "RUNNING", "lastError": ""}


class Drains:
    """The workers with a drain order."""

    def __init__(self, drained: Callable[[], Mapping[str, str]]) -> None:
        """Track drains; ``drained`` returns the drained workers and their incarnations."""
        self._drained = drained
        self._away = GracePeriod(FORGET_S)

    def restart(self) -> None:
        """Restart the absence timers: another worker led meanwhile."""
        self._away.restart()

    def available(self, incarnations: Mapping[str, str]) -> frozenset[str]:
        """Return the members that may run instances: those not drained, or all if every member is drained.

        Args:
            incarnations: id and incarnation of all connected workers.
        """
        return frozenset(incarnations) - self._present(incarnations) or frozenset(incarnations)

    def _present(self, incarnations: Mapping[str, str]) -> frozenset[str]:
        return frozenset(
            worker for worker, incarnation in self._drained().items() if incarnations.get(worker) == incarnation
        )

    def check(self, worker_id: str, incarnations: Mapping[str, str], owners: Collection[str]) -> str:
        """Return the incarnation in which a worker will be drained.

        Args:
            worker_id: the worker to drain.
            incarnations: id and incarnation of all connected workers.
            owners: ids of the workers that own an instance.

        Raises:
            RequestRefused: the worker cannot be drained now; with Pulsar's status codes and texts.
        """
        drained = self._present(incarnations)
        if len(incarnations) < 2:
            raise RequestRefused(400, TOO_FEW)
        if drained & set(owners):
            raise RequestRefused(409, "Another drain is in progress")
        if worker_id in drained:
            raise RequestRefused(412, f"Worker {worker_id} was not yet removed after a prior drain op; try later")
        if worker_id not in incarnations:
            raise RequestRefused(400, f"Worker {worker_id} is not among the current workers in the system")
        if len(incarnations) - len(drained) < 2:
            raise RequestRefused(400, TOO_FEW)
        return incarnations[worker_id]

    def forgotten(self, incarnations: Mapping[str, str], now: float) -> list[str]:
        """Return the workers whose drain order can be deleted: in another incarnation now, or absent for too long.

        Args:
            incarnations: id and incarnation of all connected workers.
            now: monotonic seconds.
        """
        drained = self._drained()
        awaited = self._away.granted(set(drained) - set(incarnations), now)
        return sorted(set(drained) - awaited - self._present(incarnations))

    def status(self, worker_id: str, incarnations: Mapping[str, str], owners: Collection[str]) -> dict[str, str]:
        """Return the JSON status of a worker's drain; arguments as for `check`."""
        incarnation = self._drained().get(worker_id)
        if incarnation is not None and incarnations.get(worker_id, incarnation) == incarnation:
            return dict(_RUNNING) if worker_id in owners else {"status": "SUCCESS", "lastError": ""}
        if worker_id in incarnations:
            return {"status": "NOT_RUN", "lastError": ""}
        return {"status": "ERROR", "lastError": f"Worker {worker_id} not found in drain records"}
