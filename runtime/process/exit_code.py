"""Exit codes in words."""

from __future__ import annotations

import signal


def how_it_ended(code: int) -> str:
    """Return how a process ended, from its exit code, negative for a signal; many real-time signals have no name."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
