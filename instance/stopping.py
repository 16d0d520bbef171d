"""Exceptions that end the function's thread."""

from __future__ import annotations

from ..errors import MagnetarError


class InstanceStopping(BaseException):
    """The instance is stopping: the current message is given up, not acknowledged, and redelivered.

    Not an `Exception`, so that a function that catches its own errors does not swallow it and run forever.
    """


class PoisonMessage(MagnetarError):
    """A message that the function cannot process, and that must not be skipped; the instance stops at it."""


class ProcessEnded(MagnetarError):
    """The process ended during a call with a message, as often as the message may be tried."""
