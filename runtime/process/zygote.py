"""The parent of all process instances: imports once, then forks.

Design: starting an interpreter and importing our modules takes a third of a second and 23 MB; a fork of a process that
has done so takes 2 ms and shares those pages. That is only sound while nothing runs in the parent but one thread that
holds no lock: so this process makes no thread, no event loop, no channel and no server, imports no user code, and
refuses to fork when the kernel counts more than one thread.

It is forked from the worker before that does anything else, or started by exec where that is no longer possible, and
shares no file with it but one socket. When that socket ends, the worker is gone: the zygote ends, and its children
with it. The same when the worker, once it has begun to send beats, is silent for `LEASE_S` because it is stopped, or
for `HELD_LEASE_S` whatever the reason: others are about to take its instances, and wait until these have ended. The
zygote is the children's parent, so a process id that it signals cannot have been given to another process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from ...errors import ProtocolError
from . import child
from .forked import ForkedProcess, fork, thread_count
from .frozen import is_stopped
from .messages import HELD_LEASE_S, LEASE_S, LOOK_S, encode, take

_READ_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Zygote:
    """Serves one worker."""

    def __init__(self, commands: socket.socket) -> None:
        """Serve the commands of a connected socket."""
        self._commands = commands
        self._received = bytearray()
        self._process_ids: dict[int, int] = {}  # by the worker's number of the instance
        self._wakeup_read, self._wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until the worker is gone, and end with all children."""
        try:
            self._serve()
        finally:
            # PR_SET_PDEATHSIG does the same when this process is killed; here the children are also waited for, so
            # that no dead one is left to whoever adopts orphans.
            for process_id in self._process_ids.values():
                _kill_with_group(process_id)
            for process_id in self._process_ids.values():
                os.waitpid(process_id, 0)

    def _serve(self) -> None:
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_IGN)  # a terminal's Ctrl-C reaches us too; the worker decides
        # A child inherits that: an order to stop that comes before it has taken the signal back would be lost. Blocked,
        # it waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._selector.register(self._commands, selectors.EVENT_READ)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        heard_at = math.inf  # until the worker, which has to start first, says something there is nothing to guard
        worker, beat_at = os.getppid(), heard_at
        while True:
            wait_s = heard_at + LEASE_S - time.monotonic()
            ready = self._selector.select(None if math.isinf(wait_s) else max(0.0, wait_s))
            if time.monotonic() - heard_at > 2 * LEASE_S:
                # This process, too, was frozen: the worker's beats may lie in the socket, so it has its chance.
                heard_at = beat_at = time.monotonic()
            elif not ready and time.monotonic() - heard_at >= LEASE_S:
                if is_stopped(worker) or time.monotonic() - beat_at >= HELD_LEASE_S:
                    return
                heard_at = time.monotonic() - LEASE_S + LOOK_S  # it lives, and its interpreter is held: look again
            for key, _ in ready:
                if key.fileobj is self._commands:
                    data = self._commands.recv(_READ_BYTES)
                    if not data:
                        return
                    heard_at = beat_at = time.monotonic()
                    self._received += data
                    while (command := take(self._received)) is not None:
                        self._obey(command)
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup_read, _READ_BYTES)
            self._reap()

    def _obey(self, command: dict[str, Any]) -> None:
        match command["command"]:
            case "start":
                self._start(command["id"], command["spec"])
            case "signal":
                process_id = self._process_ids.get(command["id"])
                if process_id is not None:
                    if command["signal"] == signal.SIGKILL:
                        _kill_with_group(process_id)
                    else:
                        os.kill(process_id, command["signal"])
            case "beat":
                pass
            case unknown:
                raise ProtocolError(f"unknown command {unknown!r}")

    def _start(self, number: int, spec: str) -> None:
        threads = thread_count()
        if threads != 1:
            self._tell({"event": "refused", "id": number, "reason": f"the zygote has {threads} threads instead of 1"})
            return
        parent = os.getpid()
        try:
            process_id = os.fork()
        except OSError as error:
            self._tell({"event": "refused", "id": number, "reason": f"fork failed: {error}"})
            return
        if process_id == 0:
            self._become_child(parent, spec)
        self._process_ids[number] = process_id
        self._tell({"event": "started", "id": number, "pid": process_id})

    def _become_child(self, parent: int, spec: str) -> NoReturn:
        """Leave everything of the zygote behind and run an instance."""
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # it died before the line above
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            self._selector.close()
            self._commands.close()
            os.close(self._wakeup_read)
            os.close(self._wakeup_write)
            child.run(spec)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        """Tell the worker which instances have ended."""
        for number, process_id in list(self._process_ids.items()):
            ended, status = os.waitpid(process_id, os.WNOHANG)
            if ended:
                del self._process_ids[number]
                _kill_group(process_id)
                self._tell({"event": "ended", "id": number, "code": os.waitstatus_to_exitcode(status)})

    def _tell(self, event: dict[str, Any]) -> None:
        # A worker that is gone is noticed at the next read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._commands.sendall(encode(event))


def _kill_with_group(process_id: int) -> None:
    os.kill(process_id, signal.SIGKILL)  # by itself too: right after the fork it has no group yet
    _kill_group(process_id)


def _kill_group(process_id: int) -> None:
    """End what a function has started itself; it lives in the session of its instance."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)


def fork_zygote() -> ForkedProcess:
    """Fork a zygote from a worker that has started nothing yet; in the zygote this ends with SystemExit.

    Raises:
        OSError: the kernel makes no more processes.
    """
    return fork(_run_forked)


def _run_forked(commands: socket.socket) -> int:
    # User code shall find what it finds below a zygote started by exec: neither the command line's module as
    # `__main__` (multiprocessing would import that again) nor the folder that the worker was started in.
    sys.modules["__main__"] = sys.modules[__name__]
    if not sys.flags.safe_path:
        del sys.path[0]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    _serve(commands)
    return 0


def _serve(commands: socket.socket) -> None:
    child.warm_up(Path(__file__))
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise write to, and so copy, every shared page
    Zygote(commands).run()


def main() -> None:
    """Serve the socket whose descriptor is the only argument."""
    commands = socket.socket(fileno=int(sys.argv[1]))
    commands.set_inheritable(False)
    _serve(commands)


if __name__ == "__main__":
    main()
