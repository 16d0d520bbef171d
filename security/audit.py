"""The audit log. With authentication enabled, it has one line for each request that was denied or changed something.

The logger is `magnetar.audit`. Values are quoted; quotes, line breaks and terminal control characters are escaped, so
that no role, topic or path name can forge a log line.

Clients can cause any number of denials, so lines about requests without effect are rate-limited per client
(`AuditLimit`). Changes are always logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..wire.printable import printable
from .roles import Roles

LOGGER = "magnetar.audit"
REFUSED = "refused"
DONE = "done"
PERIOD_S = 60.0
REFUSALS_MAX = 60
"""Maximum number of lines per client and `PERIOD_S` about requests that changed nothing."""
CLIENTS_MAX = 10_000
"""Maximum number of tracked clients; the one with the oldest period is dropped first."""
_VALUE_CHARACTERS_MAX = 1024
_log = logging.getLogger(LOGGER)


def record(roles: Roles, address: str, operation: str, resource: str, outcome: str) -> None:
    """Write one audit line.

    Args:
        roles: the client's roles.
        address: the peer's address.
        operation: the command, or the HTTP method.
        resource: the topic, namespace or path.
        outcome: `REFUSED`, `DONE`, or the HTTP status of the response.
    """
    if _log.isEnabledFor(logging.INFO):
        is_done = outcome == DONE or outcome[:1] in ("2", "3")
        client = None if is_done else (roles.role, roles.original, "" if roles.role else address.rpartition(":")[0])
        _log.info(line(roles, address, operation, resource, outcome), extra={"refused_client": client})


@dataclass(slots=True)
class _Written:
    since_s: float
    lines: int = 0
    left_out: int = 0


class AuditLimit(logging.Filter):
    """Rate limit of lines about requests that changed nothing; for the logger `LOGGER`.

    Clients are identified by role, or by address if the role is unknown. After a period with dropped lines, the
    client's next line ends with the number of dropped lines.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._clients: dict[object, _Written] = {}  # in the order of their periods

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line (called by `logging`)."""
        client = getattr(record, "refused_client", None)
        if client is None:
            return True
        now_s = self._clock()
        written = self._clients.get(client)
        if written is None or now_s - written.since_s >= PERIOD_S:
            self._clients.pop(client, None)
            if written is not None and written.left_out:
                record.msg = f"{record.msg} left_out={written.left_out}"
            written = self._clients[client] = _Written(now_s)
            if len(self._clients) > CLIENTS_MAX:
                del self._clients[next(iter(self._clients))]
        if written.lines < REFUSALS_MAX:
            written.lines += 1
            return True
        written.left_out += 1
        return False


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
