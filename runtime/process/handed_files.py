"""Files that a worker keeps open for one future process, the only one that reads them, through `/proc`."""

from __future__ import annotations

import contextlib
import os

from .output import is_readable

SAID_BYTES_MAX = 64 * 1024
"""Number of last bytes of an instance's standard output to keep."""
_READS_MAX = 64
"""Maximum number of reads at the end; further output of the user's processes is discarded."""


def memory_file(name: str, content: str) -> int:
    """Return the descriptor of a new in-memory file; a process that reopens it reads from the start.

    Raises:
        OSError: too many open files.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content.encode())
    return descriptor


class HandedFiles:
    """The files of an isolated instance: its spec and its output pipe.

    Attributes:
        numbers: descriptors by name, for the zygote; valid until `keep_output`.
    """

    def __init__(self, spec: str) -> None:
        """Open the files.

        Raises:
            OSError: too many open files.
        """
        self._read_end, write_end = os.pipe2(os.O_CLOEXEC)
        self.numbers = {"read": self._read_end, "write": write_end}
        try:
            self.numbers["spec"] = memory_file("spec", spec)
        except OSError:
            self.close()
            raise

    def keep_output(self) -> None:
        """Close all files except the read end of the output, as the process has opened its own, or does not exist."""
        for name in ("write", "spec"):
            number = self.numbers.pop(name, -1)
            if number >= 0:
                os.close(number)

    def rest(self) -> str:
        """Return the unread output of the process and its children. Blocks briefly."""
        rest = b""
        with contextlib.suppress(OSError, ValueError):
            for _ in range(_READS_MAX):
                if self._read_end < 0 or not is_readable(self._read_end, 0):
                    break
                piece = os.read(self._read_end, SAID_BYTES_MAX)
                if not piece:
                    break
                rest = (rest + piece)[-SAID_BYTES_MAX:]
        return rest.decode("utf-8", "replace")

    def close(self) -> None:
        """Close all files; may be called twice."""
        self.keep_output()
        if self._read_end >= 0:
            os.close(self._read_end)
            self._read_end = -1
