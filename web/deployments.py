"""Deployment status in the REST interface, and its interpretation by clients: is the deployed version running?

An extension: Apache Pulsar's workers have no such status. A client that creates or updates a function reads the version
from a response header, and polls `GET …/deployment?version=N` until the outcome is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import DeploymentFailed

VERSION_HEADER = "X-Magnetar-Function-Version"
"""Response header of a creation or update: the deployed version."""

NOTICE_HEADER = "X-Magnetar-Notice"
"""Response header of a connector's creation or update: one line for the user to read."""

ROLLBACK_PARAMETER = "rollbackOnFailure"
"""Query parameter of an update: true restores the previous version if the new one does not come up."""

STARTING = "starting"
RUNNING = "running"
STOPPED = "stopped"
"""All of its instances are stopped."""
FAILED = "failed"
"""An instance has failed several times in a row; it keeps restarting."""
ROLLED_BACK = "rolledBack"
REPLACED = "replaced"
"""A later version was deployed."""

WAIT_TIMEOUT_S = 120.0
"""Clients' default timeout: a first start may load large libraries."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def next_pause(pause_s: float = 0.0) -> float:
    """Return the seconds to wait before polling again, given the previous pause; 0 for the first."""
    return min(_LONGEST_PAUSE_S, pause_s * 1.5) if pause_s else _FIRST_PAUSE_S


def is_up(answer: Mapping[str, Any]) -> bool:
    """Return whether a version is running or stopped; False means poll again.

    Args:
        answer: the response to ``GET …/deployment?version=N``.

    Raises:
        DeploymentFailed: the version did not come up; the text has the reason.
    """
    state, version = answer["state"], answer["version"]
    details = str(answer.get("error") or "")
    if state in (RUNNING, STOPPED):
        return True
    if state == ROLLED_BACK:
        raise DeploymentFailed(
            f"version {version} did not come up and was rolled back to version {answer['restoredVersion']}:"
            f" {_reason(details)}", details,
        )  # fmt: skip
    if state == REPLACED:
        raise DeploymentFailed(f"version {version} was replaced by another before it was seen running", details)
    if state == FAILED and not answer.get("rollsBack"):
        raise DeploymentFailed(f"version {version} was stored, but does not run: {_reason(details)}", details)
    return False


def not_up_in_time(answer: Mapping[str, Any], waited_s: float) -> DeploymentFailed:
    """Return the error for a version that did not come up in time, with the progress in the last response."""
    details = str(answer.get("error") or "")
    why = f": {_reason(details)}" if details else "; it goes on starting, `functions status` shows how far it is"
    return DeploymentFailed(
        f"version {answer['version']} was stored, but {answer['numRunning']} of {answer['numInstances']} instances run"
        f" after {waited_s:g} s{why}", details,
    )  # fmt: skip


def _reason(details: str) -> str:
    """Return the last line of a traceback, or the first line of another text."""
    lines = [line.strip() for line in details.strip().splitlines() if line.strip()]
    if not lines:
        return "no reason is known"
    is_traceback = any(line.startswith("Traceback (most recent call last)") for line in lines)
    return (lines[-1] if is_traceback else lines[0])[:500]
