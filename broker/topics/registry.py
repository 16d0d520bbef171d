"""The producers, or the consumers, of one connection, by the ids that its client chose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ...errors import MagnetarError

if TYPE_CHECKING:
    from .consumer import Consumer
    from .producer import Producer


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


M = TypeVar("M", bound="Producer | Consumer")


class Registry(dict[int, M]):
    """Those that may send or receive, and the creations under way; changed by the methods here only.

    A dictionary itself, because each SEND, FLOW and ACK looks its id up.

    Attributes:
        opening: ids whose creation is under way, with the task that does it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opening: dict[int, asyncio.Task[None]] = {}

    def begin(self, id_: int, creation: asyncio.Task[None]) -> None:
        """Note a creation; it is known by its id as long as it lasts."""
        self.opening[id_] = creation

        def ended(task: asyncio.Task[None]) -> None:
            if self.opening.get(id_) is task:
                del self.opening[id_]

        creation.add_done_callback(ended)

    def add(self, member: M) -> None:
        """Take up who may send or receive from now on."""
        self[member.id] = member

    def remove(self, member: M) -> None:
        """Forget a member, unless another one has its id by now."""
        if self.get(member.id) is member:
            del self[member.id]

    def close(self, id_: int) -> M | None:
        """End the creation under an id, and forget and return the member that has it."""
        creation = self.opening.pop(id_, None)
        if creation is not None:
            creation.cancel()
        return self.pop(id_, None)
