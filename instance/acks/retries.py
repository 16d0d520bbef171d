"""How often a failing message is tried again, and when: counting, pauses, and trying in place.

Design: on a Shared subscription a failing message comes again from the broker, so that it may go to another instance
and its number of deliveries outlives this one. A broker counts the deliveries of an entry, which may hold a thousand
messages, so each message is counted here, and the broker's number tells what others have tried: `Tries` has the rule.
Where the order is kept a message must not come back behind others. It is tried again on the spot then, and what is
behind it waits (`TriesInPlace`); so it is where nothing can come again, on a topic that is not persistent.
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
"""Entries with failing messages that are remembered at most; of one that is forgotten the broker's number counts."""
SHIP_AFTER_S = 0.010  # what was made before goes out first


def pause_s(failures: int, fixed_s: float = 0.0) -> float:
    """Return how long a message waits that failed so often: 0.1 s, 0.2 s and so on to 30 s, or a fixed time."""
    return fixed_s or min(FIRST_RETRY_S * 2.0 ** min(max(failures, 1) - 1, 20), LONGEST_RETRY_S)


class RetryRules(NamedTuple):
    """What a function's record says of messages that fail.

    Attributes:
        retries: how often one is tried again.
        retry_s: seconds before each of these tries; 0 for pauses that grow.
        is_ordered: whether those behind it wait.
    """

    retries: int
    retry_s: float
    is_ordered: bool

    def pause_s(self, failures: int) -> float:
        """Return how long a message waits that failed so often."""
        return pause_s(failures, self.retry_s)


def rules_of(details: FunctionDetails) -> RetryRules | None:
    """Return how often messages are tried again; None for without end."""
    if not details.HasField("retryDetails") or details.retryDetails.maxMessageRetries < 0:
        return None
    source = details.source
    delay_s = source.negativeAckRedeliveryDelayMs / 1000
    return RetryRules(details.retryDetails.maxMessageRetries, delay_s, source.subscriptionType != SHARED)


@dataclass(slots=True)
class _Known:
    """What is known of an entry: the broker's number when it last came, and how often each of its messages failed."""

    redeliveries: int
    failures: dict[int, int] = field(default_factory=dict)


class Tries:
    """How often messages failed.

    The first time that an entry with a failing message is seen, the broker's number of redeliveries is how often it
    failed elsewhere, or before this instance began. From then on it is what was counted here, and whatever the broker's
    number has grown by beyond the one that we have asked for.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        """Know nothing yet."""
        self._known: dict[Position, _Known] = {}
        self._entries_max = entries_max

    def __len__(self) -> int:
        return len(self._known)

    def failed(self, position: Position, redeliveries: int, indexes: Iterable[int]) -> dict[int, int]:
        """Count failures of messages of an entry, and return how often each of them has failed by now.

        Args:
            position: of the entry.
            redeliveries: how often the broker has delivered it again.
            indexes: of the messages that failed; none if it comes again for another reason.
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
        """Begin with a number of failures of a message that an earlier run of this instance has counted."""
        # Counted by itself, so what the broker has counted meanwhile is not added.
        known = self._known.setdefault(position, _Known(sys.maxsize))
        known.failures[index] = failures

    def forget(self, position: Position) -> None:
        """Forget an entry that is done."""
        self._known.pop(position, None)


class TriesInPlace:
    """Tries failing messages again before those behind them, on the function's thread."""

    def __init__(self, rules: RetryRules, careful: CarefulCalls) -> None:
        """Prepare.

        Args:
            rules: how often messages are tried.
            careful: records calls.
        """
        self._rules = rules
        self._careful = careful
        self._stopped = threading.Event()

    def concerns(self, unit: Unit) -> bool:
        """Return whether messages of a unit are tried again in place."""
        return self.concerns_entry(unit.entries[0])

    def concerns_entry(self, entry: ReceivedEntry) -> bool:
        """Return whether messages of an entry are tried again in place."""
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
        """Call the function as `FunctionThread.steps`, one message at a time; the last try of each is what counts."""
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
                yield position, Results([]), 0.0  # so that what was made before is shipped
                self._stopped.wait(wait_s - SHIP_AFTER_S)
            if thread.is_stopping:
                return
