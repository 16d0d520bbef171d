"""Move, pause and resume the inputs of an instance for its function's context.

A seek revokes all unacknowledged entries of a topic. Queued messages are not processed, and messages in progress are
not acknowledged, because the broker may redeliver both from the new position. Such entries are *void*. The function
waits until the broker has moved the subscription.

No more entries are taken from a paused input. Entries taken before are still processed; `HeldEntries` limits their
number.

Everything here runs on the event loop except `seek`, `pause` and `resume`, which are called on other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from ...client.consumers.consumer import Consumer
from ...client.consumers.merged import MergedConsumer
from ...client.consumers.received import ReceivedEntry
from ...errors import ClosedError
from ...wire.message_id import MessageId
from ...wire.topic_name import parse_topic_name
from ..core import InstanceCore
from ..input_names import find_partition
from ..ports import Input
from ..unit import Acknowledgements, HeldEntries
from .failover_input import FailoverInput
from .pattern_input import PatternInput
from .pieces import OpenInput

_LOOK_S = 0.2  # interval between checks for a stop request


class _Part(Protocol):
    """The input of one topic or partition."""

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription."""


class InputSteering:
    """Moves, pauses and resumes the inputs of one instance.

    Attributes:
        void: ids of entries that must no longer be processed or acknowledged.
    """

    def __init__(self, core: InstanceCore, inputs: Mapping[str, OpenInput], held: HeldEntries) -> None:
        """Create the steering of an instance.

        Args:
            core: the instance's core.
            inputs: inputs by configured name; more may be added.
            held: entries taken from the inputs.
        """
        self.void: dict[int, ReceivedEntry] = {}
        self._core = core
        self._inputs = inputs
        self._held = held
        self._paused: set[str] = set()
        self._moving: dict[str, int] = {}
        self._going: dict[str, asyncio.Event] = {}

    # -- for the tasks that take entries -------------------------------------------------------------------------

    async def may_take(self, source: OpenInput) -> None:
        """Wait until entries may be taken from an input, without yielding to other tasks if they already may."""
        if (going := self._going.get(source.topic)) is not None:
            while not going.is_set():
                await going.wait()

    def still_ours(self, done: Acknowledgements) -> Acknowledgements:
        """Return the acknowledgements without void entries."""
        void = self.void
        return Acknowledgements(
            [entry for entry in done.whole if id(entry) not in void],
            [(entry, wanted) for entry, wanted in done.partial if id(entry) not in void],
        )

    # -- for functions --------------------------------------------------------------------------------------------

    def seek(self, topic: str, partition: int, target: MessageId) -> None:
        """Move an input, and return when the broker has moved it."""
        source, name = self._find(topic, partition)
        moving = asyncio.run_coroutine_threadsafe(self._seek(source, name, target), self._core.loop)
        while True:
            try:
                return moving.result(_LOOK_S)
            except TimeoutError:
                if moving.done():
                    raise
                if self._core.ended.done():
                    moving.cancel()
                    raise ClosedError("cannot seek: the instance is stopping") from None

    def pause(self, topic: str, partition: int) -> None:
        """Stop taking entries from an input."""
        source, name = self._find(topic, partition)
        self._core.mailbox.post(lambda: self._pause(source, name, True))

    def resume(self, topic: str, partition: int) -> None:
        """Resume an input."""
        source, name = self._find(topic, partition)
        self._core.mailbox.post(lambda: self._pause(source, name, False))

    def paused(self) -> str:
        """Return a status text that names the paused inputs, or an empty string."""
        paused = sorted(self._paused)
        return f"the function has paused {', '.join(paused)}" if paused else ""

    def having(self, name: str) -> tuple[OpenInput, Consumer] | None:
        """Return the multi-topic input that contains a topic, given by full name, and the topic's consumer."""
        for source in list(self._inputs.values()):
            merged = _merged(source.input)
            if merged is not None and (found := merged.consumers.get(name)) is not None:
                return source, found
        return None

    # -- on the event loop ----------------------------------------------------------------------------------------

    def _find(self, topic: str, partition: int) -> tuple[OpenInput, str]:
        sources = {name: source for source in list(self._inputs.values()) for name in _parts(source)}
        name = find_partition(sources.__contains__, topic, partition, ", ".join(self._inputs))
        return sources[name], name

    def _pause(self, source: OpenInput, name: str, is_paused: bool) -> None:
        (self._paused.add if is_paused else self._paused.discard)(name)
        merged = _merged(source.input)
        if merged is not None:
            (merged.hold_back if is_paused else merged.let_go)(name)
        self._update(source)

    def _update(self, source: OpenInput) -> None:
        """Update whether entries may be taken from the input."""
        going = self._going.setdefault(source.topic, asyncio.Event())
        is_paused = _merged(source.input) is None and not self._paused.isdisjoint(_parts(source))
        if is_paused or self._moving.get(source.topic):
            going.clear()
        else:
            going.set()

    async def _seek(self, source: OpenInput, name: str, target: MessageId) -> None:
        topic = source.topic
        self._moving[topic] = self._moving.get(topic, 0) + 1
        self._update(source)
        for entry in self._held.let_go(name):
            self.void[id(entry)] = entry
        merged = _merged(source.input)
        part: _Part = source.input if merged is None else merged.consumers[name]
        inner = source.input.opened if isinstance(source.input, PatternInput) else source.input
        if isinstance(inner, FailoverInput):
            inner.forget()
        try:
            await part.seek(target)
        except BaseException:
            _redeliver(part)  # otherwise void entries are not redelivered if the subscription did not move
            raise
        finally:
            self._moving[topic] -= 1
            self._update(source)


def _redeliver(part: object) -> None:
    again = getattr(part, "redeliver_unacknowledged", None)
    if again is not None:
        again()


def _merged(opened: Input) -> MergedConsumer | None:
    inner: object = opened
    while isinstance(inner, PatternInput | FailoverInput):
        inner = inner.opened
    return inner if isinstance(inner, MergedConsumer) else None


def _parts(source: OpenInput) -> list[str]:
    merged = _merged(source.input)
    return [parse_topic_name(source.topic).text] if merged is None else list(merged.consumers)
