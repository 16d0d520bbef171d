"""Producers that the broker has closed: their late SENDs are ignored."""

from __future__ import annotations

from ...errors import MagnetarError


class ClosedProducers:
    """Producer ids whose SENDs are ignored, and those whose next creation is refused; times are those of the loop."""

    def __init__(self) -> None:
        self._ignored_until: dict[int, float] = {}
        self._refusals: dict[int, MagnetarError] = {}

    def ignore(self, producer_id: int, until: float) -> None:
        """Ignore until a time what comes for an id."""
        self._ignored_until[producer_id] = until

    def is_ignored(self, producer_id: int, now: float) -> bool:
        """Return whether what comes for an id is to be ignored."""
        return self._ignored_until.get(producer_id, -1.0) >= now

    def refuse(self, producer_id: int, error: MagnetarError) -> None:
        """Answer the next creation under an id with an error; see `Producer.refuse`."""
        self._refusals[producer_id] = error

    def take_refusal(self, producer_id: int) -> MagnetarError | None:
        """Return the error that the creation under an id is to be answered with, once."""
        return self._refusals.pop(producer_id, None)

    def expire(self, now: float) -> None:
        """Forget the ids whose time is over."""
        self._ignored_until = {id_: end for id_, end in self._ignored_until.items() if end >= now}
        self._refusals = {id_: error for id_, error in self._refusals.items() if id_ in self._ignored_until}
