"""Inputs paused by a sink: no more entries are taken from them, and entries already taken wait.

The sink's thread pauses and resumes inputs, and parks queued entries of a paused topic. The event loop, which takes
entries from the inputs, waits for the topic's event. Parked entries do not count as held, so that other inputs
continue. Their number is limited by the entries held when the sink paused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from ...errors import InvalidTopicName
from ...wire.topic_name import parse_topic_name
from ..core import InstanceCore
from ..function_thread import Item
from ..unit import HeldEntries


class Pauses:
    """Pauses and resumes the inputs of one sink."""

    def __init__(self, core: InstanceCore, topics: Iterable[str]) -> None:
        """Create the pauses on the event loop, with all inputs active.

        Args:
            core: the instance's core.
            topics: configured inputs.
        """
        self._core = core
        self._names = {full_name(topic): topic for topic in topics}
        self._events = {name: asyncio.Event() for name in self._names}
        for event in self._events.values():
            event.set()
        self._paused: frozenset[str] = frozenset()
        self._parked: dict[str, deque[Item]] = {}

    # -- on the sink's thread -------------------------------------------------------------------------------------

    def pause(self, topic: str) -> None:
        """Stop delivering messages of a topic."""
        name = self._known(topic)
        self._change(self._paused | {name})

    def resume(self, topic: str) -> None:
        """Resume delivering messages of a topic."""
        name = self._known(topic)
        self._change(self._paused - {name})

    def resume_all(self) -> None:
        """Resume all inputs, because a reopened sink does not know its earlier pauses."""
        self._change(frozenset())

    def _known(self, topic: str) -> str:
        name = full_name(topic)
        if name not in self._names:
            raise ValueError(
                f"{topic!a} is not an input of this sink: expected one of {', '.join(self._names.values())}"
            )
        return name

    def _change(self, paused: frozenset[str]) -> None:
        for name in paused ^ self._paused:
            event = self._events[name]
            self._core.mailbox.post(event.clear if name in paused else event.set)
        self._paused = paused

    def park(self, item: Item, held: HeldEntries) -> bool:
        """Park an entry if its input is paused or has parked entries; return whether it was parked."""
        if not self._paused and not self._parked:
            return False
        name = full_name(item[0].topic)
        if name not in self._paused and name not in self._parked:
            return False
        self._parked.setdefault(name, deque()).append(item)
        self._core.mailbox.post(partial(held.set_aside, item[1]))
        return True

    def parked(self, is_over: Callable[[Item], bool]) -> Item | None:
        """Return the next parked entry whose input was resumed, or for which ``is_over`` returns true, or None.

        The caller must process the entry before it calls again.
        """
        for name, items in self._parked.items():
            if name not in self._paused or is_over(items[0]):
                item = items.popleft()
                if not items:
                    del self._parked[name]
                return item
        return None

    def all_parked(self) -> list[Item]:
        """Return and clear all parked entries."""
        parked, self._parked = self._parked, {}
        return [item for items in parked.values() for item in items]

    # -- elsewhere ------------------------------------------------------------------------------------------------

    def resumed(self, topic: str) -> asyncio.Event:
        """Return an event that is set while an input is not paused (on the event loop)."""
        return self._events[full_name(topic)]

    def trouble(self) -> str:
        """Return a status text that names the paused inputs, or an empty string (from any thread)."""
        topics = sorted(self._names[name] for name in self._paused)
        return f"the sink has paused {', '.join(topics)}" if topics else ""


def full_name(topic: str) -> str:
    """Return the full name of a topic, or of a partition's topic."""
    try:
        return parse_topic_name(topic).base.text
    except InvalidTopicName:
        return topic


def never(item: Item) -> bool:
    """Return False, so that entries wait as long as their input is paused."""
    return False
