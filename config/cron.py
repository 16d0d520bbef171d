"""Start times of a Spark function's runs, in UTC, from a cron expression as read by `schedule`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ..errors import InvalidConfig
from .schedule import Schedule

MINUTE_MS = 60_000
NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression.

    Attributes:
        text: the expression passed to `read_cron`.
    """

    text: str

    def next_after(self, time_ms: int) -> int:
        """Return the first due time after a time, both in ms since 1970."""
        due = Schedule(self.text, field="cron").next_after(datetime.fromtimestamp(time_ms / 1000, UTC))
        return NEVER_MS if due is None else int(due.timestamp() * 1000)


def read_cron(text: str) -> Cron:
    """Parse an expression.

    Raises:
        InvalidConfig: the expression is invalid or never due.
    """
    if len(text) > 1000:
        raise InvalidConfig(f"cron is too long ({len(text)} characters): expected at most 1,000")
    Schedule(text, field="cron")
    return Cron(text)
