"""Write records to a sink, and decide the outcome of each: written, rejected, retried or lost.

Design: records are passed batch by batch, in order. Each outcome is recorded by position and determines the next batch:

- A rejected record is retried alone up to `Rules.retries` times, with growing pauses. In order, earlier records are
  written first and later ones wait. Otherwise the record is set aside until it is due, and others continue.
- A batch that fails with any other exception (a bug, or an error that the connector does not translate) is retried
  record by record to find the culprit. With retries configured, that record counts as rejected; otherwise the instance
  ends and names it, because only rejected records go to the dead-letter topic.
- With at most once, records of a failed call are lost, because they may have been written.

Invariant: every position ends up in exactly one of written, refused, lost and later, or the call raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...api.connector import Batching, Record, RecordRefused, Sink
from ...errors import MagnetarError, StateUnavailable
from ...tasks import Backoff
from ..acks.dead_letters import text_of
from ..acks.retries import FIRST_RETRY_S, LONGEST_RETRY_S, pause_s
from ..gate import runs_within
from ..stats import format_error
from .records import Placed
from .session import AWAY, ConnectorSession, OpenFailed, Unwanted


class WriteFailed(MagnetarError):
    """The sink failed at a record with an unspecific error; the instance ends."""


class Rules(NamedTuple):
    """How records are written and retried.

    Attributes:
        in_order: whether a record waits for earlier ones.
        at_most_once: whether a failed call is never repeated.
        retries: maximum number of retries of a rejected record.
        retry_s: seconds between retries; 0 for pauses that grow from `FIRST_RETRY_S` to `LONGEST_RETRY_S`.
    """

    in_order: bool = False
    at_most_once: bool = False
    retries: int = 0
    retry_s: float = 0.0

    def pause_s(self, refusals: int) -> float:
        """Return the pause before the next retry after a number of rejections."""
        return pause_s(refusals, self.retry_s)


class Later(NamedTuple):
    """A rejected record to be retried.

    Attributes:
        placed: record to retry.
        size: message size in bytes.
        refusals: number of rejections so far.
        error: last error of the sink.
        due_s: time of the retry, by the writer's clock.
    """

    placed: Placed
    size: int
    refusals: int
    error: Exception
    due_s: float


@dataclass(slots=True)
class Outcome:
    """The outcome of records, by position.

    Attributes:
        written: positions of durable records.
        refused: records that will never be accepted, with the reason.
        lost: records that may not have been written and are not retried, with the reason.
        later: records to be retried.
    """

    written: list[int] = field(default_factory=list)
    refused: list[tuple[int, BaseException]] = field(default_factory=list)
    lost: list[tuple[int, Exception]] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)


class RecordWriter:
    """Writes records to a sink, on its thread."""

    def __init__(
        self,
        sink: Sink,
        session: ConnectorSession,
        batching: Batching,
        rules: Rules,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a writer for a sink.

        Args:
            sink: sink to write to.
            session: calls the sink.
            batching: batch limits of the sink.
            rules: how records are written and retried.
            clock: monotonic clock, in seconds.
        """
        self._sink = sink
        self._session = session
        self._batching = batching
        self._rules = rules
        self._clock = clock
        self._has_batches = type(sink).write_batch is not Sink.write_batch
        self._due_s: dict[int, float] = {}  # due times of records that wait in order, by position
        self._backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)  # for failed calls with at most once

    def write(self, records: Sequence[Placed], sizes: Sequence[int], outcome: Outcome) -> None:
        """Write records in order; outcomes are recorded in ``outcome`` even if this raises.

        Args:
            records: records to write; may be empty.
            sizes: message sizes in bytes.
            outcome: empty outcome to fill.

        Raises:
            InstanceStopping: the instance is stopping; records without an outcome are not written.
            Unwanted: the records are no longer wanted; records without an outcome are not written.
            WriteFailed: the sink failed at the first record without an outcome.
            OpenFailed: the sink cannot be opened.
        """
        for run in runs_within(sizes, self._batching.records if self._has_batches else 1, self._batching.size):
            self._due_s.clear()
            self._write_run(list(zip(records[run], sizes[run], strict=True)), {}, outcome)

    def write_again(self, later: Later, outcome: Outcome) -> None:
        """Retry a rejected record; raises the same errors as `write`."""
        position = later.placed.position
        self._write_run([(later.placed, later.size)], {position: later.refusals}, outcome)

    def _write_run(self, left: list[tuple[Placed, int]], refusals: dict[int, int], outcome: Outcome) -> None:
        alone: set[int] = set()  # positions of a batch that failed as a whole
        while left:
            if (due_s := self._due_s.pop(left[0][0].position, None)) is not None:
                self._session.pause(due_s - self._clock())
            count = self._count(left, refusals if self._rules.in_order else {}, alone)
            positions = [placed.position for placed, _ in left[:count]]
            try:
                self._call([placed.record for placed, _ in left[:count]])
            except RecordRefused as error:
                index = min(max(error.index, 0), count - 1)
                written = min(max(error.written, 0), index)
                outcome.written += positions[:written]
                self._refused(left, index, error, refusals, outcome)
                del left[:written]  # those before the rejected record, which `_refused` may have removed
                continue
            except (Unwanted, OpenFailed, StateUnavailable):
                raise  # the error does not concern a single record
            except AWAY as error:  # at most once; otherwise the session retries
                outcome.lost += [(position, error) for position in positions]
                self._session.wait(self._backoff.next_s())
            except Exception as error:
                if count > 1:
                    alone.update(positions)
                    continue
                if not self._rules.retries:
                    record = left[0][0].record
                    raise WriteFailed(_why(record, error)) from error
                self._refused(left, 0, error, refusals, outcome)
                continue
            else:
                outcome.written += positions
                self._backoff.reset()
            del left[:count]

    def _count(self, left: Sequence[tuple[Placed, int]], refusals: dict[int, int], alone: set[int]) -> int:
        """Return the number of records for the next call."""
        if not self._has_batches or left[0][0].position in alone:
            return 1
        for index, (placed, _) in enumerate(left):
            if placed.position in refusals:
                return index or 1
        return len(left)

    def _call(self, records: list[Record]) -> None:
        method, argument = (self._sink.write_batch, records) if self._has_batches else (self._sink.write, records[0])
        if self._rules.at_most_once:
            self._session.call_once(method, argument)
        else:
            self._session.call(method, argument)

    def _refused(
        self,
        left: list[tuple[Placed, int]],
        index: int,
        error: Exception,
        refusals: dict[int, int],
        outcome: Outcome,
    ) -> None:
        """Handle a rejection: dead-letter the record, set it aside, or retry it in place after a pause."""
        placed, size = left[index]
        count = refusals[placed.position] = refusals.get(placed.position, 0) + 1
        if count > self._rules.retries:
            del left[index]
            outcome.refused.append((placed.position, error))
            return
        pause_s = self._rules.pause_s(count)
        if not self._rules.in_order:
            del left[index]
            outcome.later.append(Later(placed, size, count, error, self._clock() + pause_s))
        else:
            self._due_s[placed.position] = self._clock() + pause_s


def _why(record: Record, error: Exception) -> str:
    return (
        f"the sink failed at message {record.message_id} of {record.topic}: {text_of(error)}; it is redelivered at each"
        " start. Fix the sink, or set maxMessageRetries to send the message to the dead-letter topic after that many"
        f" retries\n{format_error(error)}"
    )
