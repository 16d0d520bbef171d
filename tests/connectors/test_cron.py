"""Cron expressions, and the source that follows one."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.api.connector_config import read_config
from magnetar.client.client import AsyncClient
from magnetar.config.schedule import Schedule
from magnetar.connectors.cron_source import CronConfig, CronSource
from magnetar.errors import InvalidConfig
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.function_topics import EARLIEST
from tests.support.instances import MakeSpec, client, make_spec, server, topic
from tests.support.servers import Server

__all__ = ["client", "make_spec", "server", "topic"]


def times(expression: str, zone: str, start: str, count: int) -> list[str]:
    schedule, moment, found = Schedule(expression, zone), datetime.fromisoformat(start), []
    for _ in range(count):
        next_time = schedule.next_after(moment)
        assert next_time is not None
        moment = next_time
        found.append(moment.isoformat())
    return found


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T00:07:00+00:00", ["2026-01-01T00:15:00+00:00", "2026-01-01T00:30:00+00:00"]),
        ("0/20 * * * * ?", "2026-01-01T00:00:05+00:00", ["2026-01-01T00:00:20+00:00", "2026-01-01T00:00:40+00:00"]),
        ("0 0 9 * * MON-FRI", "2026-01-02T10:00:00+00:00", ["2026-01-05T09:00:00+00:00", "2026-01-06T09:00:00+00:00"]),
        ("0 0 1 * 1", "2026-01-01T00:00:00+00:00", ["2026-01-05T00:00:00+00:00", "2026-01-12T00:00:00+00:00"]),
        ("0 0 0 1 * 1", "2026-01-01T00:00:00+00:00", ["2026-06-01T00:00:00+00:00", "2027-02-01T00:00:00+00:00"]),
        ("@hourly", "2026-01-01T00:00:00+00:00", ["2026-01-01T01:00:00+00:00", "2026-01-01T02:00:00+00:00"]),
        ("0 12 L * *", "2026-02-01T00:00:00+00:00", ["2026-02-28T12:00:00+00:00", "2026-03-31T12:00:00+00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00:00+00:00", ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
    ],
)
def test_times_of_an_expression(expression: str, start: str, expected: list[str]) -> None:
    assert times(expression, "UTC", start, 2) == expected


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *"])
def test_a_time_comes_once_a_day_also_when_the_clock_is_changed(expression: str) -> None:
    spring = times(expression, "Europe/Berlin", "2026-03-28T12:00:00+01:00", 2)
    assert spring == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    autumn = times(expression, "Europe/Berlin", "2026-10-24T12:00:00+02:00", 2)
    assert autumn == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    again = times(expression, "Europe/Berlin", "2026-10-25T02:10:00+01:00", 1)  # in the hour that comes twice
    assert again == ["2026-10-26T02:30:00+01:00"]


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"schedule": "* * *"}, "invalid schedule '* * *': expected minute hour day month weekday"),
        ({"schedule": "61 * * * *"}, "invalid schedule '61 * * * *': Bad minute"),
        ({"schedule": "0 0 30 2 *"}, "invalid schedule '0 0 30 2 *': Bad day-of-month"),
        ({"schedule": "0 0 0 31 11 MON"}, "invalid schedule '0 0 0 31 11 MON'"),
        ({"schedule": "* * * * *", "timeZone": "Mars"}, "invalid timeZone 'Mars': expected a name such as UTC"),
        ({"schedule": "* * * * *", "timeZone": "Europe"}, "invalid timeZone 'Europe': expected a name such as UTC"),
        ({"schedule": "* * * * *", "timeZone": "../x"}, "invalid timeZone '../x': expected a name such as UTC"),
        ({"schedule": "* * * * *", "missed": "some"}, "missed must be one of skip, last, all"),
        ({}, "schedule"),
    ],
)
def test_bad_configs_are_refused(configs: dict[str, object], error: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(error)):
        CronSource().check(read_config(CronConfig, configs))


def opened(position: str | None, **configs: Any) -> CronSource:
    source = CronSource()
    config = read_config(CronConfig, {"schedule": "* * * * *"} | configs)
    context: Any = SimpleNamespace(position=position, instance_id=0, logger=logging.getLogger("cron"))
    source.open(config, context)
    return source


NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("missed", "ago", "expected"),
    [
        ("skip", timedelta(hours=2), ["12:00:00"]),  # half a minute late is not missed
        ("last", timedelta(hours=2), ["12:00:00"]),
        ("all", timedelta(minutes=3), ["11:58:00", "11:59:00", "12:00:00"]),
        ("skip", timedelta(seconds=20), []),
    ],
)
def test_times_that_were_missed(missed: str, ago: timedelta, expected: list[str]) -> None:
    source = opened((NOW - ago).isoformat(), missed=missed)
    found = source.due_at(NOW)
    assert [json.loads(record.value)["due"][11:19] for record in found] == expected
    assert source.due_at(NOW) == []


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("last", ["12:00:00"])])
def test_missed_times_beyond_the_grace(missed: str, expected: list[str]) -> None:
    source = opened((NOW - timedelta(hours=2)).isoformat(), missed=missed, graceSeconds=10)
    assert [json.loads(record.value)["due"][11:19] for record in source.due_at(NOW)] == expected


def test_all_missed_times_come_in_batches_and_the_same_again_from_a_position() -> None:
    position = (NOW - timedelta(days=2)).isoformat()
    source = opened(position, missed="all", key="k")
    first = source.due_at(NOW)
    kept = source.snapshot()
    rest = source.due_at(NOW) + source.due_at(NOW)
    assert len(first) == 1000
    assert len(first + rest) == 2 * 24 * 60
    assert opened(position, missed="all", key="k").due_at(NOW) == first
    assert opened(kept, missed="all", key="k").due_at(NOW)[:3] == rest[:3]
    assert first[0].key == "k"
    assert first[0].event_time_ms == int(datetime.fromisoformat(json.loads(first[0].value)["due"]).timestamp() * 1000)


def test_only_times_that_are_all_made_up_for_are_effectively_once() -> None:
    source = CronSource()
    assert source.not_effectively_once(CronConfig("* * * * *", missed="all")) == ""
    assert "missed skip" in source.not_effectively_once(CronConfig("* * * * *"))


async def test_cron_source_sends_records(client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str) -> None:
    runtime = ThreadRuntime(server.service_url)
    source = {"builtin": "cron", "configs": json.dumps({"schedule": "* * * * * ?", "missed": "all"})}
    instances = [
        await runtime.start(
            make_spec(
                "", instance_id=number, parallelism=2, source=source, componentType=records.FunctionDetails.SOURCE
            )
        )
        for number in (0, 1)
    ]
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    due = [datetime.fromisoformat(json.loads((await consumer.receive(30)).data)["due"]) for _ in range(3)]
    assert [(after - before).total_seconds() for before, after in pairwise(due)] == [1, 1]
    await consumer.close()
    for instance in instances:
        await instance.stop(10)
    await runtime.close()
