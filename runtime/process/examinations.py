"""Examinations of packages, each in a process that the zygote forks for it: whether the code can work on any worker.

A fork of the zygote has our modules already, which an interpreter of its own would take half a second for. A child has
`TIME_LIMIT_S`; of what takes longer nothing is known, and it is killed. It carries a mark as instances do (`marks`), by
which the zygote ends what it has started. As many as `AT_ONCE_MAX` run at a time; the others wait.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ...instance.examination.package import Question, examine
from ...instance.loading import pulsar_facade
from ...instance.system_user import SystemUser
from .dropping import become, close_all_but, open_of, read_all
from .forked import FIRST_FILE, thread_count

TIME_LIMIT_S = 3.0
"""For one package; one that takes longer, as large libraries may, is not refused."""
AT_ONCE_MAX = 2
ANSWER_BYTES_MAX = 64 * 1024
MEMORY_BYTES_MAX = 4 * 1024**3
"""Of addresses, for one package."""


@dataclass(slots=True)
class _Child:
    """A process that examines.

    Attributes:
        number: the worker's.
        process_id: its own.
        until_s: when it is killed, by `time.monotonic`.
        answer: what it has said.
    """

    number: int
    process_id: int
    until_s: float
    answer: bytes = b""


_USER_HOME = "/"


class Examinations:
    """Those of one zygote."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        tell: Callable[[dict[str, Any]], None],
        leave: Callable[[int, int], None],
        kill: Callable[[int], None],
    ) -> None:
        """Prepare.

        Args:
            selector: watches the pipes that answers come through.
            tell: takes an event for the worker.
            leave: called in a child with its parent and its number, leaves all of the zygote behind but its files.
            kill: ends a process with its group.
        """
        self._selector = selector
        self._tell = tell
        self._leave = leave
        self._kill = kill
        self._waiting: deque[dict[str, Any]] = deque()
        self._children: dict[int, _Child] = {}  # by the pipe that its answer comes through
        self._numbers: dict[int, int] = {}  # by process id, until it has ended
        self.users: dict[int, int] = {}  # by the worker's number, of those under another user

    @property
    def pipes(self) -> Iterable[int]:
        """Descriptors of the pipes, which no instance is to have."""
        return self._children

    @property
    def process_ids(self) -> list[int]:
        """Of the processes that have not ended."""
        return list(self._numbers)

    @property
    def next_look_s(self) -> float:
        """When `look` is due, by `time.monotonic`; infinite if there is nothing to look after."""
        return min((child.until_s for child in self._children.values()), default=float("inf"))

    def take(self, command: dict[str, Any]) -> None:
        """Examine a package as soon as fewer are examined."""
        if "file" in command:  # the question lies in a file of the worker's, which is not read here
            try:
                command["file"] = open_of(os.getppid(), command["file"], os.O_RDONLY)
            except OSError:
                self._answer(command["id"], None)
                return
        self._waiting.append(command)
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and len(self._children) < AT_ONCE_MAX:
            command = self._waiting.popleft()
            try:
                self._start(command)
            except OSError:
                self._answer(command["id"], None)
            finally:
                if "file" in command:
                    os.close(command["file"])

    def _start(self, command: dict[str, Any]) -> None:
        if thread_count() != 1:
            raise OSError("another thread may hold a lock that a child would wait for")
        parent = os.getpid()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            process_id = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            raise
        if not process_id:
            _examine(command, writing, parent, partial(self._leave, parent, command["id"]))
        os.close(writing)
        if command.get("user") is not None:
            self.users[command["id"]] = command["user"][1]
        self._numbers[process_id] = command["id"]
        self._children[reading] = _Child(command["id"], process_id, time.monotonic() + TIME_LIMIT_S)
        self._selector.register(reading, selectors.EVENT_READ, self)

    def read(self, pipe: int) -> None:
        """Take what has come through a pipe."""
        child = self._children[pipe]
        piece = os.read(pipe, ANSWER_BYTES_MAX)
        child.answer += piece
        if not piece or len(child.answer) > ANSWER_BYTES_MAX:
            self._end(pipe, _refusal(child.answer))

    def look(self, now_s: float) -> None:
        """End what has taken too long."""
        for pipe in [pipe for pipe, child in self._children.items() if child.until_s <= now_s]:
            self._end(pipe, None)

    def has_ended(self, process_id: int) -> int | None:
        """Take note that a process has ended, and return the worker's number for it; None if it examined nothing."""
        number = self._numbers.pop(process_id, None)
        if number is not None:
            self.users.pop(number, None)
        return number

    def _end(self, pipe: int, refusal: str | None) -> None:
        child = self._children.pop(pipe)
        self._selector.unregister(pipe)
        os.close(pipe)
        if child.process_id in self._numbers:
            self._kill(child.process_id)
        self._answer(child.number, refusal)
        self._start_next()

    def _answer(self, number: int, refusal: str | None) -> None:
        self._tell({"event": "examined", "id": number, "refusal": refusal})


def _refusal(answer: bytes) -> str | None:
    """Return what a child has said; None if it ended before, or something else has written into its pipe."""
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    found = said.get("refusal") if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


def _examine(command: dict[str, Any], answers: int, parent: int, leave: Callable[[], None]) -> NoReturn:
    """Examine a package and end this process, whatever the package does."""
    try:
        leave()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(FIRST_FILE):
            os.dup2(nothing, number)
        question = command.get("question") or json.loads(read_all(command["file"]))
        # User code must find neither the worker's socket nor the pipe among its files by chance; the pipe it needs.
        close_all_but((answers,))
        # What fails at a limit is not refused; it only must not take the worker's memory, or fill a disk with its core.
        for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CORE, 0)):
            _, allowed = resource.getrlimit(limit)
            resource.setrlimit(limit, (most if allowed < 0 else min(most, allowed), allowed))
        if command.get("user") is not None:
            become(SystemUser(*command["user"]), _USER_HOME, parent)
        pulsar_facade.install()
        refusal = examine(Question.from_json(question))
        os.write(answers, json.dumps({"refusal": refusal}).encode())
    finally:
        os._exit(0)
