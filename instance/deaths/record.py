"""Record the calls during which the process ended, with suspected and proven messages.

A call that ends its process leaves no exception behind, so its message is identified by the calls in flight:

1. Nothing is recorded in normal operation, so the first death names no message.
1. Calls are not recorded in normal operation, so the first death has no messages.
2. The next run records the messages in flight. If there is only one, it is proven, and earlier deaths are attributed to
   it, too. If there are several, each is processed alone from then on.
3. The function is not called again with a proven message without retries left.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Message = tuple[str, int, int, int]
"""Topic, ledger, entry, and index in the entry."""
Range = tuple[str, int, int, int, int]
"""Topic, ledger, entry, and the first and last index in the entry."""

DEATHS_MAX = 100
TRIED_MAX = 1000
"""Maximum number of remembered deaths without a culprit, and of proven messages."""
PERIODS_MAX = 5


class Call(NamedTuple):
    """A call that was in flight.

    Attributes:
        ranges: messages of the call.
        is_alone: whether no other recorded call was in flight in its process.
    """

    ranges: Sequence[Range]
    is_alone: bool


class Death(NamedTuple):
    """A death of the process that is not attributed to a message.

    Attributes:
        reason: how the process ended.
        ranges: messages in flight; None if not recorded.
    """

    reason: str
    ranges: Sequence[Range] | None


class Tried(NamedTuple):
    """How often a message has ended its process.

    Attributes:
        times: number of times.
        reason: how the process ended last.
    """

    times: int
    reason: str


@dataclass(slots=True)
class DeathRecord:
    """The deaths of one instance.

    Attributes:
        deaths: deaths without a culprit.
        tried: proven messages.
        periods: how often the process ended because recording was stopped too early.
    """

    deaths: list[Death] = field(default_factory=list)
    tried: dict[Message, Tried] = field(default_factory=dict)
    periods: int = 0

    def died(self, reason: str, calls: Sequence[Call] | None) -> Message | None:
        """Record a death, and return the message that is proven to be its cause, or None.

        Args:
            reason: how the process ended.
            calls: calls in flight; None if not recorded.
        """
        if calls is None:
            self.periods = min(self.periods + bool(self.deaths), PERIODS_MAX)
            self._add(Death(reason, None))
            return None
        if not calls:
            # No call of this function was in flight: in a shared process, another function also caused the earlier
            # deaths.
            self.deaths = [death for death in self.deaths if death.ranges is not None]
            return None
        culprit = _only_message(calls)
        if culprit is None:
            self._add(Death(reason, [one for call in calls for one in call.ranges]))
            return None
        explained = [death for death in self.deaths if death.ranges is None or _holds(death.ranges, culprit)]
        self.deaths = [death for death in self.deaths if death not in explained]
        before = self.tried.pop(culprit, Tried(0, "")).times
        self.tried[culprit] = Tried(before + len(explained) + 1, reason)
        while len(self.tried) > TRIED_MAX:
            del self.tried[next(iter(self.tried))]
        return culprit

    def _add(self, death: Death) -> None:
        self.deaths = [*self.deaths[1 - DEATHS_MAX :], death]

    def suspects(self) -> set[Message]:
        """Return the messages that must be processed alone."""
        ranges = [one for death in self.deaths for one in death.ranges or ()]
        return {*self.tried, *_messages(ranges)}

    def passed(self, seen: Collection[Message]) -> None:
        """Record that all messages that may have been in flight were reprocessed without a death.

        Args:
            seen: proven messages that were processed or given up since.
        """
        self.tried = {message: tried for message, tried in self.tried.items() if message not in seen}
        self.deaths = self.deaths[-1:]  # so that another death shows that this was too early

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        tried = [(*message, *tried) for message, tried in self.tried.items()]
        return json.dumps({"periods": self.periods, "deaths": self.deaths, "tried": tried})


def from_json(text: str) -> DeathRecord:
    """Parse a line written by `DeathRecord.to_json`; return an empty record for an invalid line."""
    try:
        values = json.loads(text)
        deaths = [
            Death(str(reason), None if ranges is None else [range_of(one) for one in ranges])
            for reason, ranges in values["deaths"]
        ]
        tried = {
            (str(topic), int(ledger), int(entry), int(index)): Tried(int(count), str(reason))
            for topic, ledger, entry, index, count, reason in values["tried"]
        }
        return DeathRecord(deaths, tried, int(values["periods"]))
    except (ValueError, TypeError, KeyError):
        return DeathRecord()


def range_of(values: Any) -> Range:
    """Parse a range from JSON.

    Raises:
        ValueError, TypeError: the values are not a range.
    """
    topic, ledger, entry, first, last = values
    return (str(topic), int(ledger), int(entry), int(first), int(last))


def ranges_of(messages: Iterable[Message]) -> list[Range]:
    """Group sorted messages into ranges of consecutive messages of an entry."""
    ranges: list[Range] = []
    for topic, ledger, entry, index in messages:
        if ranges and ranges[-1][:3] == (topic, ledger, entry):
            ranges[-1] = (topic, ledger, entry, min(ranges[-1][3], index), max(ranges[-1][4], index))
        else:
            ranges.append((topic, ledger, entry, index, index))
    return ranges


def _messages(ranges: Iterable[Range]) -> Iterable[Message]:
    return ((topic, ledger, entry, at) for topic, ledger, entry, first, last in ranges for at in range(first, last + 1))


def _holds(ranges: Sequence[Range], message: Message) -> bool:
    return any(one[:3] == message[:3] and one[3] <= message[3] <= one[4] for one in ranges)


def _only_message(calls: Sequence[Call]) -> Message | None:
    """Return the only message in flight, or None if there were several."""
    if len(calls) != 1 or not calls[0].is_alone or len(calls[0].ranges) != 1:
        return None
    topic, ledger, entry, first, last = calls[0].ranges[0]
    return (topic, ledger, entry, first) if first == last else None
