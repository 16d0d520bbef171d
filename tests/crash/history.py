"""Record which messages and acknowledgements of a topic must survive a crash.

Design: a *session* is the time between two starts of the broker. A producer's receipt is binding permanently. An
acknowledgement's receipt is binding from the next session on: within a session, a copy may already have been in flight
when the acknowledgement was confirmed, which is correct.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from magnetar.wire.message_id import MessageId

Place = tuple[int, int, int]  # ledger, entry, index in the batch


def place(message_id: MessageId) -> Place:
    return message_id.ledger_id, message_id.entry_id, message_id.batch_index


@dataclass
class History:
    """The observations of one topic; checks raise AssertionError with the first few violations."""

    session: int = 0
    sent: int = 0
    receipts: dict[int, Place] = field(default_factory=dict)
    acknowledged: set[Place] = field(default_factory=set)  # tried, with or without success
    confirmed: dict[Place, int] = field(default_factory=dict)  # acknowledgement receipt -> its session
    delivered: dict[Place, int] = field(default_factory=dict)  # place -> number
    violations: list[str] = field(default_factory=list)

    def on_delivery(self, at: Place, number: int) -> None:
        """Record a delivery, and check that no earlier session confirmed its acknowledgement."""
        confirmed_in = self.confirmed.get(at)
        if confirmed_in is not None and confirmed_in < self.session:
            self.violations.append(
                f"{number} at {at} delivered in session {self.session}, acknowledged in {confirmed_in}"
            )
        known = self.delivered.setdefault(at, number)
        if known != number:
            self.violations.append(f"{at} held {known}, now {number}")

    def check_stored(self, stored: list[tuple[Place, int]]) -> int:
        """Compare with a reader's messages from the earliest on; return how many numbers occur more than once."""
        assert not self.violations, self.violations[:5]
        firsts = list(dict.fromkeys(number for _, number in stored))
        lost = sorted(self.receipts.keys() - set(firsts))
        assert not lost, f"{len(lost)} receipted messages lost, first {lost[:5]}"
        assert firsts == sorted(firsts), "first occurrences out of order"
        content = dict(stored)
        wrong = [(number, at) for number, at in self.receipts.items() if content.get(at) != number]
        assert not wrong, f"{len(wrong)} receipts name another place than the reader, first {wrong[:5]}"
        counts = Counter(number for _, number in stored)
        return sum(1 for count in counts.values() if count > 1)

    def check_rest(self, rest: list[tuple[Place, int]], stored: list[tuple[Place, int]]) -> None:
        """Check that the subscription delivers all unconfirmed messages after the last restart, and no others."""
        assert not self.violations, self.violations[:5]
        places = {at for at, _ in rest}
        again = sorted(places & self.confirmed.keys())
        assert not again, f"{len(again)} confirmed acknowledgements forgotten, first {again[:5]}"
        missing = sorted({at for at, _ in stored} - self.acknowledged - places)
        assert not missing, f"{len(missing)} unacknowledged messages not delivered, first {missing[:5]}"
