"""Runs of Spark functions: begun on the worker that has the function, and waited for and listed on any."""

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
"""How long a function that was just created or moved may take to become ready, in seconds."""
ASK_AGAIN_S = 3.0
"""Interval at which a lost run is started again under the same id, in seconds: its worker may have died."""
LOST_AFTER_S = 60.0
"""How long a run may be unknown to the function's worker before it counts as lost, in seconds. It may not have started
there yet, or the function may have moved."""
_INSTANCE = 0
Json = dict[str, Any]


class Runs:
    """Starts runs and waits for them to end, on whichever worker they execute."""

    def __init__(self, instances: Instances, tables: StateTables) -> None:
        self._instances = instances
        self._tables = tables

    async def begin(self, name: FunctionName) -> str:
        """Start a run and return its id; waits for a function that is about to start.

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
            RequestRefused: 503, the state store does not answer; 500, another version wrote its history.
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
            run = {}  # its worker is gone, and the run will go on elsewhere
        if run.get("runId") and run["stage"] not in ENDED:
            others = [one for one in found if one["runId"] != run["runId"]]
            number = next((one["number"] for one in found if one["runId"] == run["runId"]), None)
            found = [{field: run.get(field) for field in _FIELDS} | {"number": number}, *others]
        return found

    async def wait(self, name: FunctionName, run_id: str) -> Json:
        """Wait for a run to succeed and return its record.

        Cancellation: the run continues.

        Raises:
            RequestRefused: the run failed or was cancelled, or its worker is gone.
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
                why = status.get("error") or trouble or "its worker is gone"
                raise RequestRefused(
                    503,
                    f"run {run_id} has not been seen for {LOST_AFTER_S:g} s: {why}; trigger it again to resume",
                )
            elif monotonic() - asked_s > ASK_AGAIN_S:
                asked_s, trouble = monotonic(), await self._ask_again(name, run_id)
            await asyncio.sleep(POLL_S)

    async def _ask_again(self, name: FunctionName, run_id: str) -> str:
        """Start a run again where the function is now, unless it is active there; return the error, empty if none."""
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
    raise RequestRefused(500, f"{what}: {reason}; functions logs shows all of it" if reason else what)
