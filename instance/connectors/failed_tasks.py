"""FailedTasks: handles a batch source's tasks that cannot be read.

A failed task is requeued at the end of the task topic with its retry count, and becomes due after a growing pause; so
others are read meanwhile, by any instance. After `TASK_TRIES` it goes to the source's dead-letter topic. A task that
ended its process is identified by the record of the task in flight, a file beside the instance's log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from ...api.connector import Record
from ...client.consumers.received import Message
from ...config.batch_source import task_subscription, task_topic
from ...wire.function_letters import EXCEPTION, TRIES
from ..acks.dead_letters import ORIGIN_MESSAGE_ID, REAL_SUBSCRIPTION, REAL_TOPIC, shown_reason
from ..core import InstanceCore
from ..deaths.careful import SUFFIX
from ..deaths.journal import CallJournal
from ..deaths.record import DeathRecord, Range
from ..publish_request import PublishRequest
from .source_letters import SourceLetters

TASK_TRIES = 6
FIRST_PAUSE_S = 1.0
PAUSE_FACTOR = 4


class Again(NamedTuple):
    """How a task is stored again.

    Attributes:
        properties: properties of its message.
        due_ms: earliest start, in milliseconds since 1970.
    """

    properties: dict[str, str]
    due_ms: int


class FailedTasks:
    """The failed tasks of one instance; on the connector's thread except `close`."""

    def __init__(self, core: InstanceCore, clock: Callable[[], float] = time.time) -> None:
        """Prepare; `open` follows.

        Args:
            core: of the instance.
            clock: seconds since 1970.
        """
        self._core = core
        self._clock = clock
        self._topic = task_topic(core.spec.details)
        self._subscription = task_subscription(core.spec.details)
        self._letters = SourceLetters(core.spec.details, core.hiding)
        self._journal = CallJournal(core.spec.log_file.with_suffix(SUFFIX))
        self._lost: dict[Range, str] = {}
        self._number: int | None = None

    def open(self) -> None:
        """Find the task during which the previous run ended."""
        with contextlib.suppress(OSError):  # the end of the process is not counted then
            found = self._journal.read()
            if found is not None and (reason := found.reason or self._core.spec.died_of):
                self._lost = {one: reason for call in found.calls or () for one in call.ranges}
            self._journal.start(DeathRecord(), is_recording=True)

    def begin(self, task: Message) -> str:
        """Record the start of a task, and return why it must not start: how it ended the process; empty if it may."""
        place = _range_of(task)
        if reason := self._lost.pop(place, ""):
            return reason
        self.end()
        self._number = self._journal.begin([place], is_alone=True)
        return ""

    def end(self) -> None:
        """Forget the current task."""
        if self._number is not None:
            self._journal.end(self._number)
            self._number = None

    def decide(self, task: Message, reason: str, *, is_counted: bool) -> Again | list[PublishRequest]:
        """Return how a failed task is requeued, or its dead letters; and report it.

        Args:
            task: the failed task.
            reason: in one line.
            is_counted: whether it counts as a try.
        """
        before = dict(task.properties)
        tries = _number(before.get(TRIES, "")) + is_counted
        what = f"task {task.message_id} failed in try {max(tries, 1)} of {TASK_TRIES}"
        if tries >= TASK_TRIES:
            self._core.user_failed(f"{what} and goes to {self._letters.topic}: {reason}")
            origin = {REAL_TOPIC: self._topic, REAL_SUBSCRIPTION: self._subscription}
            origin |= {ORIGIN_MESSAGE_ID: str(task.message_id), TRIES: str(tries)}
            return list(self._letters.requests(Record(task.data, properties=before | origin), reason))
        pause_s = FIRST_PAUSE_S * PAUSE_FACTOR ** max(tries - 1, 0)
        self._core.user_failed(f"{what} and comes again after {pause_s:g} s: {reason}")
        properties = before | {TRIES: str(tries), EXCEPTION: shown_reason(reason, self._core.hiding)}
        return Again(properties, int((self._clock() + pause_s) * 1000))

    def died(self, reason: str) -> None:
        """Record that the instance ends because of the current task."""
        self._journal.died(reason)

    def close(self) -> None:
        """Record that the instance was stopped."""
        self._journal.stop()


def _range_of(task: Message) -> Range:
    at = task.message_id
    index = max(at.batch_index, 0)
    return (task.topic, at.ledger_id, at.entry_id, index, index)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
