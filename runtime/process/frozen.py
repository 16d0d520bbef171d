"""Check whether a process is stopped (SIGSTOP, a debugger), as the kernel says."""

from __future__ import annotations

from pathlib import Path

_STOPPED = frozenset("Tt")


def is_stopped(process_id: int) -> bool:
    """Return whether a process is stopped; False for one that runs, waits, is gone, or cannot be seen."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text(errors="replace")
    except OSError:
        return False
    # The second field is the program's name in brackets, and may hold anything.
    return text.rpartition(")")[2].strip()[:1] in _STOPPED
