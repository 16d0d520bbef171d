"""Call a function on a run of messages: bytes in, bytes out, failures by position, without I/O or threads.

Design: a Python statement per message costs as much as the user's function, so it is avoided. Decoding, calling and
encoding each run over the messages inside the interpreter's own `map`, and our Python code runs only where a message
fails. `list.extend` retains the items before an exception, so the failed position is the length of the list, and the
iterator continues after it. The context is not updated per message either: when the function uses it, the position is
derived from the iterator over the values.

Rejected: a `for` loop with `try` inside (three times the cost), and stopping at a failure and calling again with a copy
of the rest (quadratic if every message fails).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from operator import length_hint
from typing import Any, cast

from ..api.context import Context
from ..api.serde import BatchSerDe, SerDe, takes_batches
from ..errors import StateUnavailable
from .state.session import StateSession
from .stopping import InstanceStopping
from .unit import Unit

NOT_OF_ONE_MESSAGE = (StateUnavailable, InstanceStopping)
"""Exceptions that every other message would also raise. Any other exception fails only its message, including
SystemExit and KeyboardInterrupt: they come from the function's code, because signals reach only the main thread.
"""


class Blame(Enum):
    """The cause of a failure, which determines the counter."""

    USER = "the function raised an exception, or returned a value that its output SerDe rejects"
    SYSTEM = "the message could not be decoded, or its output could not be sent"


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one message.

    Attributes:
        position: the message's position in the run.
        error: exception.
        blame: cause of the failure.
    """

    position: int
    error: BaseException
    blame: Blame


@dataclass(slots=True)
class Results:
    """The results of a run.

    Attributes:
        outputs: the output of each message as bytes, or None without an output; with ``counts``, all outputs of the
            first message, then those of the second, and so on.
        failures: failed messages, which have no outputs.
        counts: number of outputs per message; None if each has at most one.
    """

    outputs: list[bytes | None]
    failures: list[Failure] = field(default_factory=list)
    counts: list[int] | None = None

    @property
    def messages(self) -> int:
        """Number of messages in the run."""
        return len(self.outputs if self.counts is None else self.counts)


class Place:
    """Position of the current message of a run, valid only during a function call."""

    __slots__ = ("_count", "_order", "_runs", "_values")

    def __init__(self) -> None:
        self._values: Iterator[Any] = iter(())
        self._count = 0
        self._order: Sequence[int] = ()
        self._runs = 0

    def enter(self, values: Iterator[Any], order: Sequence[int]) -> None:
        """Follow an iterator over values; ``order`` has the position of each value in the run."""
        self._runs += 1
        self._values = values
        self._order = order
        self._count = len(order)

    def at(self) -> tuple[int, int] | None:
        """Return a value that identifies the current call, or None outside calls (from any thread)."""
        index = self._count - length_hint(self._values) - 1
        return (self._runs, index) if index >= 0 else None

    def leave(self) -> None:
        """Leave the current run."""
        self.enter(iter(()), ())

    @property
    def position(self) -> int:
        """Position of the current message, or -1 outside a run."""
        index = self._count - length_hint(self._values) - 1
        return self._order[index] if index >= 0 else -1


class BatchCall:
    """Caller of a function, including its output SerDe.

    Attributes:
        place: the current message's position.
        step: number of messages per run; 0 for as many as take a few milliseconds.
        is_watched: whether `place` is updated even if the function takes no context.
        session: the function's state, in which a call that raises leaves no changes; None without state.
    """

    step = 0
    is_watched = False
    session: StateSession | None = None

    def __init__(self, function: Callable[..., Any], context: Context | None, output: SerDe) -> None:
        """Create a caller of ``function(value)``, or of ``function(value, context)`` with a context."""
        self.place = self._make_place()
        self._function = function
        self._context = context
        self._output = output
        self._output_all = cast(BatchSerDe, output) if takes_batches(output) else None

    def _make_place(self) -> Place:
        return Place()

    def follow(self, unit: Unit, position: int) -> None:
        """Announce that the next messages are those of a unit from ``position`` on; used by traced calls only."""

    def run(self, messages: Sequence[bytes], source: SerDe) -> Results:
        """Process messages in order.

        Args:
            messages: messages as received.
            source: decodes them.
        """
        failures: list[Failure] = []
        values = decode(messages, source, failures)
        order: Sequence[int] = range(len(values))
        if failures:
            undecoded = {failure.position for failure in failures}
            order = [position for position in order if position not in undecoded]
            values = [values[position] for position in order]
        later: list[Failure] = []
        outputs = self.encode(self.call(values, order, later), later)
        if not failures:
            return Results(outputs, later)
        spread: list[bytes | None] = [None] * len(messages)
        for position, output in zip(order, outputs, strict=True):
            spread[position] = output
        failures += [Failure(order[failure.position], failure.error, failure.blame) for failure in later]
        return Results(spread, failures)

    def call(self, values: list[Any], order: Sequence[int], failures: list[Failure]) -> list[Any]:
        """Call the function on values, without encoding the results.

        Args:
            values: arguments of the calls.
            order: position of each value in the run.
            failures: list for calls that raised, by index in ``values``; their results are None.
        """
        iterator = iter(values)
        if self._context is None and not self.is_watched:
            return _collect(map(self._function, iterator), len(values), failures, Blame.USER)
        self.place.enter(iterator, order)
        session = self.session
        try:
            more: tuple[Iterator[Context], ...] = ()
            if self._context is not None:
                more = (repeat(self._context) if session is None else session.of_each_call(self._context),)
            calls = map(self._function, iterator, *more)
            return _collect(calls, len(values), failures, Blame.USER, session)
        finally:
            self.place.leave()
            if session is not None:
                session.begin_call()

    def encode(self, returned: list[Any], failures: list[Failure]) -> list[bytes | None]:
        """Encode return values; None remains None, and replaces values that cannot be encoded.

        Args:
            returned: return values.
            failures: list for values that cannot be encoded, by index in ``returned``.
        """
        if self._output_all is not None:
            encoded = self._output_all.serialize_all(returned)
            if encoded is not None:
                return encoded
        serialize = self._output.serialize

        def encode(value: Any) -> bytes | None:
            return None if value is None else _bytes(serialize(value))

        return _collect(map(encode, returned), len(returned), failures, Blame.USER)


def decode(messages: Sequence[bytes], source: SerDe, failures: list[Failure]) -> list[Any]:
    """Decode messages; failures become None and are added to ``failures``."""
    if takes_batches(source):
        values = cast(BatchSerDe, source).deserialize_all(messages)
        if values is not None:
            return values
    return _collect(map(source.deserialize, messages), len(messages), failures, Blame.SYSTEM)


def _bytes(output: object) -> bytes:
    if isinstance(output, bytes):
        return output
    raise TypeError(f"the output SerDe returned {type(output).__name__} instead of bytes")


def _collect(
    results: Iterator[Any], count: int, failures: list[Failure], blame: Blame, session: StateSession | None = None
) -> list[Any]:
    """Collect ``count`` results, with None and a failure for each failed call, whose state changes are undone.

    The iterator continues after a failure, because the failed call has consumed its argument.
    """
    collected: list[Any] = []
    while True:
        try:
            collected.extend(results)
        except NOT_OF_ONE_MESSAGE:
            raise
        except BaseException as error:  # noqa: BLE001  see NOT_OF_ONE_MESSAGE
            failures.append(Failure(len(collected), error, blame))
            collected.append(None)
            if session is not None:
                session.undo()
            continue
        if len(collected) == count:
            return collected
        # `map` mistakes a StopIteration from user code for its own end.
        ended = RuntimeError("the function raised StopIteration")
        failures.append(Failure(len(collected), ended, blame))
        collected.append(None)
        if session is not None:
            session.undo()
