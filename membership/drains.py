"""Which workers are being emptied, or are empty and stay so.

The order to empty a worker is a record of the assignments topic, so it outlives the leader that took it. How far a
drain has come is not kept but read off the assignments, so it cannot be wrong: it runs while the worker still owns an
instance. The order holds for one life of the worker: cut off and back, it is still drained; started again, it is like
new. An order that can mean nobody any more is forgotten after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..errors import RequestRefused
from .grace_period import AbsenceClock

TOO_FEW = "Too few workers (need at least 2)"
FORGET_S = 600.0
"""How long a drained worker may be away and find itself drained when it is back."""

_RUNNING = {"status": "RUNNING", "lastError": ""}


class Drains:
    """Workers that were ordered to be emptied."""

    def __init__(self, drained: Callable[[], Mapping[str, str]]) -> None:
        """Read from `drained` which workers were drained, and in which life of theirs."""
        self._drained = drained
        self._away = AbsenceClock(FORGET_S)

    def restart(self) -> None:
        """Count absences anew: another worker led meanwhile."""
        self._away.restart()

    def available(self, lives: Mapping[str, str]) -> frozenset[str]:
        """Return the members that may run instances; where all others died, the drained ones run them after all.

        Args:
            lives: id and life of all workers that are there.
        """
        return frozenset(lives) - self._present(lives) or frozenset(lives)

    def _present(self, lives: Mapping[str, str]) -> frozenset[str]:
        return frozenset(worker for worker, life in self._drained().items() if lives.get(worker) == life)

    def check(self, worker_id: str, lives: Mapping[str, str], owners: Collection[str]) -> str:
        """Return the life in which a worker is to be drained.

        Args:
            worker_id: which.
            lives: id and life of all workers that are there.
            owners: ids of the workers that own an instance.

        Raises:
            RequestRefused: it may not be drained now; with Pulsar's codes and texts.
        """
        drained = self._present(lives)
        if len(lives) < 2:
            raise RequestRefused(400, TOO_FEW)
        if drained & set(owners):
            raise RequestRefused(409, "Another drain is in progress")
        if worker_id in drained:
            raise RequestRefused(412, f"Worker {worker_id} was not yet removed after a prior drain op; try later")
        if worker_id not in lives:
            raise RequestRefused(400, f"Worker {worker_id} is not among the current workers in the system")
        if len(lives) - len(drained) < 2:
            raise RequestRefused(400, TOO_FEW)
        return lives[worker_id]

    def forgotten(self, lives: Mapping[str, str], now: float) -> list[str]:
        """Return the drained workers whose order can go: there in another life, or away for too long.

        Args:
            lives: id and life of all workers that are there.
            now: monotonic seconds.
        """
        drained = self._drained()
        awaited = self._away.excused(drained, lives, now)
        return sorted(set(drained) - awaited - self._present(lives))

    def status(self, worker_id: str, lives: Mapping[str, str], owners: Collection[str]) -> dict[str, str]:
        """Return the JSON that says how far the drain of a worker is; arguments as for `check`."""
        life = self._drained().get(worker_id)
        if life is not None and lives.get(worker_id, life) == life:
            return dict(_RUNNING) if worker_id in owners else {"status": "SUCCESS", "lastError": ""}
        if worker_id in lives:
            return {"status": "NOT_RUN", "lastError": ""}
        return {"status": "ERROR", "lastError": f"Worker {worker_id} not found in drain records"}
