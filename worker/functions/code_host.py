"""Process in which packages are examined: it imports our loader once, then forks a child for each package.

An interpreter with our modules takes a third of a second to start, a fork of one milliseconds; it holds no user code
and runs one thread, so the fork is sound. A child has `TIME_LIMIT_S`, then it is killed with all that it started, and
nothing is known about its package. The process ends with its worker, or when nothing was asked for `IDLE_S`.

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
from ...runtime.process.channel import encode, take
from .code_examination import examine

TIME_LIMIT_S = 3.0
"""For one package; one that takes longer, as large libraries may, is not refused."""
IDLE_S = 60.0
AT_ONCE_MAX = 2
ANSWER_BYTES_MAX = 64 * 1024
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
        process_id = os.fork()
        if not process_id:
            os.close(reading)
            _examine(command, writing)
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
        _kill(child.process_id)
        answer: dict[str, Any] = {"id": child.number, "isKnown": False, "refusal": ""}
        with contextlib.suppress(ValueError):  # it ended before it could say anything
            if is_known:
                answer.update(isKnown=True, refusal=str(json.loads(child.answer)["refusal"]))
        self._commands.sendall(encode(answer))

    def _kill_all(self) -> None:
        for child in self._children.values():
            _kill(child.process_id)


def _kill(process_id: int) -> None:
    for end in (os.killpg, os.kill):  # it may have no group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(process_id, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process_id, 0)


def _examine(command: dict[str, Any], answers: int) -> None:
    """Examine a package and end this process, whatever the package does."""
    try:
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
