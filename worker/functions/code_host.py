"""Process in which packages are examined: it imports our loader once, then forks a child for each package.

An interpreter with our modules takes a third of a second to start, a fork of one milliseconds; it holds no user code
and runs one thread, so the fork is sound. A child has `TIME_LIMIT_S`, then nothing is known about its package. In the
end it is killed with all that it started, which carries its mark (`runtime.process.marks`) and becomes a child of this
process when it loses its parent. The process ends with its worker, or when nothing was asked for `IDLE_S`.

    python -m magnetar.worker.functions.code_host <number of a socket>
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...instance.loading import pulsar_facade
from ...runtime.process import marks
from ...runtime.process.channel import encode, take
from ...runtime.process.forked import LIBC, PR_SET_CHILD_SUBREAPER, die_with
from .code_examination import examine

TIME_LIMIT_S = 3.0
"""For one package; one that takes longer, as large libraries may, is not refused."""
IDLE_S = 60.0
AT_ONCE_MAX = 2
ANSWER_BYTES_MAX = 64 * 1024
_LEFTOVERS_S = 0.2
_LEFTOVERS_PAUSE_S = 0.005
MEMORY_BYTES_MAX = 4 * 1024**3
"""Of addresses, for one package."""


@dataclass(slots=True)
class _Child:
    number: int
    process_id: int
    until_s: float
    answer: bytes = b""


class CodeHost:
    """Serves one worker."""

    def __init__(self, commands: socket.socket) -> None:
        """Serve the commands of a connected socket."""
        self._commands = commands
        self._received = bytearray()
        self._waiting: list[dict[str, Any]] = []
        self._children: dict[int, _Child] = {}  # by the pipe that its answer comes through
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until the worker is gone, or wants nothing any more."""
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._selector.register(self._commands, selectors.EVENT_READ)
        asked_at_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            wait_s = min((child.until_s for child in self._children.values()), default=asked_at_s + IDLE_S) - now_s
            ready = self._selector.select(max(0.0, wait_s))
            for key, _ in ready:
                if key.fileobj is not self._commands:
                    self._read(key.fd)
                    continue
                data = self._commands.recv(ANSWER_BYTES_MAX)
                if not data:
                    self._kill_all()
                    return
                asked_at_s = time.monotonic()
                self._received += data
                while (command := take(self._received)) is not None:
                    self._waiting.append(command)
            for pipe in [pipe for pipe, child in self._children.items() if child.until_s <= time.monotonic()]:
                self._end(pipe, is_known=False)
            while self._waiting and len(self._children) < AT_ONCE_MAX:
                self._start(self._waiting.pop(0))
            if not self._children and not self._waiting and time.monotonic() - asked_at_s >= IDLE_S:
                return

    def _start(self, command: dict[str, Any]) -> None:
        reading, writing = os.pipe()
        parent = os.getpid()
        process_id = os.fork()
        if not process_id:
            os.close(reading)
            _examine(command, writing, parent)
        os.close(writing)
        child = _Child(command["id"], process_id, time.monotonic() + TIME_LIMIT_S)
        self._children[reading] = child
        self._selector.register(reading, selectors.EVENT_READ)

    def _read(self, pipe: int) -> None:
        child = self._children[pipe]
        piece = os.read(pipe, ANSWER_BYTES_MAX)
        child.answer += piece
        if not piece or len(child.answer) > ANSWER_BYTES_MAX:
            self._end(pipe, is_known=True)

    def _end(self, pipe: int, *, is_known: bool) -> None:
        child = self._children.pop(pipe)
        self._selector.unregister(pipe)
        os.close(pipe)
        _kill(child)
        refusal = _refusal(child.answer) if is_known else None
        self._commands.sendall(encode({"id": child.number, "isKnown": refusal is not None, "refusal": refusal or ""}))

    def _kill_all(self) -> None:
        for child in self._children.values():
            _kill(child)


def _refusal(answer: bytes) -> str | None:
    """Return what a child has said; None if it ended before, or something else has written into its pipe."""
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    found = said.get("refusal") if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


def _kill(child: _Child) -> None:
    """Kill a child and all that it has started."""
    for end in (os.killpg, os.kill):  # it may have no group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(child.process_id, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.process_id, 0)
    mark, until_s = marks.mark_of(os.getpid(), child.number), time.monotonic() + _LEFTOVERS_S
    while left := [pid for pid in _own_children() if marks.kill(pid, mark)]:
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() >= until_s:
            return  # it waits for a disk
        time.sleep(_LEFTOVERS_PAUSE_S)


def _own_children() -> list[int]:
    """Return the children of this process; whatever lost its parent is among them."""
    own = os.getpid()
    try:
        return [int(word) for word in Path(f"/proc/{own}/task/{own}/children").read_bytes().split()]
    except OSError:  # the kernel does not say; looking at all processes takes longer
        return list(marks.find(own))


def _examine(command: dict[str, Any], answers: int, parent: int) -> None:
    """Examine a package and end this process, whatever the package does."""
    try:
        die_with(parent)
        marks.put_on(marks.mark_of(parent, command["id"]))
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        # User code must find neither the worker's socket nor the pipe among its files by chance; the pipe it needs.
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != answers:
                with contextlib.suppress(OSError):
                    os.close(number)
        # What fails at a limit is not refused; it only must not take the worker's memory, or fill a disk with its core.
        for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CORE, 0)):
            _, allowed = resource.getrlimit(limit)
            resource.setrlimit(limit, (most if allowed < 0 else min(most, allowed), allowed))
        pulsar_facade.install()
        sys.argv[:] = ["magnetar-instance"]
        refusal = examine(
            Path(command["package"]), command["className"], is_called=command["isCalled"],
            settings=base64.b64decode(command["settings"]),
        )  # fmt: skip
        os.write(answers, json.dumps({"refusal": refusal}).encode())
    finally:
        os._exit(0)


def main() -> None:
    """Serve the socket whose number is the first argument."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # a terminal's Ctrl-C reaches this process too; the worker decides
    with contextlib.suppress(ConnectionError), socket.socket(fileno=int(sys.argv[1])) as commands:
        CodeHost(commands).run()


if __name__ == "__main__":
    main()
