"""The producers or consumers of one connection, by the ids that its client chose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ...errors import MagnetarError

if TYPE_CHECKING:
    from .consumer import Consumer
    from .producer import Producer


class ClosedProducers:
    """Producer ids whose SENDs are ignored, or whose next creation is refused; times are those of the loop."""

    def __init__(self) -> None:
        self._ignored_until: dict[int, float] = {}
        self._refusals: dict[int, MagnetarError] = {}

    def ignore(self, producer_id: int, until: float) -> None:
        """Ignore SENDs for an id until a time."""
        self._ignored_until[producer_id] = until

    def is_ignored(self, producer_id: int, now: float) -> bool:
        """Return whether SENDs for an id are to be ignored."""
        return self._ignored_until.get(producer_id, -1.0) >= now

    def refuse(self, producer_id: int, error: MagnetarError) -> None:
        """Answer the next creation under an id with an error; see `Producer.refuse`."""
        self._refusals[producer_id] = error

    def take_refusal(self, producer_id: int) -> MagnetarError | None:
        """Return and remove the error for the next creation under an id, or None."""
        return self._refusals.pop(producer_id, None)

    def expire(self, now: float) -> None:
        """Remove expired ids."""
        self._ignored_until = {id_: end for id_, end in self._ignored_until.items() if end >= now}
        self._refusals = {id_: error for id_, error in self._refusals.items() if id_ in self._ignored_until}


M = TypeVar("M", bound="Producer | Consumer")


class Registry(dict[int, M]):
    """The active members and the pending creations; changed only by the methods here.

    A dictionary itself, because each SEND, FLOW and ACK looks its id up.

    Attributes:
        opening: ids of pending creations, with their tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opening: dict[int, asyncio.Task[None]] = {}

    def begin(self, id_: int, creation: asyncio.Task[None]) -> None:
        """Register a creation under its id until it ends."""
        self.opening[id_] = creation

        def ended(task: asyncio.Task[None]) -> None:
            if self.opening.get(id_) is task:
                del self.opening[id_]

        creation.add_done_callback(ended)

    def add(self, member: M) -> None:
        """Add a member that may send or receive from now on."""
        self[member.id] = member

    def remove(self, member: M) -> None:
        """Remove a member, unless another one has its id by now."""
        if self.get(member.id) is member:
            del self[member.id]

    def close(self, id_: int) -> M | None:
        """Cancel the creation under an id, and remove and return its member."""
        creation = self.opening.pop(id_, None)
        if creation is not None:
            creation.cancel()
        return self.pop(id_, None)
