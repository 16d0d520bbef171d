"""The producers, or the consumers, of one connection, by the ids that its client chose."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar


class Identified(Protocol):
    """A producer or a consumer, as the registry sees it."""

    id: int


M = TypeVar("M", bound=Identified)


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
