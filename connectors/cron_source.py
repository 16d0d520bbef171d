"""The ``cron`` source sends a record at each time of a cron schedule.

Its position is the last scheduled time. Times missed while the source was not running are skipped or sent later,
depending on ``missed``. Times missed by at most ``graceSeconds`` are always sent, so a short restart loses none.
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
        "Cron expression: minute hour day month weekday, optionally preceded by seconds, as in Spring.",
        aliases=("__CRON__", "cron"),
    )
    value: str = option("Value of each record; empty for a JSON object with the scheduled time.", default="")
    key: str = option("Key of each record; empty for no key.", default="")
    time_zone: str = option("Time zone of the schedule, such as UTC or Europe/Berlin.", default="UTC")
    missed: Literal["skip", "last", "all"] = option(
        "How to handle times missed while the source was not running. skip: send nothing; last: send one record, for "
        "the most recent time; all: send a record for each time.",
        default="skip",
    )
    grace_seconds: float = option(
        "Delay in seconds after which a scheduled time counts as missed.", default=60.0, limits=(1, 86_400)
    )


class CronSource(Source):
    """Sends a record at each scheduled time; only instance 0 sends records."""

    config = CronConfig

    def check(self, config: CronConfig) -> None:
        """Validate the configuration."""
        Schedule(config.schedule, config.time_zone)

    def not_effectively_once(self, config: CronConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.missed == "all":
            return ""
        return f"with missed {config.missed}, the records depend on when the source runs: set missed to all"

    def open(self, config: CronConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config = config
        self._log = context.logger
        self._schedule = Schedule(config.schedule, config.time_zone)
        position = context.position
        self._last = datetime.fromisoformat(position) if position else datetime.now(UTC)
        self._is_idle = context.instance_id > 0  # one instance is enough

    def read(self) -> list[Record] | None:
        """Return the next records, or None if none are available yet."""
        due = None if self._is_idle else self._schedule.next_after(self._last)
        wait_s = _WAIT_S if due is None else due.timestamp() - time.time()
        if wait_s > 0:
            time.sleep(min(wait_s, _WAIT_S))
        return None if due is None or wait_s > _WAIT_S else self.due_at(datetime.now(UTC))

    def due_at(self, now: datetime) -> list[Record]:
        """Return a batch of records for the scheduled times after the last one, up to now."""
        times: list[datetime] = []
        missed = 0
        policy, grace_s = self._config.missed, self._config.grace_seconds
        while len(times) < _BATCH_MAX and (due := self._schedule.next_after(self._last)) is not None and due <= now:
            self._last = due
            if policy != "all" and times and (now - times[-1]).total_seconds() > grace_s:
                times.pop()  # not the most recent time
                missed += 1
            times.append(due)
        if policy == "skip" and times and (now - times[-1]).total_seconds() > grace_s:
            times.pop()
            missed += 1
        if missed:
            self._log.warning("skipped %d scheduled times that passed while the source was not running", missed)
        return list(map(self._record, times))

    def _record(self, due: datetime) -> Record:
        value = self._config.value or json.dumps({"due": due.isoformat()})
        return Record(value, self._config.key or None, event_time_ms=int(due.timestamp() * 1000))

    def snapshot(self) -> str:
        """Return the current position."""
        return self._last.astimezone(UTC).isoformat()
