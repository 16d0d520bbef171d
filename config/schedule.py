"""Times of a cron expression: of the source ``cron``, of the discovery of batch sources, of runs of Spark functions.

Five fields are cron's: minute, hour, day of the month, month, weekday; where both days are given one is enough. Six are
Spring's, which Pulsar has, with the second in front; there both days must fit. Names, ``L``, ``MON#1``, ``?`` and
``@daily`` and its like are understood. A time that a time zone leaves out is made up for right after the gap; one that
it has twice comes once.
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
            expression: of five or six fields.
            time_zone: name of the time zone.
            field: field name for error messages.

        Raises:
            InvalidConfig: the expression is invalid or never due, or the time zone is unknown.
        """
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # neither is for every process that knows of batch sources

        from cronsim import CronSimError

        parts = _MACROS.get(expression.strip().lower(), expression).replace("?", "*").split()
        if len(parts) not in (5, 6):
            raise InvalidConfig(
                f"{field} {expression!r} has {len(parts)} fields; it is minute hour day month weekday, or the same with"
                " the second in front"
            )
        self._both_days = len(parts) == 6
        # Without the second it is a time of the clock, which comes once a day, also when the clock is changed.
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
            raise InvalidConfig(f"{field} {expression!r} is not a valid cron expression: {error}") from error
        if first is None:
            raise InvalidConfig(f"{field} {expression!r} never comes true")

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the next time after a moment, or None if there is none in the next fifty years."""
        from cronsim import CronSim

        times = CronSim(self._text, moment.astimezone(self.zone))
        if self._both_days:
            times.day_and = True
        for time in times:
            if time.timestamp() > moment.timestamp():  # not one of the hour that comes a second time
                return time
        return None
