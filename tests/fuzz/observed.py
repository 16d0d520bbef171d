"""Resource use of a broker process, read from the system: CPU time of its main thread, memory and log size."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from tests.support.servers import Server

MIB = 1 << 20
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_UNFORESEEN = re.compile(
    rb"Traceback \(most recent call last\)|internal error|was never awaited|never retrieved| task .* failed"
)


class Observed:
    """One broker.

    Attributes:
        logged_bytes: of the log, those that were looked at.
    """

    def __init__(self, server: Server):
        self._log_file = server.log_file
        self._process = psutil.Process(server.pid)
        self._schedule = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")
        self.logged_bytes = 0

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far by the thread with the event loop."""
        return int(self._schedule.read_text().split()[0]) / 1e9

    def memory_mib(self) -> float:
        """Return the resident memory."""
        return self._process.memory_info().rss / MIB

    def check_log(self) -> None:
        """Fail if the log has a line other than expected rejections, or bytes that control a terminal."""
        with self._log_file.open("rb") as file:
            file.seek(self.logged_bytes)
            log = file.read()
        self.logged_bytes += log.rfind(b"\n") + 1
        for what, sign in ("something unforeseen", _UNFORESEEN), ("control characters", _CONTROL):
            found = sign.search(log)
            if found is not None:
                around = log[max(0, found.start() - 1000) : found.end() + 4000]
                raise AssertionError(f"the log has {what}, {found[0]!r}:\n{around.decode(errors='backslashreplace')}")
