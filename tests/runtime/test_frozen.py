"""A process that was stopped is told from one that is busy or waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from magnetar.runtime.process.proc import is_stopped

from tests.support.waiting import wait_for


def test_only_a_stopped_process_is_stopped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: is_stopped(process.pid), "stopped process")
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: not is_stopped(process.pid), "process that goes on")
    finally:
        process.kill()
        process.wait()
    assert not is_stopped(process.pid)
    assert not is_stopped(os.getpid())
