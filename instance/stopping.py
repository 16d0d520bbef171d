"""Exceptions that end the function's thread."""

from __future__ import annotations

from ..errors import MagnetarError


class InstanceStopping(BaseException):
    """The instance is stopping: the current message is not acknowledged, and will be redelivered.

    It is not an `Exception`, so that a function that catches its own errors does not suppress it.
    """


class PoisonMessage(MagnetarError):
    """The function cannot process a message that must not be skipped; the instance ends."""


class ProcessEnded(MagnetarError):
    """A message has ended the process as often as its retry limit allows."""
