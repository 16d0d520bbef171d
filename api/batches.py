"""Functions that process a list of messages per call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

MESSAGES_MAX = 1000
"""Maximum messages per call, which is also the maximum that an instance fetches together."""
MARK = "__magnetar_batch__"
"""Attribute of a batch function that contains its maximum messages per call."""

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def batch_function(function: _F, /) -> _F: ...


@overload
def batch_function(*, max_messages: int = MESSAGES_MAX) -> Callable[[_F], _F]: ...


def batch_function(function: Any = None, /, *, max_messages: int = MESSAGES_MAX) -> Any:
    """Mark a function, or a class's ``process`` method, as one that takes a list of values.

    The function is called with the values of all waiting messages, in order and at most ``max_messages``. It returns a
    list with one item per message: an output, None for no output, or an exception, which is treated as if it had been
    raised for that message alone. An exception raised by the function fails all messages of the call. Returning None
    instead of a list means no outputs.

    The decorator is needed because a single message can also be a list, for example a JSON array.

    Args:
        function: a plain function, neither a generator nor async.
        max_messages: maximum messages per call, 1 to 1,000.

    Raises:
        ValueError: ``max_messages`` is out of range.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or not 1 <= max_messages <= MESSAGES_MAX:
        raise ValueError(f"invalid max_messages {max_messages!r} of batch_function: expected 1 to {MESSAGES_MAX}")

    def mark(marked: _F) -> _F:
        setattr(marked, MARK, max_messages)
        return marked

    return mark if function is None else mark(function)
