"""When the next automatic run of a Spark function is due: decisions without clock, store or broker.

    cron        at each of its times, in UTC; times that pass during a run, or while nothing runs, are one run
    backlog     as soon as the inputs have enough entries, checked every `CHECK_MS`
    continuous  an interval after the last start, or at once if the run took longer, if the inputs have any entries

A failed run is retried after two seconds, then four and so on, up to `RETRY_MAX_MS`; with cron at its next time if that
is sooner.
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
"""An unknown backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What triggers runs; exactly one of these is set.

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
    """The history; times in ms since 1970, 0 for never.

    Attributes:
        served_ms: time up to which cron triggers are served.
        started_ms: start of the latest run.
        ended_ms: end of the latest run.
        failures: number of failed runs in a row, up to the latest.
        looked_ms: last check of the backlog that triggered no run.
    """

    served_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    failures: int = 0
    looked_ms: int = 0


def trigger_of(details: FunctionDetails) -> Trigger | None:
    """Return the trigger of a function, None if runs are only started manually."""
    options = runtime_options(details.customRuntimeOptions)
    if cron := options.get("cron"):
        return Trigger(cron=read_cron(cron))
    if entries := options.get("backlog_trigger"):
        return Trigger(entries=entries)
    if interval_ms := options.get("continuous_interval_ms"):
        return Trigger(interval_ms=interval_ms)
    return None


def cron_of(details: FunctionDetails) -> str:
    """Return the text of a function's cron expression, empty if it has none."""
    return runtime_options(details.customRuntimeOptions).get("cron") or ""


def past_of(runs: Sequence[EndedRun], served_ms: int, looked_ms: int) -> Past:
    """Return the history from ended runs, newest first."""
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
    """Return the pause after a number of failures."""
    return min(1000 << min(failures, _DOUBLINGS), RETRY_MAX_MS)


def due_ms(trigger: Trigger, past: Past) -> int:
    """Return when the next run or backlog check is due; may be long ago."""
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
    """Return whether a due run begins.

    Args:
        trigger: trigger of the function.
        past: history of the function.
        backlog: entries, or `UNKNOWN`.
    """
    if not asks_for_backlog(trigger, past):
        return True
    if trigger.entries:
        return backlog >= trigger.entries
    return backlog != 0  # a run over nothing is cheap, but a skipped one is never made up for
