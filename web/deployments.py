"""Deployment status in the REST API, and its interpretation by clients that wait until a version is running.

This is an extension; Apache Pulsar's workers have no such status. A client that creates or updates a function reads the
version from a response header, and polls `GET …/deployment?version=N` until the outcome is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import DeploymentFailed

VERSION_HEADER = "X-Magnetar-Function-Version"
"""Response header of a creation or update with the deployed version."""

NOTICE_HEADER = "X-Magnetar-Notice"
"""Response header of a connector's creation or update with a one-line message to the user."""

ROLLBACK_PARAMETER = "rollbackOnFailure"
"""Query parameter of an update; if true, the previous version is restored if the new one fails to start."""

STARTING = "starting"
RUNNING = "running"
STOPPED = "stopped"
"""All instances are stopped."""
FAILED = "failed"
"""An instance has failed several times in a row; it keeps restarting."""
ROLLED_BACK = "rolledBack"
REPLACED = "replaced"
"""A later version was deployed."""

WAIT_TIMEOUT_S = 120.0
"""Default timeout of clients. The first start may load large libraries."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def next_pause(pause_s: float = 0.0) -> float:
    """Return the seconds to wait before the next poll, given the previous wait (0 for the first)."""
    return min(_LONGEST_PAUSE_S, pause_s * 1.5) if pause_s else _FIRST_PAUSE_S


def is_up(answer: Mapping[str, Any]) -> bool:
    """Return whether a version is running or stopped. If False, poll again.

    Args:
        answer: the response to ``GET …/deployment?version=N``.

    Raises:
        DeploymentFailed: the version failed to start; the message contains the reason.
    """
    state, version = answer["state"], answer["version"]
    details = str(answer.get("error") or "")
    if state in (RUNNING, STOPPED):
        return True
    if state == ROLLED_BACK:
        raise DeploymentFailed(
            f"version {version} did not start and was rolled back to version {answer['restoredVersion']}:"
            f" {_reason(details)}", details,
        )  # fmt: skip
    if state == REPLACED:
        raise DeploymentFailed(f"version {version} was replaced by another version before it was running", details)
    if state == FAILED and not answer.get("rollsBack"):
        raise DeploymentFailed(f"version {version} was stored but failed to start: {_reason(details)}", details)
    return False


def not_up_in_time(answer: Mapping[str, Any], waited_s: float) -> DeploymentFailed:
    """Return the error for a version that did not start in time, with the progress from the last response."""
    details = str(answer.get("error") or "")
    why = f": {_reason(details)}" if details else "; it is still starting: see its progress with `functions status`"
    return DeploymentFailed(
        f"version {answer['version']} was stored, but only {answer['numRunning']} of {answer['numInstances']} instances"
        f" are running after {waited_s:g} s{why}", details,
    )  # fmt: skip


def _reason(details: str) -> str:
    """Return the last line of a traceback, or the first line of any other text."""
    lines = [line.strip() for line in details.strip().splitlines() if line.strip()]
    if not lines:
        return "reason unknown"
    is_traceback = any(line.startswith("Traceback (most recent call last)") for line in lines)
    return (lines[-1] if is_traceback else lines[0])[:500]
