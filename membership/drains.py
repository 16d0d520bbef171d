"""Drains: which workers are being emptied of instances, or are empty and stay so.

The order to drain a worker is a record of the assignments topic, so it outlives the leader that took it. How far a
drain has come is not stored but read off the assignments, so it cannot be wrong: it runs while the worker still owns an
instance. The order holds for one incarnation of the worker: cut off and back, it is still drained; started again, it is
like new. An order that can concern nobody any more is forgotten after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..errors import RequestRefused
from .grace_period import GracePeriod

TOO_FEW = "Too few workers (need at least 2)"
FORGET_S = 600.0
"""How long a drained worker may be away and find itself drained when it is back."""

_RUNNING = {"status": "RUNNING", "lastError": ""}


class Drains:
    """Workers that were ordered to be drained."""

    def __init__(self, drained: Callable[[], Mapping[str, str]]) -> None:
        """Read from `drained` which workers were drained, and in which incarnation."""
        self._drained = drained
        self._away = GracePeriod(FORGET_S)

    def restart(self) -> None:
        """Count absences anew: another worker led meanwhile."""
        self._away.restart()

    def available(self, incarnations: Mapping[str, str]) -> frozenset[str]:
        """Return the members that may run instances; where all others are gone, the drained ones run them after all.

        Args:
            incarnations: id and incarnation of all connected workers.
        """
        return frozenset(incarnations) - self._present(incarnations) or frozenset(incarnations)

    def _present(self, incarnations: Mapping[str, str]) -> frozenset[str]:
        return frozenset(
            worker for worker, incarnation in self._drained().items() if incarnations.get(worker) == incarnation
        )

    def check(self, worker_id: str, incarnations: Mapping[str, str], owners: Collection[str]) -> str:
        """Return the incarnation in which a worker is to be drained.

        Args:
            worker_id: which.
            incarnations: id and incarnation of all connected workers.
            owners: ids of the workers that own an instance.

        Raises:
            RequestRefused: it may not be drained now; with Pulsar's codes and texts.
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
        """Return the drained workers whose order can go: connected in another incarnation, or away for too long.

        Args:
            incarnations: id and incarnation of all connected workers.
            now: monotonic seconds.
        """
        drained = self._drained()
        awaited = self._away.granted(set(drained) - set(incarnations), now)
        return sorted(set(drained) - awaited - self._present(incarnations))

    def status(self, worker_id: str, incarnations: Mapping[str, str], owners: Collection[str]) -> dict[str, str]:
        """Return the JSON that says how far the drain of a worker is; arguments as for `check`."""
        incarnation = self._drained().get(worker_id)
        if incarnation is not None and incarnations.get(worker_id, incarnation) == incarnation:
            return dict(_RUNNING) if worker_id in owners else {"status": "SUCCESS", "lastError": ""}
        if worker_id in incarnations:
            return {"status": "NOT_RUN", "lastError": ""}
        return {"status": "ERROR", "lastError": f"Worker {worker_id} not found in drain records"}
