"""The ``cron`` source sends a record at the times of a cron expression.

Its position is the last scheduled time. Times missed while the source was not running are skipped or made up for,
depending on ``missed``; times missed by at most ``graceSeconds`` are never skipped, so that a restart loses none.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from ..api.connector import Record, Source, SourceContext
from ..api.connector_config import option
from ..config.schedule import Schedule

_WAIT_S = 0.5
_BATCH_MAX = 1000


@dataclass
class CronConfig:
    """Settings of the ``cron`` source: the schedule and the records."""

    schedule: str = option(
        "Cron expression: minute hour day month weekday, or the same with the second in front, as Spring has it.",
        aliases=("__CRON__", "cron"),
    )
    value: str = option("The value of each record; empty for a JSON object with the scheduled time.", default="")
    key: str = option("The key of each record; empty for none.", default="")
    time_zone: str = option("Name of the time zone of the schedule.", default="UTC")
    missed: Literal["skip", "last", "all"] = option(
        "What becomes of times that passed while the source did not run: skip: nothing; last: one record, for the last"
        " of them; all: a record for each.",
        default="skip",
    )
    grace_seconds: float = option(
        "Seconds after which a scheduled time counts as missed.", default=60.0, limits=(1, 86_400)
    )


class CronSource(Source):
    """A record at the times of a cron expression; instance 0 sends them all."""

    config = CronConfig

    def check(self, config: CronConfig) -> None:
        """Validate the configuration."""
        Schedule(config.schedule, config.time_zone)

    def not_effectively_once(self, config: CronConfig) -> str:
        """Return why a configuration cannot be effectively once; empty if it can."""
        if config.missed == "all":
            return ""
        return f"which times are missed depends on when it runs, with missed {config.missed}; use missed all"

    def open(self, config: CronConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config = config
        self._log = context.logger
        self._schedule = Schedule(config.schedule, config.time_zone)
        position = context.position
        self._last = datetime.fromisoformat(position) if position else datetime.now(UTC)
        self._is_idle = context.instance_id > 0  # one instance is enough

    def read(self) -> list[Record] | None:
        """Return the next records, or None if there are none yet."""
        due = None if self._is_idle else self._schedule.next_after(self._last)
        wait_s = _WAIT_S if due is None else due.timestamp() - time.time()
        if wait_s > 0:
            time.sleep(min(wait_s, _WAIT_S))
        return None if due is None or wait_s > _WAIT_S else self.due_at(datetime.now(UTC))

    def due_at(self, now: datetime) -> list[Record]:
        """Return records for the scheduled times after the last one, up to now; at most a batch."""
        times: list[datetime] = []
        missed = 0
        policy, grace_s = self._config.missed, self._config.grace_seconds
        while len(times) < _BATCH_MAX and (due := self._schedule.next_after(self._last)) is not None and due <= now:
            self._last = due
            if policy != "all" and times and (now - times[-1]).total_seconds() > grace_s:
                times.pop()  # not the last one
                missed += 1
            times.append(due)
        if policy == "skip" and times and (now - times[-1]).total_seconds() > grace_s:
            times.pop()
            missed += 1
        if missed:
            self._log.warning("%d times of the schedule passed while nothing ran, and are left out", missed)
        return list(map(self._record, times))

    def _record(self, due: datetime) -> Record:
        value = self._config.value or json.dumps({"due": due.isoformat()})
        return Record(value, self._config.key or None, event_time_ms=int(due.timestamp() * 1000))

    def snapshot(self) -> str:
        """Return the current position."""
        return self._last.astimezone(UTC).isoformat()
