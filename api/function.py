"""The class that a function with a context is written as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context


class Function(ABC):
    """A function of a class; subclassing is optional, having `process` is what counts.

    One object is made when the instance starts, without arguments, and `process` is called for one message after the
    other, always from the same thread.
    """

    @abstractmethod
    def process(self, input: Any, context: Context) -> Any:  # noqa: A002  the name is Pulsar's
        """Process one message.

        Args:
            input: what the input topic's SerDe made of the message.
            context: knows the message and the instance; valid during this call.

        Returns:
            What goes to the output topic through its SerDe, or None for nothing.
        """
