"""Decides when the next automatic run of a Spark function is due, without access to a clock, store or broker.

    cron        at each matching time, in UTC; times missed during a run or an outage are combined into one run
    backlog     once the inputs have enough entries, checked every `CHECK_MS`
    continuous  an interval after the last start, or immediately after a longer run, if the inputs have any entries

A failed run is retried after two seconds, then four, and so on up to `RETRY_MAX_MS`; with cron, at the next matching
time if that is sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...config.conversion import runtime_options
from ...config.cron import Cron, read_cron
from ...wire.functions_pb2 import FunctionDetails
from .run_history import EndedRun

CHECK_MS = 5_000
RETRY_MAX_MS = 600_000
_DOUBLINGS = 10
UNKNOWN = -1
"""Unknown backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Trigger of automatic runs; exactly one attribute is set.

    Attributes:
        cron: cron expression.
        entries: minimum backlog.
        interval_ms: interval between runs.
    """

    cron: Cron | None = None
    entries: int = 0
    interval_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Past runs of a function; times are in milliseconds since 1970, 0 for never.

    Attributes:
        served_ms: time up to which cron triggers have been served.
        started_ms: start time of the latest run.
        ended_ms: end time of the latest run.
        failures: number of consecutive failed runs, up to the latest.
        looked_ms: time of the last backlog check that did not trigger a run.
    """

    served_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    failures: int = 0
    looked_ms: int = 0


def trigger_of(details: FunctionDetails) -> Trigger | None:
    """Return the trigger of a function, or None if its runs are only started manually."""
    options = runtime_options(details.customRuntimeOptions)
    if cron := options.get("cron"):
        return Trigger(cron=read_cron(cron))
    if entries := options.get("backlog_trigger"):
        return Trigger(entries=entries)
    if interval_ms := options.get("continuous_interval_ms"):
        return Trigger(interval_ms=interval_ms)
    return None


def cron_of(details: FunctionDetails) -> str:
    """Return a function's cron expression, or an empty string."""
    return runtime_options(details.customRuntimeOptions).get("cron") or ""


def past_of(runs: Sequence[EndedRun], served_ms: int, looked_ms: int) -> Past:
    """Return the past of a function from its finished runs, newest first."""
    failures = 0
    for run in runs:
        if run.stage != "failed":
            break
        failures += 1
    newest = runs[0] if runs else EndedRun(run_id="", stage="done", started_ms=0, ended_ms=0)
    return Past(
        served_ms=served_ms,
        started_ms=newest.started_ms,
        ended_ms=newest.ended_ms,
        failures=failures,
        looked_ms=looked_ms,
    )


def retry_after_ms(failures: int) -> int:
    """Return the retry delay after a number of failures."""
    return min(1000 << min(failures, _DOUBLINGS), RETRY_MAX_MS)


def due_ms(trigger: Trigger, past: Past) -> int:
    """Return the time at which the next run or backlog check is due, which may be in the past."""
    retry_ms = past.ended_ms + retry_after_ms(past.failures)
    if trigger.cron is not None:
        regular_ms = trigger.cron.next_after(past.served_ms)
        return min(regular_ms, retry_ms) if past.failures else regular_ms
    if past.failures:
        return retry_ms
    if trigger.entries:
        return max(past.looked_ms, past.ended_ms) + CHECK_MS
    return max(past.started_ms + trigger.interval_ms, past.ended_ms, past.looked_ms + trigger.interval_ms)


def asks_for_backlog(trigger: Trigger, past: Past) -> bool:
    """Return whether a due run depends on the backlog."""
    return trigger.cron is None and not past.failures


def begins(trigger: Trigger, past: Past, backlog: int) -> bool:
    """Return whether a due run starts.

    Args:
        trigger: trigger of the function.
        past: history of the function.
        backlog: number of entries, or `UNKNOWN`.
    """
    if not asks_for_backlog(trigger, past):
        return True
    if trigger.entries:
        return backlog >= trigger.entries
    return backlog != 0  # an empty run is cheap, while a skipped one would never be made up for
