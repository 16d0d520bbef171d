"""Overview of a namespace's functions: their states and numbers of running instances. Not in Pulsar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...config.conversion import to_json
from ...wire.functions_pb2 import RUNNING, FunctionMetaData
from .service import states_of

Json = dict[str, Any]


def overview(records: Mapping[str, FunctionMetaData], statuses: Mapping[str, Json]) -> list[Json]:
    """Return an overview record for each function, by name.

    Args:
        records: functions' records, by name without tenant and namespace.
        statuses: `running` and `error` of each assigned instance, by ``tenant/namespace/name:number``.

    Returns:
        For each function: its name; `state`, one of running, partly running, down or stopped; `numRunning` of the
        `numInstances` that should run; its processing guarantee; and `error`, from the first instance that is not
        running.
    """
    return [_row(name, records[name], statuses) for name in sorted(records)]


def _row(name: str, metadata: FunctionMetaData, statuses: Mapping[str, Json]) -> Json:
    details = metadata.functionDetails
    whole = f"{details.tenant}/{details.namespace}/{name}"
    expected = [number for number, state in states_of(metadata).items() if state == RUNNING]
    found = [statuses.get(f"{whole}:{number}", {"running": False, "error": ""}) for number in expected]
    down = [status for status in found if not status["running"]]
    if not expected:
        state = "stopped"
    elif not down:
        state = "running"
    else:
        state = "partly running" if len(down) < len(expected) else "down"
    return {
        "name": name,
        "state": state,
        "numRunning": len(expected) - len(down),
        "numInstances": len(expected),
        "processingGuarantees": to_json(metadata).get("processingGuarantees", ""),
        "error": next((status["error"] for status in down if status["error"]), ""),
    }
