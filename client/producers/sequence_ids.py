"""Numbers the messages of one producer."""

from __future__ import annotations

from ...errors import InvalidConfig
from ..checks import INT64_MAX, check_integer


class SequenceIds:
    """The sequence ids that a producer has given out.

    Invariant: they rise; the broker's deduplication takes any other for a message that it has.

    Attributes:
        producer_name: for errors.
        next: of the next message, unless the application chooses one.
        last: the highest that was given out, -1 before the first.
    """

    __slots__ = ("last", "next", "producer_name")

    def __init__(self) -> None:
        self.producer_name = ""
        self.next = 0
        self.last = -1

    def assign(self, sequence_id: int | None, count: int) -> int:
        """Return the first of ``count`` sequence ids; ``sequence_id`` is what the application chose for it.

        Raises:
            InvalidConfig: the chosen one is no number, or does not rise.
        """
        first = self.next
        if sequence_id is not None:
            check_integer("sequence_id", sequence_id, 0, INT64_MAX - count)
            first = sequence_id
        if first <= self.last:
            raise InvalidConfig(
                f"sequence_id={first} does not rise: producer {self.producer_name} has already used {self.last}"
            )
        self.last = first + count - 1
        self.next = first + count
        return first
