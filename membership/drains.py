"""Drains: workers whose instances are being moved to others, or have been.

A drain order is a record in the assignments topic, so it survives a change of leader. The progress of a drain is not
stored but derived from the assignments: the drain is running while the worker still owns an instance. The order applies
to one incarnation of the worker: a worker that reconnects remains drained, but not one that restarts. An order is
deleted when its worker has been absent for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..errors import RequestRefused
from .grace_period import GracePeriod

TOO_FEW = "Too few workers (need at least 2)"
FORGET_S = 600.0
"""How long a drained worker may be absent and still count as drained when it returns."""

_RUNNING = {"status": "RUNNING", "lastError": ""}


class Drains:
    """The workers with a drain order."""

    def __init__(self, drained: Callable[[], Mapping[str, str]]) -> None:
        """Create a tracker of drains; ``drained`` returns the drained workers and their incarnations."""
        self._drained = drained
        self._away = GracePeriod(FORGET_S)

    def restart(self) -> None:
        """Restart the absence timers, because another worker was the leader meanwhile."""
        self._away.restart()

    def available(self, incarnations: Mapping[str, str]) -> frozenset[str]:
        """Return the members that may run instances: all members that are not drained, or all if every one is.

        Args:
            incarnations: incarnations of all connected workers by worker id.
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
            incarnations: incarnations of all connected workers by worker id.
            owners: ids of workers that own an instance.

        Raises:
            RequestRefused: the worker cannot be drained now; has Pulsar's status code and message.
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
        """Return the workers whose drain order can be deleted, because they restarted or were absent for too long.

        Args:
            incarnations: incarnations of all connected workers by worker id.
            now: current time in monotonic seconds.
        """
        drained = self._drained()
        awaited = self._away.granted(set(drained) - set(incarnations), now)
        return sorted(set(drained) - awaited - self._present(incarnations))

    def status(self, worker_id: str, incarnations: Mapping[str, str], owners: Collection[str]) -> dict[str, str]:
        """Return the JSON status of a worker's drain. Takes the same arguments as `check`."""
        incarnation = self._drained().get(worker_id)
        if incarnation is not None and incarnations.get(worker_id, incarnation) == incarnation:
            return dict(_RUNNING) if worker_id in owners else {"status": "SUCCESS", "lastError": ""}
        if worker_id in incarnations:
            return {"status": "NOT_RUN", "lastError": ""}
        return {"status": "ERROR", "lastError": f"Worker {worker_id} not found in drain records"}
