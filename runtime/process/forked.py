"""Child processes created by fork instead of exec: they share the memory of the parent's imports.

Design: an interpreter with our modules costs 20 to 30 MB; a fork of one that has imported them costs only the pages
that it writes to. A fork is only safe if nothing else is running: with one thread, before any event loop, lock or
important open file. So a server first forks its children; later ones are started with exec. Parent and child share one
socket and, of the parent's files, standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
FIRST_FILE = 3  # after standard input, output and error
UNKNOWN_CODE = 255
"""Exit code of a child that was reaped elsewhere, as in asyncio."""


def thread_count() -> int:
    """Return the number of this process's threads, including those of C libraries."""
    return len(os.listdir("/proc/self/task"))


def can_fork() -> bool:
    """Return whether this process can fork safely: one thread, standard streams, and a kernel with pidfd."""
    if thread_count() != 1 or None in (sys.stdin, sys.stdout, sys.stderr):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies; exits if the parent is already dead."""
    LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before the call above


def how_it_ended(code: int) -> str:
    """Describe how a process ended, given its exit code, negative for a signal; many real-time signals have no name."""
    if code >= 0:
        return f"exited with exit code {code}"
    try:
        return f"was terminated by {signal.Signals(-code).name}"
    except ValueError:
        return f"was terminated by signal {-code}"


class ForkedProcess:
    """The parent's handle of a child, with the part of `asyncio.subprocess.Process` that a supervisor needs.

    Attributes:
        pid: process id of the child; not reused before `returncode` is known.
        returncode: exit code; None while it runs, negative for a signal.
    """

    def __init__(self, pid: int, channel: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._channel = channel  # a number, not a socket object, as only a later fork may close it
        self._watched = -1
        self._ended: asyncio.Future[int] | None = None

    async def attach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Watch the child on the running loop, and return the socket to it; must be called once."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._watched = os.pidfd_open(self.pid)
        loop.add_reader(self._watched, self._reap)
        return await asyncio.open_unix_connection(sock=socket.socket(fileno=self._channel))

    async def wait(self) -> int:
        """Return the exit code once the child has ended. Cancellation: safe."""
        assert self._ended is not None, "attach() must be called first"
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if self._watched >= 0:
                    signal.pidfd_send_signal(self._watched, number)
                else:
                    os.kill(self.pid, number)  # not reaped yet, so the process id cannot have been reused

    def _reap(self) -> None:
        try:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # a thread function called os.wait
            ended, code = self.pid, UNKNOWN_CODE
        if not ended or self._ended is None:
            return
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self.returncode = code
        self._ended.set_result(self.returncode)


def fork(run: Callable[[socket.socket], int]) -> ForkedProcess:
    """Fork a child that runs a function with its end of a socket, and exits with the returned code.

    In the child this raises SystemExit, so that its interpreter shuts down cleanly; the caller must not catch it.

    Raises:
        OSError: the kernel cannot create a process or socket.
    """
    assert thread_count() == 1, "cannot fork safely: another thread may hold a lock"
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect(0)  # only new objects: scanning all imported ones would block the process for 25 ms
    gc.freeze()  # a collection would write to, and so copy, every shared page
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid:
        theirs.close()
        return ForkedProcess(pid, ours.detach())
    ours.close()
    _close_all_but(theirs.fileno())
    raise SystemExit(run(theirs))


def _close_all_but(kept: int) -> None:
    """Close the parent's files, so that this process does not keep locks or sockets to other children open."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= FIRST_FILE and number != kept:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(number)
