"""Times of day by the five fields of cron: minute, hour, day of the month, month, day of the week; in UTC.

Source: crontab(5) of Vixie cron: ``*``, numbers, ranges ``a-b``, steps ``/n`` behind either, lists by commas, names of
months and weekdays, 0 or 7 for Sunday. Where both fields of days are restricted, that is begin with no ``*``, a day
that fits one counts. Left out, and refused: seconds, years, ``@daily`` and the signs ``L``, ``W``, ``#``, ``?``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from ..errors import InvalidConfig

MINUTE_MS = 60_000
_DAYS_SEARCHED = 9 * 366
"""The 29th of February comes again within eight years, whatever the century."""
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """When something is due.

    Attributes:
        minutes: of an hour, rising.
        hours: of a day, rising.
        days: of a month.
        months: of a year, 1 to 12.
        weekdays: 0 to 6, from Sunday on.
        is_either_day: a day of ``days`` or of ``weekdays`` counts; else it must be one of both.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either_day: bool

    def next_after(self, time_ms: int) -> int:
        """Return the first time that is due after another, both in ms since 1970.

        Raises:
            InvalidConfig: no such day comes, such as the 30th of February.
        """
        begin = datetime.fromtimestamp((time_ms // MINUTE_MS + 1) * 60, UTC)
        day, first = begin.date(), (begin.hour, begin.minute)
        for _ in range(_DAYS_SEARCHED):
            if self._has(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        if (hour, minute) >= first:
                            at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                            return int(at.timestamp()) * 1000
            day, first = day + timedelta(days=1), (0, 0)
        raise InvalidConfig("cron: no day is ever due, by day of the month and month; correct the two")

    def _has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        fits_month, fits_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (fits_month or fits_week) if self.is_either_day else (fits_month and fits_week)


def read_cron(text: str) -> Cron:
    """Return what five fields say.

    Raises:
        InvalidConfig: it is none, or never due.
    """
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise InvalidConfig(
            f"cron: {text[:60]!a} has {len(parts)} fields of five: minute, hour, day of the month, month, day of the"
            ' week, such as "*/5 * * * *", in UTC'
        )
    minutes, hours, days, months, weekdays = (_read(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    found = Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(number % 7 for number in weekdays),
        is_either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )
    found.next_after(0)
    return found


def _read(part: str, name: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for item in part.split(","):
        values, has_step, step_text = item.partition("/")
        begin_text, is_range, end_text = values.partition("-")
        try:
            step = _number(step_text, {}) if has_step else 1
            if values == "*":
                begin, end = low, high
            else:
                begin = _number(begin_text, names)
                end = _number(end_text, names) if is_range else begin
            if has_step and not is_range and values != "*":
                raise ValueError
        except ValueError:
            raise InvalidConfig(
                f"cron: {item[:40]!a} is no {name}; give *, a number from {low} to {high}, a range a-b, or one of these"
                " with a step, */n or a-b/n"
            ) from None
        if not (low <= begin <= end <= high and step >= 1):
            raise InvalidConfig(
                f"cron: {item[:40]!a} is no {name}: it is {low} to {high}, from the lower to the higher"
            )
        found.update(range(begin, end + 1, step))
    return found


def _number(text: str, names: dict[str, int]) -> int:
    if text.upper() in names:
        return names[text.upper()]
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        raise ValueError(text)
    return int(text)
