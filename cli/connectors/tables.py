"""Tables of connectors, their fields and their instances, for terminals."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

from ...wire.printable import summary
from ..output import Table


def available_table(found: list[dict[str, Any]]) -> Table:
    """Return the installed connectors, one per row."""
    rows = []
    for one in found:
        names = ", ".join((one["name"], *one.get("aliases", ())))
        extra = f"magnetar[{one['extra']}]" if one.get("extra") else ""
        rows.append((names, one["description"], extra, one.get("notVerified", "")))
    return Table(("name", "description", "needs", "not verified"), rows)


def fields_table(fields: list[dict[str, Any]]) -> Table:
    """Return the fields of a connector, one per row."""
    rows = []
    for field in fields:
        about = field["attributes"]
        default = "required" if about["required"] else json.dumps(about["defaultValue"], ensure_ascii=False)
        kind = " | ".join(about["choices"]) if about.get("choices") else field["typeName"]
        names = ", ".join((field["fieldName"], *about.get("aliases", ())))
        rows.append((names, kind + (", secret" if about["sensitive"] else ""), default, about["help"]))
    return Table(("field", "type", "default", "meaning"), rows)


def status_table(status: dict[str, Any]) -> Table:
    """Return a connector's status, one row per instance, followed by the last error of each instance."""
    rows, errors = [], []
    for instance in status["instances"]:
        found = instance["status"]
        latest = [found[name] for name in found if name.startswith("latest")]
        newest = max((one for some in latest for one in some), key=itemgetter("timestampMs"), default=None)
        error = found["error"] or (newest["exceptionString"].strip() if newest else "")
        counts = {name: count for name, count in found.items() if name.startswith("num") and name != "numRestarts"}
        failed = sum(count for name, count in counts.items() if name.endswith("Exceptions"))
        read = counts.get("numReadFromPulsar", counts.get("numReceivedFromSource"))
        written = counts.get("numWrittenToSink", counts.get("numWritten"))
        state = "running" if found["running"] else "down"
        rows.append((instance["instanceId"], state, read, written, failed, found["numRestarts"], found["workerId"]))
        if error:
            errors.append(f"{instance['instanceId']}: {summary(error)}")
    title = f"{status['numRunning']} of {status['numInstances']} instances running"
    return Table(("instance", "state", "read", "written", "errors", "restarts", "worker"), rows, title, errors)
