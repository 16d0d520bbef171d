"""Times of a cron expression, for the ``cron`` source, batch source discovery and runs of Spark functions.

Five fields are the same as in cron: minute, hour, day of the month, month, weekday. If both days are set, either may
match. Six fields are the same as in Spring and Pulsar, starting with the second; if both days are set, both must match.
Names, ``L``, ``MON#1``, ``?`` and macros such as ``@daily`` are supported. A time skipped by a time zone is due right
after the gap, and a repeated time is due once.
"""

from __future__ import annotations

from datetime import datetime

from ..errors import InvalidConfig

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Schedule:
    """The times of one expression in one time zone."""

    def __init__(self, expression: str, time_zone: str = "UTC", *, field: str = "schedule") -> None:
        """Parse an expression.

        Args:
            expression: cron expression with five or six fields.
            time_zone: time zone name.
            field: field name for error messages.

        Raises:
            InvalidConfig: the expression is invalid or never due, or the time zone is unknown.
        """
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # not needed in every process that imports batch sources

        from cronsim import CronSimError

        parts = _MACROS.get(expression.strip().lower(), expression).replace("?", "*").split()
        if len(parts) not in (5, 6):
            raise InvalidConfig(
                f"invalid {field} {expression!r}: expected minute hour day month weekday, optionally preceded by "
                f"seconds, but has {len(parts)} fields"
            )
        self._both_days = len(parts) == 6
        # Without seconds, it is a wall clock time, which occurs once a day even when the clock changes.
        self._text = " ".join(parts[1:] if len(parts) == 6 and parts[0] in ("0", "00") else parts)
        try:
            self.zone = ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InvalidConfig(
                f"invalid timeZone {time_zone!r}: expected a name such as UTC or Europe/Berlin"
            ) from error
        try:
            first = self.next_after(datetime.now(self.zone))
        except CronSimError as error:
            raise InvalidConfig(f"invalid {field} {expression!r}: {error}") from error
        if first is None:
            raise InvalidConfig(f"invalid {field} {expression!r}: no matching time exists")

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the next time after a moment, or None if there is none in the next fifty years."""
        from cronsim import CronSim

        times = CronSim(self._text, moment.astimezone(self.zone))
        if self._both_days:
            times.day_and = True
        for time in times:
            if time.timestamp() > moment.timestamp():  # skip the second occurrence of a repeated hour
                return time
        return None
