"""Marks that identify the instance that a process belongs to, and the cleanup of an instance's remaining processes.

Design: a process started by a function may leave its session (`setsid`) and its parent (a double fork), so neither
identifies its instance. But every process inherits its parent's resource limits through fork and exec, and cannot raise
them: the limit of file locks, unused by Linux since version 2.4, holds a number unique to the instance. Control groups
would work too, but need privileges that a worker does not always have.

The zygote adopts orphans (`PR_SET_CHILD_SUBREAPER`), so all processes stay below the zygote while it runs. If zygote
and worker are killed at the same time, the next zygote on this machine kills the remaining ones (`end_abandoned`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable

from . import proc

_RLIMIT_LOCKS = 10
_LIMIT_NAME = b"Max file locks"
_MAGIC = 0x3A7
_PID_BITS, _NUMBER_BITS = 22, 28


def mark_of(zygote: int, number: int) -> int:
    """Return the mark of an instance.

    Args:
        zygote: process id of its zygote.
        number: number of the instance.
    """
    return (_MAGIC << _PID_BITS | zygote) << _NUMBER_BITS | number % (1 << _NUMBER_BITS)


def _zygote_of(mark: int) -> int | None:
    high = mark >> _NUMBER_BITS
    return high % (1 << _PID_BITS) if high >> _PID_BITS == _MAGIC else None


def is_of(mark: int, zygote: int) -> bool:
    """Return whether a mark belongs to a zygote."""
    return _zygote_of(mark) == zygote


def put_on(mark: int) -> None:
    """Mark this process and all its future children."""
    with contextlib.suppress(
        ValueError, OSError
    ):  # with a lower limit, its children are only identified by their session
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))


def find(root: int) -> dict[int, int]:
    """Return the living descendants of a process with their marks, 0 if unmarked."""
    return {pid: proc.limit_of(pid, _LIMIT_NAME) or 0 for pid in proc.below(root, proc.processes())}


def kill(pid: int, mark: int) -> bool:
    """Kill a process if it still has this mark (0 for none), and return whether it had."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Check only after opening the handle, which prevents reuse of the process id if it is still the same process.
        if (proc.limit_of(pid, _LIMIT_NAME) or 0) != mark:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def end_all_of(zygote: int) -> int:
    """Kill all processes started by a zygote's instances, and return their number."""
    return _end(lambda owner: owner == zygote)


def end_abandoned() -> int:
    """Kill all processes of dead zygotes, and return their number."""
    return _end(lambda owner: not (proc.PROC / str(owner)).exists())


def _end(is_wanted: Callable[[int], bool]) -> int:
    count = 0
    for process in proc.processes():
        mark = proc.limit_of(process.pid, _LIMIT_NAME)
        owner = None if mark is None else _zygote_of(mark)
        # In another container the same id would belong to another process.
        if mark is not None and owner is not None and is_wanted(owner) and proc.shares_pid_numbers(process.pid):
            count += kill(process.pid, mark)
    return count
