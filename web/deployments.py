"""What the REST interface tells of a deployment, and what clients make of it: does the version that was sent run?

Ours; Apache Pulsar's workers tell nothing of the kind. Whoever created or changed a function finds the version in the
header of the answer, and asks `GET …/deployment?version=N` until it is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import DeploymentFailed

VERSION_HEADER = "X-Magnetar-Function-Version"
"""Of the answer to a creation or update: the version that it deployed."""

NOTICE_HEADER = "X-Magnetar-Notice"
"""Of the answer to the creation or update of a connector: one line that its user should read."""

ROLLBACK_PARAMETER = "rollbackOnFailure"
"""Query parameter of an update: true has the version before it restored if this one does not come up."""

STARTING = "starting"
RUNNING = "running"
STOPPED = "stopped"
"""None of its instances is to run."""
FAILED = "failed"
"""An instance has failed several times in a row; it goes on trying."""
ROLLED_BACK = "rolledBack"
REPLACED = "replaced"
"""A later version was deployed."""

WAIT_TIMEOUT_S = 120.0
"""How long clients wait by default: a first start may load large libraries."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def next_pause(pause_s: float = 0.0) -> float:
    """Return how many seconds to wait before asking again, after a pause of ``pause_s``; 0 begins."""
    return min(_LONGEST_PAUSE_S, pause_s * 1.5) if pause_s else _FIRST_PAUSE_S


def is_up(answer: Mapping[str, Any]) -> bool:
    """Return whether a version has come up, or has nothing to run; False: ask again.

    Args:
        answer: to ``GET …/deployment?version=N``.

    Raises:
        DeploymentFailed: it has not; says why.
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
    """Return what is said when a version has not come up in time; the last answer tells how far it is."""
    details = str(answer.get("error") or "")
    why = f": {_reason(details)}" if details else "; it goes on starting, `functions status` shows how far it is"
    return DeploymentFailed(
        f"version {answer['version']} was stored, but {answer['numRunning']} of {answer['numInstances']} instances run"
        f" after {waited_s:g} s{why}", details,
    )  # fmt: skip


def _reason(details: str) -> str:
    """Return the line of a traceback, or of another text, that says most."""
    lines = [line.strip() for line in details.strip().splitlines() if line.strip()]
    if not lines:
        return "no reason is known"
    is_traceback = any(line.startswith("Traceback (most recent call last)") for line in lines)
    return (lines[-1] if is_traceback else lines[0])[:500]
