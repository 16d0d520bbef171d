"""What a broker process costs, read from the system: CPU time of its main thread, memory, and what it logged."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from tests.support.servers import Server

MIB = 1 << 20
_RAW_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_UNFORESEEN = (b"Traceback (most recent call last)", b"internal error", b"was never awaited", b"never retrieved")


class Observed:
    """One broker."""

    def __init__(self, server: Server):
        self._server = server
        self._process = psutil.Process(server.pid)
        self._schedule = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")

    def cpu_s(self) -> float:
        """CPU seconds of the thread that has the event loop, so far."""
        return int(self._schedule.read_text().split()[0]) / 1e9

    def memory_mib(self) -> float:
        """Resident memory."""
        return self._process.memory_info().rss / MIB

    def check_log(self) -> None:
        """Fail if the log has a line that no foreseen refusal writes, or bytes that steer a terminal."""
        log = self._server.log_file.read_bytes()
        for sign in _UNFORESEEN:
            start = log.find(sign)
            assert start < 0, "the broker met something unforeseen:\n" + log[
                max(0, start - 1500) : start + 4000
            ].decode(errors="replace")
        control = _RAW_CONTROL.search(log)
        assert control is None, (
            f"control characters in the log: {log[max(0, control.start() - 300) : control.end() + 50]!r}"
        )
