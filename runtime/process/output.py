"""Moves standard output and standard error of an instance's process and its children to the log.

Design: both are a pipe that is drained into the log, so that the output of long-running children is bounded by the
log's rotation, and a child that writes too fast waits. The read end is also open in the zygote, which reads the
remaining output when the process has ended, such as the last messages of the interpreter or of a C library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
import time
from dataclasses import dataclass

from ...instance.logs.file import InstanceLog

PIPE_BYTES = 256 * 1024
"""Pipe capacity: the amount that a C library can write in one call that blocks other Python threads. A larger capacity
for each of many instances would exceed the kernel's limit per user.
"""
_READ_BYTES = 64 * 1024
_LINE_BYTES_MAX = 64 * 1024
_LINE_S = 0.01
"""How long to wait for an incomplete line before reading it, in seconds."""


@dataclass(frozen=True, slots=True)
class Output:
    """The pipe of an instance.

    Attributes:
        read_end: file descriptor for reading.
        write_end: file descriptor for writing.
    """

    read_end: int
    write_end: int

    def become_standard(self) -> None:
        """Redirect file descriptors 1 and 2 of this process, and so of its children, to the pipe."""
        with contextlib.suppress(OSError):  # a user with many pipes is limited to smaller ones
            fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.dup2(self.write_end, 1)
        os.dup2(self.write_end, 2)
        os.close(self.write_end)


def is_readable(descriptor: int, timeout_ms: int | None) -> bool:
    """Wait until reading does not block or the timeout expires, and return which; works for any descriptor."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(timeout_ms))


class Drain(threading.Thread):
    """Moves output to the log until the process ends."""

    def __init__(self, output: Output, instance_log: InstanceLog) -> None:
        """Create a drain.

        Args:
            output: output to read from.
            instance_log: log to write to.
        """
        super().__init__(name="output", daemon=True)
        self._read_end = output.read_end
        self._log = instance_log
        self._rest = b""
        self._reading = threading.Lock()

    def run(self) -> None:
        """Drain until all write ends, or this read end, are closed."""
        with contextlib.suppress(OSError, ValueError):
            while is_readable(self._read_end, None):
                # The last message of a library that aborts has no line end. If read here, it would be lost with the
                # process; the zygote reads what remains in the pipe.
                time.sleep(_LINE_S)
                while is_readable(self._read_end, 0):
                    if not self._move():
                        return

    def finish(self) -> None:
        """Move the remaining output to the log, at the end of the process."""
        with contextlib.suppress(OSError, ValueError):
            while is_readable(self._read_end, 0) and self._move():
                pass
        with self._reading:
            if self._rest:
                self._log.write("INFO", self._rest.decode("utf-8", "replace"))
                self._rest = b""

    def _move(self) -> bool:
        with self._reading:
            if not is_readable(self._read_end, 0):
                return True  # the other thread was faster
            data = os.read(self._read_end, _READ_BYTES)
            whole, line_end, rest = (self._rest + data).rpartition(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                whole, line_end, rest = self._rest + data, b"\n", b""
            self._rest = rest
            if line_end:
                self._log.write("INFO", whole.decode("utf-8", "replace"))
            return bool(data)
