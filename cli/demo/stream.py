"""The demo's main step: starts the source, waits until all lines are counted, and shows progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..failure import Failure
from ..rest import Admin
from .connectors import create_source, lay_out
from .corpus import Corpus

LINES = "persistent://public/default/demo-lines"
WORDS = "persistent://public/default/demo-identifiers"
LATER = "public/default/spark-count"
"""Subscription of the function that runs after streaming."""
LOOK_EVERY_S = 0.5
STALLED_S = 60.0
SHOW_EVERY_S_IN_A_PIPE = 5.0


@dataclass
class Progress:
    """Progress of the demo.

    Attributes:
        sent: lines sent by the source and stored by the broker.
        kept: outputs of the first function, which the sink stores.
        first_s, last_s: time when the first line was sent, and when the last was counted.
        done: number of messages processed by each function.
        backlogs: number of messages not yet processed by each function.
    """

    sent: int = 0
    kept: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    done: Sequence[int] = (0, 0)
    backlogs: Sequence[int] = (0, 0)

    @property
    def lines_per_s(self) -> float:
        """Lines processed by both functions per second, from first to last."""
        return self.sent / (self.last_s - self.first_s) if self.last_s > self.first_s else 0.0


async def stream(corpus: Corpus, files: Path, admin_url: str) -> Progress:
    """Send the lines of the files, and wait until all of them are counted and stored.

    Raises:
        Failure: no progress was made for a minute.
    """
    lay_out(corpus, files)
    lines = corpus.count_lines()
    progress = Progress(first_s=time.monotonic())
    await asyncio.to_thread(create_source, Admin(admin_url), LINES, files)
    await _watch(admin_url, progress, lines)
    return progress


async def _watch(admin_url: str, progress: Progress, expected: int) -> None:
    """Show progress until all lines are stored, and the functions and the sink have acknowledged everything."""
    is_terminal = sys.stderr.isatty()
    shown_s = moved_s = time.monotonic()
    before: object = None
    rest = Admin(admin_url, timeout_s=10.0)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        lines, words = await asyncio.gather(*(asyncio.to_thread(_topic_stats, rest, topic) for topic in (LINES, WORDS)))
        progress.sent, progress.kept = lines.get("msgInCounter", 0), words.get("msgInCounter", 0)
        progress.done = (_done(lines), _done(words))
        progress.backlogs = (
            max(0, progress.sent - progress.done[0]),
            max(0, progress.kept - progress.done[1]),
        )
        now_s = time.monotonic()
        state = (progress.sent, progress.done)
        if state != before:
            before, moved_s = state, now_s
        elif now_s - moved_s > STALLED_S:
            raise Failure(f"no progress for {STALLED_S:g} s, the functions' backlogs are {progress.backlogs}")
        is_done = progress.sent >= expected and not _backlog(lines) and not _backlog(words)
        if is_terminal or is_done or now_s - shown_s >= SHOW_EVERY_S_IN_A_PIPE:
            shown_s = now_s
            _show(progress, now_s, is_terminal, is_done)
        if is_done:
            progress.last_s = now_s
            return


def _topic_stats(rest: Admin, topic: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = rest.get(f"/admin/v2/{topic.replace('://', '/')}/stats", getPreciseBacklog=True)
    except Failure as exc:
        if "HTTP 404" in exc.message:  # nothing was published on it yet
            return {}
        raise
    return answer


def _done(stats: dict[str, Any]) -> int:
    """Return the approximate number of messages acknowledged by all running functions; for display only."""
    return min((found["msgOutCounter"] - found["unackedMessages"] for found in _running(stats)), default=0)


def _backlog(stats: dict[str, Any]) -> int:
    """Return the number of unacknowledged entries of a topic; Pulsar's backlog counts entries, not messages."""
    return sum(found["msgBacklog"] for found in _running(stats))


def _running(stats: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions' subscriptions, except that of the Spark function, which runs at the end."""
    return [found for name, found in stats.get("subscriptions", {}).items() if name != LATER]


def _show(progress: Progress, now_s: float, is_terminal: bool, is_last: bool) -> None:
    elapsed_s = now_s - progress.first_s
    text = (
        f"{elapsed_s:6.1f} s  {progress.sent:>9,} lines sent  {progress.done[0] / elapsed_s:>9,.0f} messages/s"
        f"  backlog {progress.backlogs[0]:,} + {progress.backlogs[1]:,}"
    )
    sys.stderr.write(f"\r{text:<79}" + ("\n" if is_last else "") if is_terminal else f"{text}\n")
    sys.stderr.flush()
