"""The base class of functions with a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context


class Function(ABC):
    """A function written as a class. Subclassing is optional: only `process` is required.

    The instance creates one object at start, without arguments, and calls `process` for one message after the other,
    always from the same thread.
    """

    @abstractmethod
    def process(self, input: Any, context: Context) -> Any:  # noqa: A002  the name is Pulsar's
        """Process one message.

        Args:
            input: the message, decoded by the input topic's SerDe.
            context: the message and the instance, valid only during this call.

        Returns:
            The output, which the output SerDe serialises, or None for no output.
        """
