"""Discovery triggers of batch sources: immediately, or on a cron schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..api.connector import Trigger
from ..api.connector_config import option, read_config
from ..config.batch_source import CRON, IMMEDIATE
from ..config.schedule import Schedule


@dataclass
class _NoConfig:
    """Settings of the ``immediate`` trigger, which has none."""


class ImmediateTrigger(Trigger):
    """Discovers once after the source was created, updated, or restarted by a user."""

    is_first = True

    def open(self, config: Mapping[str, Any]) -> None:
        """Read the configuration."""
        read_config(_NoConfig, config)

    def next_after(self, moment_s: float) -> float | None:
        """Return the next discovery time after `moment_s`, or None after the last one."""
        return None


@dataclass
class CronTriggerConfig:
    """Settings of the ``cron`` trigger."""

    cron: str = option(
        "Cron expression: minute hour day month weekday, optionally preceded by seconds, as in Spring.",
        key="__CRON__",
        aliases=("cron",),
    )
    time_zone: str = option("Time zone of the schedule, such as UTC or Europe/Berlin.", default="UTC")


class CronTrigger(Trigger):
    """Discovers on a cron schedule. Times missed while the source is not running are skipped."""

    def open(self, config: Mapping[str, Any]) -> None:
        """Read the configuration."""
        given = read_config(CronTriggerConfig, config)
        self._schedule = Schedule(given.cron, given.time_zone, field="__CRON__")

    def next_after(self, moment_s: float) -> float | None:
        """Return the next discovery time after `moment_s`, or None after the last one."""
        due = self._schedule.next_after(datetime.fromtimestamp(moment_s, UTC))
        return None if due is None else due.timestamp()


BUILT_IN_TRIGGERS: Mapping[str, type[Trigger]] = {IMMEDIATE: ImmediateTrigger, CRON: CronTrigger}
