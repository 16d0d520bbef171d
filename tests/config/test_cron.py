"""The five fields of cron, against a slow rule: look at every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.config.cron import MINUTE_MS, read_cron
from magnetar.errors import InvalidConfig


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "after", "due"),
    [
        ("*/5 * * * *", "2026-11-26T19:05:00", "2026-11-26T19:10"),
        ("*/5 * * * *", "2026-11-26T19:04:59.999", "2026-11-26T19:05"),
        ("0 0 1 1 *", "2026-11-26T19:05", "2027-01-01T00:00"),
        ("30 6 * * MON-FRI", "2026-11-27T06:30", "2026-11-30T06:30"),
        ("0 12 * * 7", "2026-11-26T00:00", "2026-11-29T12:00"),
        ("0 12 13 * fri", "2026-11-26T00:00", "2026-11-27T12:00"),  # either day counts
        ("0 12 */2 * 5", "2026-11-26T00:00", "2026-11-27T12:00"),  # both must fit, as in Vixie cron
        ("0 0 29 2 *", "2026-11-26T00:00", "2028-02-29T00:00"),
        ("0 0 29 FEB *", "2096-02-29T00:00", "2104-02-29T00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59"),
        ("1,2,10-14/2 3 * * *", "2026-11-26T03:10", "2026-11-26T03:12"),
    ],
)
def test_the_next_time_is_found(cron: str, after: str, due: str) -> None:
    assert read_cron(cron).next_after(ms(after)) == ms(due)


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("* * * *", "has 4 fields of five"),
        ("0 * * * * *", "has 6 fields of five"),
        ("@daily", "has 1 fields of five"),
        ("60 * * * *", "'60' is no minute: it is 0 to 59"),
        ("* 5-3 * * *", "'5-3' is no hour"),
        ("* * 0 * *", "'0' is no day of the month: it is 1 to 31"),
        ("* * * * L", "'L' is no day of the week"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("5/10 * * * *", "'5/10' is no minute"),
        (", * * * *", "'' is no minute"),
        ("٣ * * * *", "is no minute"),
        ("0 0 30 2 *", "no day is ever due"),
    ],
)
def test_what_is_no_cron_is_refused_by_name(cron: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=r"^cron: ") as refused:
        read_cron(cron)
    assert says in str(refused.value)


def numbers(low: int, high: int) -> st.SearchStrategy[set[int] | None]:
    return st.none() | st.sets(st.integers(low, high), min_size=1, max_size=5)


def text_of(values: set[int] | None) -> str:
    return "*" if values is None else ",".join(map(str, values))


@given(
    numbers(0, 59),
    numbers(0, 23),
    numbers(1, 31),
    numbers(0, 7),
    st.integers(0, ms("2100-01-01T00:00")),
)
def test_no_time_between_is_due_by_a_look_at_each_minute(
    minutes: set[int] | None, hours: set[int] | None, days: set[int] | None, weekdays: set[int] | None, after: int
) -> None:
    cron = read_cron(f"{text_of(minutes)} {text_of(hours)} {text_of(days)} * {text_of(weekdays)}")

    def is_due(at: datetime) -> bool:
        fits_month = days is None or at.day in days
        fits_week = weekdays is None or at.isoweekday() % 7 in {day % 7 for day in weekdays}
        is_either = days is not None and weekdays is not None
        fits_day = (fits_month or fits_week) if is_either else (fits_month and fits_week)
        return fits_day and (minutes is None or at.minute in minutes) and (hours is None or at.hour in hours)

    found = cron.next_after(after)
    assert found > after
    at = datetime.fromtimestamp((after // MINUTE_MS + 1) * 60, UTC)
    for _ in range(2000):  # a day and more
        if is_due(at):
            assert int(at.timestamp() * 1000) == found
            return
        at += timedelta(minutes=1)
    assert found >= int(at.timestamp() * 1000)
    assert is_due(datetime.fromtimestamp(found / 1000, UTC))
