"""Runs of Spark functions: any worker starts them on the function's worker, waits for them and lists them."""

from __future__ import annotations

import asyncio
import uuid
from time import monotonic
from typing import Any

from ...errors import MagnetarError, ProtocolError, RequestRefused
from ...instance.identity import table_of
from ...spark.jobs.progress import ENDED
from ...spark.jobs.run_history import KEY, EndedRun, read_history
from ...tasks import Backoff, Retry
from ...wire.functions_pb2 import FunctionMetaData
from .instances import Instances
from .service import FunctionName
from .state_tables import StateTables

POLL_S = 0.2
READY_WITHIN_S = 15.0
"""Time limit in seconds for a function that was just created or moved to become ready."""
ASK_AGAIN_S = 3.0
"""Interval in seconds for restarting a lost run under the same id, because its worker may have died."""
LOST_AFTER_S = 60.0
"""Time in seconds after which a run that the function's worker does not report counts as lost.

The run may not have started there yet, or the function may have moved."""
_INSTANCE = 0
Json = dict[str, Any]


class Runs:
    """Starts runs on any worker and waits for them to end."""

    def __init__(self, instances: Instances, tables: StateTables) -> None:
        self._instances = instances
        self._tables = tables

    async def begin(self, name: FunctionName) -> str:
        """Start a run and return its id, after waiting for a function that is still starting.

        Cancellation: the run may have started.

        Raises:
            RequestRefused: 409, another run is active or the function is down; 503, no worker could start it.
        """
        run_id = uuid.uuid4().hex[:12]
        retry = Retry((RequestRefused,), Backoff(POLL_S, POLL_S), READY_WITHIN_S, is_final=_cannot_begin)
        await retry.call(lambda: self._instances.begin_run(name, _INSTANCE, run_id))
        return run_id

    async def latest(self, name: FunctionName, metadata: FunctionMetaData) -> list[Json]:
        """Return the latest runs of a function, newest first, including the active one.

        Raises:
            RequestRefused: 503, the state store did not answer; 500, an incompatible version wrote the history.
        """
        value = await self._tables.get(table_of(metadata), KEY)
        try:
            ended = read_history(None if value is None else value.data, metadata).runs
        except ProtocolError as error:
            raise RequestRefused(500, str(error)) from error
        found = [_ended_json(run) for run in ended]
        try:
            run = (await self._instances.instance_status(name, _INSTANCE)).get("run") or {}
        except MagnetarError:
            run = {}  # its worker has stopped, and the run will continue elsewhere
        if run.get("runId") and run["stage"] not in ENDED:
            others = [one for one in found if one["runId"] != run["runId"]]
            number = next((one["number"] for one in found if one["runId"] == run["runId"]), None)
            found = [{field: run.get(field) for field in _FIELDS} | {"number": number}, *others]
        return found

    async def wait(self, name: FunctionName, run_id: str) -> Json:
        """Wait until a run has succeeded and return its record.

        Cancellation: the run continues.

        Raises:
            RequestRefused: the run failed, was cancelled or was lost.
        """
        seen_s = asked_s = monotonic()
        trouble = ""
        while True:
            status = await self._instances.instance_status(name, _INSTANCE)
            run = status.get("run") or {}
            if run.get("runId") == run_id:
                seen_s = asked_s = monotonic()
                if run["stage"] in ENDED:
                    return _ended_well(run)
            elif monotonic() - seen_s > LOST_AFTER_S:
                why = status.get("error") or trouble or "its worker has stopped"
                raise RequestRefused(
                    503,
                    f"run {run_id} has not been reported for {LOST_AFTER_S:g} s: {why}; trigger the function again to"
                    " resume"
                    " it",
                )
            elif monotonic() - asked_s > ASK_AGAIN_S:
                asked_s, trouble = monotonic(), await self._ask_again(name, run_id)
            await asyncio.sleep(POLL_S)

    async def _ask_again(self, name: FunctionName, run_id: str) -> str:
        """Restart a run on the function's current worker unless it is active there; return any error."""
        try:
            await self._instances.begin_run(name, _INSTANCE, run_id)
        except MagnetarError as exc:
            return str(exc)
        return ""


_FIELDS = ("runId", "number", "stage", "startedMs", "endedMs", "rows", "tasksDone", "tasksTotal", "reason")


def _ended_json(run: EndedRun) -> Json:
    return {
        "runId": run.run_id,
        "number": run.number or None,
        "stage": run.stage,
        "startedMs": run.started_ms,
        "endedMs": run.ended_ms,
        "rows": run.rows,
        "tasksDone": run.tasks_done,
        "tasksTotal": run.tasks_total,
        "reason": run.reason,
    }


def _cannot_begin(error: Exception) -> bool:
    return isinstance(error, RequestRefused) and error.status != 503


def _ended_well(run: Json) -> Json:
    if run["stage"] == "done":
        return run
    reason = run["reason"]
    what = f"run {run['runId']} was cancelled" if run["stage"] == "cancelled" else f"run {run['runId']} failed"
    raise RequestRefused(500, f"{what}: {reason}; run functions logs for details" if reason else what)
