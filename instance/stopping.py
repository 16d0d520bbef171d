"""Exceptions that end the function's thread."""

from __future__ import annotations

from ..errors import MagnetarError


class InstanceStopping(BaseException):
    """The instance is being stopped: the message at hand is given up, not acknowledged, and comes again.

    No `Exception`, so that a function that catches its own errors does not take it for one and go on for ever.
    """


class PoisonMessage(MagnetarError):
    """A message that the function cannot process, and that may not be left out; the instance stops at it."""


class ProcessEnded(MagnetarError):
    """The process ended while the function worked on a message, as often as the message may be tried."""
