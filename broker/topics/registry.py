"""The producers or consumers of a connection, by the ids assigned by the client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ...errors import MagnetarError

if TYPE_CHECKING:
    from .consumer import Consumer
    from .producer import Producer


class ClosedProducers:
    """Ids of closed producers: their SENDs are ignored, or their next creation fails. Times are loop times."""

    def __init__(self) -> None:
        self._ignored_until: dict[int, float] = {}
        self._refusals: dict[int, MagnetarError] = {}

    def ignore(self, producer_id: int, until: float) -> None:
        """Ignore SENDs for an id until the given time."""
        self._ignored_until[producer_id] = until

    def is_ignored(self, producer_id: int, now: float) -> bool:
        """Return whether SENDs for an id are ignored."""
        return self._ignored_until.get(producer_id, -1.0) >= now

    def refuse(self, producer_id: int, error: MagnetarError) -> None:
        """Fail the next creation of a producer with this id; see `Producer.refuse`."""
        self._refusals[producer_id] = error

    def take_refusal(self, producer_id: int) -> MagnetarError | None:
        """Remove and return the error for the creation of a producer with this id, or None."""
        return self._refusals.pop(producer_id, None)

    def expire(self, now: float) -> None:
        """Remove ids that are no longer ignored."""
        self._ignored_until = {id_: end for id_, end in self._ignored_until.items() if end >= now}
        self._refusals = {id_: error for id_, error in self._refusals.items() if id_ in self._ignored_until}


M = TypeVar("M", bound="Producer | Consumer")


class Registry(dict[int, M]):
    """The active producers or consumers of a connection, and pending creations; only changed by its own methods.

    This is a dictionary, because each SEND, FLOW and ACK looks up its id.

    Attributes:
        opening: tasks of pending creations, by id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opening: dict[int, asyncio.Task[None]] = {}

    def begin(self, id_: int, creation: asyncio.Task[None]) -> None:
        """Register a pending creation until its task ends."""
        self.opening[id_] = creation

        def ended(task: asyncio.Task[None]) -> None:
            if self.opening.get(id_) is task:
                del self.opening[id_]

        creation.add_done_callback(ended)

    def add(self, member: M) -> None:
        """Add a member, which may then send or receive."""
        self[member.id] = member

    def remove(self, member: M) -> None:
        """Remove a member, unless another member now has its id."""
        if self.get(member.id) is member:
            del self[member.id]

    def close(self, id_: int) -> M | None:
        """Cancel a pending creation with this id, and remove and return the member, or None."""
        creation = self.opening.pop(id_, None)
        if creation is not None:
            creation.cancel()
        return self.pop(id_, None)
