"""The latest finished runs of a Spark function, stored in the state store together with its plan.

Design: the history is one key of the function's table, so that it is deleted together with the table and a later
function of the same name starts with an empty history. The driver adds a run to the history before it removes the run
request (`plans.RunRequest`), so a run is never lost, wherever a process dies. The key also records the time up to which
triggers have been served (`triggers`), because the run that shows it is eventually dropped from the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import BadVersion, ProtocolError
from ...instance.identity import incarnation_of, table_of
from ...instance.spec import InstanceSpec
from ...wire.functions_pb2 import FunctionMetaData
from .progress import RunProgress, reason_of
from .retries import with_retries

if TYPE_CHECKING:
    from ...state.client import TableClient

KEY = b"__spark_runs__"
KEPT = 20
"""Maximum number of runs kept per function."""
REASON_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A finished run.

    Attributes:
        run_id: id of the run.
        number: plan number, the `run_number` of DataFrame functions; 0 if there was nothing to plan.
        stage: ``done``, ``failed`` or ``cancelled``.
        started_ms: start time.
        ended_ms: end time.
        rows: messages read.
        tasks_done: number of finished tasks.
        tasks_total: number of tasks; 0 if nothing was planned.
        reason: one-line reason for failure.
    """

    run_id: str
    number: int = 0
    stage: str
    started_ms: int
    ended_ms: int
    rows: int = 0
    tasks_done: int = 0
    tasks_total: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Value of the history key.

    Attributes:
        runs: the latest runs, newest first, at most `KEPT`.
        served_ms: time up to which cron triggers have been served; 0 if there never were any.
        cron: cron expression to which ``served_ms`` applies.
    """

    runs: tuple[EndedRun, ...] = ()
    served_ms: int = 0
    cron: str = ""

    def with_run(self, run: EndedRun, due_ms: int) -> History:
        """Return the history with a run added or replaced; ``due_ms`` is the time of the run's trigger."""
        return replace(self, runs=latest([run, *self.runs]), served_ms=max(self.served_ms, due_ms))


def latest(runs: Iterable[EndedRun]) -> tuple[EndedRun, ...]:
    """Return the latest runs, newest first; of runs with the same id, only the first."""
    by_id: dict[str, EndedRun] = {}
    for run in runs:
        by_id.setdefault(run.run_id, run)
    return tuple(sorted(by_id.values(), key=lambda run: (run.started_ms, run.ended_ms), reverse=True)[:KEPT])


def ended_run(progress: RunProgress, started_ms: int, ended_ms: int) -> EndedRun:
    """Convert the final progress of a run to an `EndedRun`."""
    reason = reason_of(progress.error)
    return EndedRun(
        run_id=progress.run_id,
        number=progress.number,
        stage=progress.stage,
        started_ms=started_ms,
        ended_ms=ended_ms,
        rows=progress.rows,
        tasks_done=progress.tasks_done,
        tasks_total=progress.tasks_total,
        reason=reason if len(reason) <= REASON_CHARACTERS else f"{reason[:REASON_CHARACTERS]} …",
    )


def read_runs(runs: Iterable[dict[str, Any]]) -> tuple[EndedRun, ...]:
    """Parse runs from objects created by `asdict`."""
    return tuple(EndedRun(**run) for run in runs)


def read_history(data: bytes | None, metadata: FunctionMetaData) -> History:
    """Parse the history key of a function; return an empty history if it is missing or belongs to an earlier function.

    Raises:
        ProtocolError: an incompatible version wrote the history.
    """
    if not data:
        return History()
    try:
        content = json.loads(data)
        if content["format"] != 1:
            raise ValueError(f"format {content['format']}")
        if content["life"] != _life(metadata):
            return History()
        return History(runs=read_runs(content["runs"]), served_ms=content["served"], cron=content["cron"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(
            f"key {KEY.decode()} of the function's state is not a run history that this version can "
            f"read ({error}): use the version that wrote it, or delete and recreate the function"
        ) from error


def _life(metadata: FunctionMetaData) -> str:
    return incarnation_of(metadata).rpartition("/")[0]  # a cursor reset does not end the history


class RunHistory:
    """The run history of one function. Blocking; not thread-safe."""

    def __init__(self, client: TableClient, spec: InstanceSpec) -> None:
        """Create the history without reading it."""
        self._client = client
        self._metadata = spec.metadata
        self._table = table_of(spec.metadata)

    def load(self, cron: str, now_ms: int) -> History:
        """Return the history; if the cron expression has changed, triggers count as served up to now.

        Raises:
            MagnetarError: the store does not answer, or an incompatible version wrote the history.
        """
        return with_retries(lambda: self._change(lambda history: _scheduled(history, cron, now_ms)))

    def add(self, run: EndedRun, due_ms: int) -> None:
        """Store a finished run and the time of the trigger that started it, 0 for none.

        Raises: same as `load`.
        """
        self._change(lambda history: history.with_run(run, due_ms))

    def _change(self, change: Any) -> History:
        while True:
            [value] = self._client.read(self._table, [KEY])
            before = read_history(None if value is None else value.data, self._metadata)
            after: History = change(before)
            if after == before:
                return after
            content = {
                "format": 1, "life": _life(self._metadata), "served": after.served_ms, "cron": after.cron,
                "runs": [asdict(run) for run in after.runs],
            }  # fmt: skip
            data = json.dumps(content, separators=(",", ":")).encode()
            try:
                self._client.put(self._table, KEY, data, 0 if value is None else value.version)
            except BadVersion:
                continue  # another driver has changed the key, or the response to our own change was lost
            return after


def _scheduled(history: History, cron: str, now_ms: int) -> History:
    return history if history.cron == cron else replace(history, cron=cron, served_ms=now_ms)
