"""The source ``cron``: a record at the times of a cron expression."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..api.connector import Record, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig

_WAIT_S = 0.5
_FIELDS = (("second", 0, 59), ("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_YEARS = 5


@dataclass
class CronConfig:
    """When a record is sent, and what it says."""

    schedule: str = option("Cron expression: minute hour day month weekday, or the same with the second in front.")
    value: str = option("The value of each record; empty for a JSON object with the time that was due.", default="")
    time_zone: str = option("Name of the time zone of the schedule.", default="UTC")
    catch_up: bool = option("Whether a time that passed while the source was down is made up for.", default=False)


class CronSource(Source):
    """A record at the times of a cron expression."""

    config = CronConfig

    def open(self, config: CronConfig, context: SourceContext) -> None:
        """See `Connector.open`."""
        self._config = config
        self._schedule = Schedule(config.schedule)
        try:
            self._zone = ZoneInfo(config.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidConfig(f"timeZone {config.time_zone!r} is no time zone: {error}") from error
        now = datetime.now(self._zone)
        last = datetime.fromisoformat(context.position).astimezone(self._zone) if context.position else now
        self._last = last if config.catch_up else max(last, now)
        self._is_idle = context.instance_id > 0  # one instance is enough

    def read(self) -> Record | None:
        """See `Source.read`."""
        due = None if self._is_idle else self._schedule.next_after(self._last)
        wait_s = _WAIT_S if due is None else (due - datetime.now(UTC)).total_seconds()
        if due is None or wait_s > _WAIT_S:
            time.sleep(_WAIT_S)
            return None
        time.sleep(max(wait_s, 0.0))
        self._last = due
        text = due.isoformat()
        return Record(self._config.value or json.dumps({"due": text}), event_time_ms=int(due.timestamp() * 1000))

    def snapshot(self) -> str:
        """See `Source.snapshot`."""
        return self._last.isoformat()


class Schedule:
    """Times of a cron expression."""

    def __init__(self, expression: str) -> None:
        """Read an expression of five or six fields. Raises InvalidConfig if it is none."""
        parts = expression.split()
        if len(parts) == 5:
            parts = ["0", *parts]
        if len(parts) != 6:
            raise InvalidConfig(f"schedule {expression!r} has {len(parts)} fields; it is minute hour day month weekday")
        fields = [_read(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
        self._seconds, self._minutes, self._hours, self._days, self._months, weekdays = fields
        self._weekdays = {day % 7 for day in weekdays}
        self._any_day, self._any_weekday = parts[3] in "*?", parts[5] in "*?"

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time behind a moment, None if there is none in the next years."""
        time_ = moment.replace(microsecond=0) + timedelta(seconds=1)
        end = time_ + timedelta(days=366 * _YEARS)
        while time_ < end:
            if time_.month not in self._months:
                time_ = (time_.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
            elif not self._is_day(time_):
                time_ = (time_ + timedelta(days=1)).replace(hour=0, minute=0, second=0)
            elif time_.hour not in self._hours:
                time_ = (time_ + timedelta(hours=1)).replace(minute=0, second=0)
            elif time_.minute not in self._minutes:
                time_ = (time_ + timedelta(minutes=1)).replace(second=0)
            elif time_.second not in self._seconds:
                time_ += timedelta(seconds=1)
            else:
                return time_
        return None

    def _is_day(self, moment: datetime) -> bool:
        day, weekday = moment.day in self._days, (moment.weekday() + 1) % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return day and weekday
        return day or weekday  # as cron has it: where both are given, one is enough


def _read(text: str, name: str, low: int, high: int) -> set[int]:
    """Return the numbers that a field of an expression means."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            begin = low if span in ("*", "?") else int(first)
            end = high if span in ("*", "?") or (slash and not dash) else int(last or first)
            numbers = range(begin, end + 1, int(step) if slash else 1)
        except ValueError:
            numbers = range(0)
        if not numbers or numbers[0] < low or numbers[-1] > high:
            raise InvalidConfig(f"schedule: {part!r} is no {name} from {low} to {high}")
        found.update(numbers)
    return found
