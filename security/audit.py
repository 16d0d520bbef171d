"""The audit log: one line for each request that was refused or changed something, written while authentication is on.

The logger is `magnetar.audit`. Every value stands in quotes; what would end them or the line, and what a terminal would
obey, is escaped. Whoever chooses a role, a topic or a path cannot write a line of their own.
"""

from __future__ import annotations

import logging

from ..wire.printable import printable
from .roles import Roles

LOGGER = "magnetar.audit"
REFUSED = "refused"
DONE = "done"
_VALUE_CHARACTERS_MAX = 1024
_log = logging.getLogger(LOGGER)


def record(roles: Roles, address: str, operation: str, resource: str, outcome: str) -> None:
    """Write one line.

    Args:
        roles: of who asked.
        address: of the peer.
        operation: what was asked: a command, or the method of a request.
        resource: what it was asked about: a topic, a namespace, a path.
        outcome: `REFUSED`, `DONE`, or the HTTP status of the answer.
    """
    if _log.isEnabledFor(logging.INFO):
        _log.info(line(roles, address, operation, resource, outcome))


def line(roles: Roles, address: str, operation: str, resource: str, outcome: str) -> str:
    """Return the line that `record` writes."""
    values = {
        "role": roles.role, "original": roles.original, "address": address, "operation": operation,
        "resource": resource, "outcome": outcome,
    }  # fmt: skip
    return " ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: str | None) -> str:
    if value is None:
        return "-"
    cut = value if len(value) <= _VALUE_CHARACTERS_MAX else f"{value[:_VALUE_CHARACTERS_MAX]}…"
    escaped = cut.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
