"""What ends a call of user code that waits for something of ours while its instance is being stopped."""

from __future__ import annotations


class InstanceStopping(BaseException):
    """The instance is being stopped: the message at hand is given up, not acknowledged, and comes again.

    No `Exception`, so that a function that catches its own errors does not take it for one and go on for ever.
    """
