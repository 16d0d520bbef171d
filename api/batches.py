"""Functions that are called with many messages at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

MESSAGES_MAX = 1000
"""Most messages of one call: as many as an instance takes on at once."""
MARK = "__magnetar_batch__"
"""Attribute of a batch function: the most messages of one call."""

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def batch_function(function: _F, /) -> _F: ...


@overload
def batch_function(*, max_messages: int = MESSAGES_MAX) -> Callable[[_F], _F]: ...


def batch_function(function: Any = None, /, *, max_messages: int = MESSAGES_MAX) -> Any:
    """Mark a function, or the method ``process`` of a class, as one that takes a list of values.

    It is called with the values of all messages that are waiting, at most ``max_messages``, in their order, and returns
    a list with one item for each: an output, None for none, or an exception for a message that failed, which is treated
    as if it had been raised for that message alone. What it raises itself fails all messages of the call. None instead
    of a list means that there are no outputs.

    The decorator says so because a message may be a list too, such as one in JSON.

    Args:
        function: a plain function; neither a generator nor async.
        max_messages: of one call, 1 to 1,000.

    Raises:
        ValueError: ``max_messages`` is out of range.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or not 1 <= max_messages <= MESSAGES_MAX:
        raise ValueError(f"max_messages of batch_function is {max_messages!r}, and may be 1 to {MESSAGES_MAX}")

    def mark(marked: _F) -> _F:
        setattr(marked, MARK, max_messages)
        return marked

    return mark if function is None else mark(function)
