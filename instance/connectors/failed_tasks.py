"""Handle tasks of a batch source that cannot be read.

A failed task is requeued at the end of the task topic with its retry count, and becomes due after a growing pause.
Meanwhile any instance reads other tasks. After `TASK_TRIES` attempts it goes to the source's dead-letter topic. A task
that ended its process is identified by the record of the task in flight, a file next to the instance's log.
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
    """How a failed task is requeued.

    Attributes:
        properties: properties of the task's message.
        due_ms: earliest time to read it, in milliseconds since 1970.
    """

    properties: dict[str, str]
    due_ms: int


class FailedTasks:
    """Handles the failed tasks of one instance, on the connector's thread except for `close`."""

    def __init__(self, core: InstanceCore, clock: Callable[[], float] = time.time) -> None:
        """Create a handler; call `open` before use.

        Args:
            core: the instance's core.
            clock: returns seconds since 1970.
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
        """Load which task ended the previous run."""
        with contextlib.suppress(OSError):  # the previous death is then not counted
            found = self._journal.read()
            if found is not None and (reason := found.reason or self._core.spec.died_of):
                self._lost = {one: reason for call in found.calls or () for one in call.ranges}
            self._journal.start(DeathRecord(), is_recording=True)

    def begin(self, task: Message) -> str:
        """Record the start of a task; return how it ended the previous process, or "" if it may start."""
        place = _range_of(task)
        if reason := self._lost.pop(place, ""):
            return reason
        self.end()
        self._number = self._journal.begin([place], is_alone=True)
        return ""

    def end(self) -> None:
        """Record the end of the current task."""
        if self._number is not None:
            self._journal.end(self._number)
            self._number = None

    def decide(self, task: Message, reason: str, *, is_counted: bool) -> Again | list[PublishRequest]:
        """Log a failed task, and return how it is requeued or its dead letters.

        Args:
            task: the failed task.
            reason: reason on one line.
            is_counted: whether the failure counts as an attempt.
        """
        before = dict(task.properties)
        tries = _number(before.get(TRIES, "")) + is_counted
        what = f"task {task.message_id} failed in attempt {max(tries, 1)} of {TASK_TRIES}"
        if tries >= TASK_TRIES:
            self._core.user_failed(f"{what}, sending it to {self._letters.topic}: {reason}")
            origin = {REAL_TOPIC: self._topic, REAL_SUBSCRIPTION: self._subscription}
            origin |= {ORIGIN_MESSAGE_ID: str(task.message_id), TRIES: str(tries)}
            return list(self._letters.requests(Record(task.data, properties=before | origin), reason))
        pause_s = FIRST_PAUSE_S * PAUSE_FACTOR ** max(tries - 1, 0)
        self._core.user_failed(f"{what}, retrying in {pause_s:g} s: {reason}")
        properties = before | {TRIES: str(tries), EXCEPTION: shown_reason(reason, self._core.hiding)}
        return Again(properties, int((self._clock() + pause_s) * 1000))

    def died(self, reason: str) -> None:
        """Record that the current task ends the instance."""
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
