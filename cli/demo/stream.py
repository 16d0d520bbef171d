"""The work of the demo: sends lines, follows the counting, and shows progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...client.client import AsyncClient
from ...client.config import ProducerConfig
from ...client.producers.outgoing import encode_entry
from ...wire.message_id import MessageId
from ...wire.pulsar_api_pb2 import SingleMessageMetadata
from ..failure import Failure
from ..rest import Admin
from .corpus import Corpus

LINES = "persistent://public/default/demo-lines"
WORDS = "persistent://public/default/demo-identifiers"
LATER = "public/default/spark-count"
"""The subscription of the function that works when all is streamed."""
LINES_PER_ENTRY = 1000
MAX_PENDING_MESSAGES = 20_000
LOOK_EVERY_S = 0.5
STALLED_S = 60.0
SHOW_EVERY_S_IN_A_PIPE = 5.0


@dataclass
class Progress:
    """Progress of the demo.

    Attributes:
        sent: lines whose receipts came.
        first_s, last_s: when the first line was sent, and when the last was counted.
        done: messages that each function has done.
        backlogs: messages that each function has not yet done.
        is_all_sent: whether every line is stored.
    """

    sent: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    done: Sequence[int] = (0, 0)
    backlogs: Sequence[int] = (0, 0)
    is_all_sent: bool = False

    @property
    def lines_per_s(self) -> float:
        """Lines that went through both functions, per second from first to last."""
        return self.sent / (self.last_s - self.first_s) if self.last_s > self.first_s else 0.0


async def stream(corpus: Corpus, service_url: str, admin_url: str) -> Progress:
    """Send the corpus, and return when everything that went in was counted.

    Raises:
        Failure: nothing moved for a minute.
    """
    progress = Progress(first_s=time.monotonic())
    async with AsyncClient(service_url) as client, asyncio.TaskGroup() as group:
        group.create_task(_send(client, corpus, progress))
        await _watch(admin_url, progress)
    return progress


async def _send(client: AsyncClient, corpus: Corpus, progress: Progress) -> None:
    """Send each line as a message with its file's name as key; the lines of a file make up whole entries."""
    producer = await client.create_producer(LINES, ProducerConfig(max_pending_messages=MAX_PENDING_MESSAGES))
    receipts: deque[tuple[int, asyncio.Future[MessageId]]] = deque()
    for file in corpus:
        header = SingleMessageMetadata(partition_key=file.name)  # one for all lines: encoding only sets its size field
        for start in range(0, len(file.lines), LINES_PER_ENTRY):
            lines = file.lines[start : start + LINES_PER_ENTRY]
            entry = encode_entry(lines, [header] * len(lines), key=file.name)
            await producer.ready()
            receipts.append((len(lines), producer.send_entry(entry)))
        while receipts and receipts[0][1].done():
            progress.sent += _stored(receipts)
    while receipts:
        await receipts[0][1]
        progress.sent += _stored(receipts)
    await producer.close()
    progress.is_all_sent = True


def _stored(receipts: deque[tuple[int, asyncio.Future[MessageId]]]) -> int:
    """Take the oldest receipt and return its number of lines; raises what its entry failed with."""
    number, receipt = receipts.popleft()
    receipt.result()
    return number


async def _watch(admin_url: str, progress: Progress) -> None:
    """Show progress until both functions have acknowledged everything."""
    is_terminal = sys.stderr.isatty()
    shown_s = moved_s = time.monotonic()
    before: object = None
    rest = Admin(admin_url, timeout_s=10.0)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        lines, words = await asyncio.gather(*(asyncio.to_thread(_topic_stats, rest, topic) for topic in (LINES, WORDS)))
        progress.done = (_done(lines), _done(words))
        progress.backlogs = (
            max(0, progress.sent - progress.done[0]),
            max(0, words.get("msgInCounter", 0) - progress.done[1]),
        )
        now_s = time.monotonic()
        state = (progress.sent, progress.done)
        if state != before:
            before, moved_s = state, now_s
        elif now_s - moved_s > STALLED_S:
            raise Failure(f"nothing moved for {STALLED_S:g} s, the functions' backlogs are {progress.backlogs}")
        is_done = progress.is_all_sent and not _backlog(lines) and not _backlog(words)
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
        if "HTTP 404" in exc.message:  # nothing was published there yet
            return {}
        raise
    return answer


def _done(stats: dict[str, Any]) -> int:
    """Return how many messages of a topic its function has acknowledged; good enough to show, not to decide by."""
    return sum(found["msgOutCounter"] - found["unackedMessages"] for found in _running(stats))


def _backlog(stats: dict[str, Any]) -> int:
    """Return how many entries of a topic are not acknowledged: what Pulsar calls the backlog counts entries."""
    return sum(found["msgBacklog"] for found in _running(stats))


def _running(stats: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the subscriptions of functions that run now; that of the Spark function waits for the end."""
    return [found for name, found in stats.get("subscriptions", {}).items() if name != LATER]


def _show(progress: Progress, now_s: float, is_terminal: bool, is_last: bool) -> None:
    elapsed_s = now_s - progress.first_s
    text = (
        f"{elapsed_s:6.1f} s  {progress.sent:>9,} lines sent  {progress.done[0] / elapsed_s:>9,.0f} messages/s"
        f"  backlog {progress.backlogs[0]:,} + {progress.backlogs[1]:,}"
    )
    sys.stderr.write(f"\r{text:<79}" + ("\n" if is_last else "") if is_terminal else f"{text}\n")
    sys.stderr.flush()
