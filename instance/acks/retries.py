"""Retry failing messages: counting, pauses, and retrying in place.

Design: on a Shared subscription the broker redelivers a failing message, possibly to another instance, and its delivery
count outlives this instance. A broker counts deliveries per entry, which may hold a thousand messages. Therefore each
message is counted here, and the broker's count is used for attempts on other instances (`Tries`). Where order matters,
a message must not be redelivered after later ones. It is then retried in place while later messages wait
(`TriesInPlace`). The same applies to non-persistent topics, which never redeliver.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ...client.consumers.received import ReceivedEntry
from ...wire.functions_pb2 import SHARED, FunctionDetails
from ..batch_call import Results
from ..deaths.careful import CarefulCalls, failed
from ..function_thread import Calls, FunctionThread, Source
from ..unit import Position, Unit

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 30.0
ENTRIES_MAX = 100_000
"""Maximum number of entries with failing messages; beyond that the broker's count is used."""
SHIP_AFTER_S = 0.010  # gives earlier outputs time to be sent


def pause_s(failures: int, fixed_s: float = 0.0) -> float:
    """Return the pause before the next retry: fixed, or 0.1 s, doubled after each failure up to 30 s."""
    return fixed_s or min(FIRST_RETRY_S * 2.0 ** min(max(failures, 1) - 1, 20), LONGEST_RETRY_S)


class RetryRules(NamedTuple):
    """A function's settings for failing messages.

    Attributes:
        retries: number of retries.
        retry_s: seconds before each retry; 0 for growing pauses.
        is_ordered: whether later messages wait for retries.
    """

    retries: int
    retry_s: float
    is_ordered: bool

    def pause_s(self, failures: int) -> float:
        """Return the pause before the next retry after a number of failures."""
        return pause_s(failures, self.retry_s)


def rules_of(details: FunctionDetails) -> RetryRules | None:
    """Return the retry rules; None for unlimited retries."""
    if not details.HasField("retryDetails") or details.retryDetails.maxMessageRetries < 0:
        return None
    source = details.source
    delay_s = source.negativeAckRedeliveryDelayMs / 1000
    return RetryRules(details.retryDetails.maxMessageRetries, delay_s, source.subscriptionType != SHARED)


@dataclass(slots=True)
class _Known:
    """An entry's last redelivery count at the broker, and the failures of each of its messages."""

    redeliveries: int
    failures: dict[int, int] = field(default_factory=dict)


class Tries:
    """Failure counts of failing messages.

    When an entry with a failing message is first seen, the broker's redelivery count is taken as the number of failures
    on other instances or in earlier runs. From then on failures are counted here. If the broker's count grows beyond
    the requested redeliveries, the difference is added.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        """Create a counter without entries."""
        self._known: dict[Position, _Known] = {}
        self._entries_max = entries_max

    def __len__(self) -> int:
        return len(self._known)

    def failed(self, position: Position, redeliveries: int, indexes: Iterable[int]) -> dict[int, int]:
        """Count failures of an entry's messages, and return the total per message.

        Args:
            position: the entry's position.
            redeliveries: the broker's redelivery count.
            indexes: indexes of the failed messages; empty if the entry is redelivered for another reason.
        """
        known = self._known.pop(position, None)
        if known is None:
            known, elsewhere = _Known(redeliveries), redeliveries
            before: dict[int, int] = {}
        else:
            elsewhere = max(redeliveries - known.redeliveries - 1, 0)
            before, known.redeliveries = known.failures, redeliveries
        known.failures = {index: before.get(index, 0) + elsewhere + 1 for index in indexes}
        self._known[position] = known
        if len(self._known) > self._entries_max:
            del self._known[next(iter(self._known))]
        return known.failures

    def expect(self, position: Position, index: int, failures: int) -> None:
        """Set the number of failures that an earlier run of this instance has counted for a message."""
        # This count is separate, so the broker's earlier count is not added.
        known = self._known.setdefault(position, _Known(sys.maxsize))
        known.failures[index] = failures

    def forget(self, position: Position) -> None:
        """Remove a finished entry."""
        self._known.pop(position, None)


class TriesInPlace:
    """Retries failing messages before later ones are processed, on the function's thread."""

    def __init__(self, rules: RetryRules, careful: CarefulCalls) -> None:
        """Create a retrier.

        Args:
            rules: retry rules.
            careful: records calls after one has ended the process.
        """
        self._rules = rules
        self._careful = careful
        self._stopped = threading.Event()

    def concerns(self, unit: Unit) -> bool:
        """Return whether messages of a unit are retried in place."""
        return self.concerns_entry(unit.entries[0])

    def concerns_entry(self, entry: ReceivedEntry) -> bool:
        """Return whether messages of an entry are retried in place."""
        return self._rules.is_ordered or entry.topic.startswith("non-persistent:")

    def stop(self) -> None:
        """Stop all waits (from any thread)."""
        self._stopped.set()

    def steps(
        self,
        thread: FunctionThread,
        calls: Calls,
        source: Source,
        unit: Unit,
    ) -> Iterator[tuple[int, Results, float]]:
        """Call the function like `FunctionThread.steps`, one message at a time; only the last attempt counts."""
        careful = self._careful
        for position in range(len(unit)):
            if careful.is_on and (error := careful.given_up(unit, position)) is not None:
                yield position, failed(error), 0.0
                continue
            failures = careful.tries(unit, position)
            while not thread.is_stopping:
                call = partial(careful.call, thread) if careful.is_on else thread.call
                results, busy_s = call(calls, source, unit, position, position + 1)
                if not results.failures or failures >= self._rules.retries:
                    yield position, results, busy_s
                    break
                failures += 1
                entry, index = unit.locate(position)
                thread.failed(results.failures[0], f"message {entry.message_id}:{index} of {entry.topic}")
                thread.count(results, busy_s)
                wait_s = self._rules.pause_s(failures)
                self._stopped.wait(min(wait_s, SHIP_AFTER_S))
                yield position, Results([]), 0.0  # so that earlier outputs are shipped
                self._stopped.wait(wait_s - SHIP_AFTER_S)
            if thread.is_stopping:
                return
