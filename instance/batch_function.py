"""Call batch functions: a list of values in, a list of outputs out, failures by item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..api.context import Context
from ..api.serde import SerDe
from ..errors import InvalidConfig
from .batch_call import NOT_OF_ONE_MESSAGE, BatchCall, Blame, Failure, Place


class BatchPlace(Place):
    """The message that a batch function has selected for its context."""

    __slots__ = ("_chosen",)

    def __init__(self) -> None:
        """Create a place outside any call."""
        super().__init__()
        self._chosen = -1

    def enter_list(self, order: Sequence[int]) -> None:
        """Start a call with the messages at the positions in ``order``."""
        self._runs += 1
        self._order, self._chosen = order, -1

    def at(self) -> tuple[int, int] | None:
        """Return a value that identifies the current call, or None outside calls."""
        return (self._runs, 0) if self._order else None

    def choose(self, index: int) -> None:
        """Select a message by its index in the list.

        Raises:
            InvalidConfig: the index is out of range.
        """
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self._order):
            raise InvalidConfig(f"invalid index {index!r} for context.at: the call has {len(self._order)} values")
        self._chosen = index

    @property
    def position(self) -> int:
        """Position of the selected message, or -1 outside a call.

        Raises:
            InvalidConfig: no message was selected.
        """
        if not self._order:
            return -1
        if self._chosen < 0:
            raise InvalidConfig(
                f"this call of a batch function has {len(self._order)} messages: select one with"
                " context.at(index) first, as in context.at(0).get_message_key()"
            )
        return self._order[self._chosen]


class BatchFunctionCall(BatchCall):
    """Caller of a batch function."""

    place: BatchPlace

    def __init__(self, function: Callable[..., Any], context: Context | None, output: SerDe, messages_max: int) -> None:
        """Create a caller of ``function(values)``, or of ``function(values, context)`` with a context.

        Args:
            function: function that takes and returns a list.
            context: second argument of the function, or None.
            output: encodes the outputs.
            messages_max: maximum number of messages per call.
        """
        super().__init__(function, context, output)
        self.step = messages_max

    def _make_place(self) -> Place:
        return BatchPlace()

    def call(self, values: list[Any], order: Sequence[int], failures: list[Failure]) -> list[Any]:
        """Call the function on lists of up to ``messages_max`` values."""
        returned: list[Any] = []
        for begin in range(0, len(values), self.step):
            part = values[begin : begin + self.step]
            returned += self._call_part(part, order[begin : begin + self.step], begin, failures)
        return returned

    def _call_part(self, part: list[Any], order: Sequence[int], begin: int, failures: list[Failure]) -> list[Any]:
        count = len(part)
        self.place.enter_list(order)
        if self.session is not None:
            self.session.begin_call()
        try:
            returned = self._function(part) if self._context is None else self._function(part, self._context)
            items = _items_of(returned, count)
        except NOT_OF_ONE_MESSAGE:
            raise
        except BaseException as error:  # noqa: BLE001  see NOT_OF_ONE_MESSAGE; fails the messages of the call
            if self.session is not None:
                self.session.undo()
            failures += [Failure(begin + index, error, Blame.USER) for index in range(count)]
            return [None] * count
        finally:
            self.place.leave()
        for index, item in enumerate(items):
            if isinstance(item, BaseException):
                failures.append(Failure(begin + index, item, Blame.USER))
                items[index] = None
        return items


def _items_of(returned: Any, count: int) -> list[Any]:
    """Return a function's result as one item per value."""
    if returned is None:
        return [None] * count
    if not isinstance(returned, list | tuple):
        raise TypeError(
            f"the batch function received {count} values and returned {type(returned).__name__}: return a list with one"
            " item per value, or None"
        )
    if len(returned) != count:
        raise ValueError(
            f"the batch function received {count} values and returned {len(returned)} items: return one item per value,"
            " None for values without output"
        )
    return list(returned)
