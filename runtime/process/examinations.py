"""Examinations of packages, each in a process forked by the zygote.

There are two kinds: reading the source (`SOURCE`), which runs no code of the package, and checking whether the code can
work on any worker (`CODE`), which loads it. A fork of the zygote already has our modules, which a new interpreter would
take half a second to import.

A child has limits that depend on its kind (`Limits`), and is killed on timeout. It has a mark like instances (`marks`),
so that the zygote can kill the processes it started. At most `AT_ONCE_MAX` run at a time, at most `PER_TENANT_MAX` of
them for one tenant; the others wait, with tenants served in turn.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ...errors import PackageError
from ...instance.examination.package import Question, examine
from ...instance.examination.source import SourceQuestion, read_source
from ...instance.loading import pulsar_facade
from ...instance.system_user import SystemUser
from ...tasks import FairQueue, Room, Shares
from .dropping import become, close_all_but, open_of, read_all
from .forked import FIRST_FILE, thread_count

SOURCE, CODE = "source", "code"
"""Kinds of questions."""
TIME_LIMIT_S = 3.0
"""Time limit for loading a package, in seconds; a package that takes longer, as large libraries may, is accepted."""
SOURCE_CPU_S = 5
SOURCE_TIME_LIMIT_S = 25.0
"""Time limit for reading a package's source, in seconds: on a busy machine, it can take several times its CPU time."""
SOURCE_MEMORY_BYTES = 1024**3
AT_ONCE_MAX = 3
PER_TENANT_MAX = 2
"""Maximum number of concurrent examinations per tenant, so that one tenant cannot block others."""
ANSWER_BYTES_MAX = 64 * 1024
MEMORY_BYTES_MAX = 4 * 1024**3
"""Address space limit for loading a package."""


class Limits(NamedTuple):
    """Limits of one process.

    Attributes:
        time_s: seconds until it is killed.
        cpu_s: CPU time limit, enforced by the kernel; None for only `time_s`.
        memory_bytes: address space limit, in addition to that of a new fork if `is_beyond_fork`.
        is_beyond_fork: see `memory_bytes`.
    """

    time_s: float
    cpu_s: int | None
    memory_bytes: int
    is_beyond_fork: bool = False

    def apply(self) -> None:
        """Apply the limits to this process."""
        most = self.memory_bytes + (_address_bytes() if self.is_beyond_fork else 0)
        limits = [(resource.RLIMIT_AS, most), (resource.RLIMIT_CORE, 0)]
        if self.cpu_s is not None:
            limits.append((resource.RLIMIT_CPU, self.cpu_s))
        for limit, wanted in limits:
            _, allowed = resource.getrlimit(limit)
            resource.setrlimit(limit, (wanted if allowed < 0 else min(wanted, allowed), allowed))


LIMITS: Mapping[str, Limits] = {
    SOURCE: Limits(SOURCE_TIME_LIMIT_S, SOURCE_CPU_S, SOURCE_MEMORY_BYTES, is_beyond_fork=True),
    CODE: Limits(TIME_LIMIT_S, None, MEMORY_BYTES_MAX),
}


class Examined(NamedTuple):
    """The result of an examination.

    Attributes:
        answer: result from the process, or None.
        has_ended: whether the process exited, or was killed by the kernel at a limit; False if it was killed on
            timeout, or never ran.
        reading: last file that it reported reading.
    """

    answer: dict[str, Any] | None
    has_ended: bool = False
    reading: str = ""


@dataclass(slots=True)
class _Child:
    """An examining process.

    Attributes:
        number: number given by the worker.
        tenant: tenant of the package.
        process_id: process id.
        until_s: deadline, by `time.monotonic`.
        answer: output so far.
    """

    number: int
    tenant: str
    process_id: int
    until_s: float
    answer: bytes = b""


_USER_HOME = "/"


class Examinations:
    """The examinations of one zygote."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        tell: Callable[[dict[str, Any]], None],
        leave: Callable[[int, int], None],
        kill: Callable[[int], None],
    ) -> None:
        """Create an empty set of examinations.

        Args:
            selector: watches the children's pipes.
            tell: sends an event to the worker.
            leave: called in a child with its parent and its number; discards the zygote's state except its files.
            kill: kills a process with its group.
        """
        self._selector = selector
        self._tell = tell
        self._leave = leave
        self._kill = kill
        self._waiting: FairQueue[dict[str, Any]] = FairQueue()
        self._places = Shares(AT_ONCE_MAX, PER_TENANT_MAX)
        self._children: dict[int, _Child] = {}  # by the pipe of its output
        self._numbers: dict[int, int] = {}  # by process id, until the process has ended
        self.users: dict[int, int] = {}  # by the worker's number, for those running as another user

    @property
    def pipes(self) -> Iterable[int]:
        """Descriptors of the pipes, which instances must not inherit."""
        return self._children

    @property
    def process_ids(self) -> list[int]:
        """Ids of the running processes."""
        return list(self._numbers)

    @property
    def next_look_s(self) -> float:
        """Time of the next `look`, by `time.monotonic`; infinite if none is due."""
        return min((child.until_s for child in self._children.values()), default=float("inf"))

    def take(self, command: dict[str, Any]) -> None:
        """Start or queue an examination."""
        if "file" in command:  # the question is in a file of the worker, which is not read here
            try:
                command["file"] = open_of(os.getppid(), command["file"], os.O_RDONLY)
            except OSError:
                self._answer(command["id"], Examined(None))
                return
        self._waiting.put(command["tenant"], command)
        self._start_next()

    def _may_start(self, tenant: str) -> bool:
        return self._places.room(tenant) is Room.FREE

    def _start_next(self) -> None:
        while (command := self._waiting.pop(self._may_start)) is not None:
            try:
                self._start(command)
            except OSError:
                self._answer(command["id"], Examined(None))
            finally:
                if "file" in command:
                    os.close(command["file"])

    def _start(self, command: dict[str, Any]) -> None:
        if thread_count() != 1:
            raise OSError("cannot fork safely: another thread may hold a lock")
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
        until_s = time.monotonic() + LIMITS[command["kind"]].time_s
        self._children[reading] = _Child(command["id"], command["tenant"], process_id, until_s)
        self._places.take(command["tenant"])
        self._selector.register(reading, selectors.EVENT_READ, self)

    def read(self, pipe: int) -> None:
        """Read from a pipe."""
        child = self._children[pipe]
        piece = os.read(pipe, ANSWER_BYTES_MAX)
        child.answer = _last_lines(child.answer + piece)
        if not piece or len(child.answer) > ANSWER_BYTES_MAX:
            self._end(pipe, _said(child.answer))

    def look(self, now_s: float) -> None:
        """Kill processes that have exceeded their time limit."""
        for pipe in [pipe for pipe, child in self._children.items() if child.until_s <= now_s]:
            self._end(pipe, Examined(None))

    def has_ended(self, process_id: int) -> int | None:
        """Record the end of a process, and return the worker's number of its examination, or None."""
        number = self._numbers.pop(process_id, None)
        if number is not None:
            self.users.pop(number, None)
        return number

    def _end(self, pipe: int, examined: Examined) -> None:
        child = self._children.pop(pipe)
        self._places.give_back(child.tenant)
        self._selector.unregister(pipe)
        os.close(pipe)
        if child.process_id in self._numbers:
            self._kill(child.process_id)
        self._answer(child.number, examined)
        self._start_next()

    def _answer(self, number: int, examined: Examined) -> None:
        self._tell({"event": "examined", "id": number, **examined._asdict()})


def _said(text: bytes) -> Examined:
    """Parse a child's output: lines with the files that it reads, then its result.

    The result is missing if the child exited early or something else wrote to its pipe.
    """
    before, _, last = text.rpartition(b"\n")
    reading, said = _object(before).get("reading"), _object(last)
    answer: dict[str, Any] | None = None
    match said:
        case {"refusal": str(refusal)}:
            answer = {"refusal": refusal}
        case {"source": [str(class_name), str(state_call)]}:
            answer = {"source": [class_name, state_call]}
    return Examined(answer, has_ended=True, reading=reading if isinstance(reading, str) else "")


def _last_lines(text: bytes) -> bytes:
    """Return the last complete line of a text, and the remainder after it."""
    return text[text.rfind(b"\n", 0, max(text.rfind(b"\n"), 0)) + 1 :]


def _object(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line, or an empty one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _address_bytes() -> int:
    """Return the address space of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _examine(command: dict[str, Any], answers: int, parent: int, leave: Callable[[], None]) -> NoReturn:
    """Examine a package and end this process, whatever the package does."""
    try:
        leave()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(FIRST_FILE):
            os.dup2(nothing, number)
        question = command.get("question") or json.loads(read_all(command["file"]))
        # User code must not accidentally use the worker's socket, so only the pipe remains open.
        close_all_but((answers,))
        # It must not exhaust the worker's memory or fill a disk with a core dump.
        LIMITS[command["kind"]].apply()
        if command.get("user") is not None:
            become(SystemUser(*command["user"]), _USER_HOME, parent)
        answer = _source_answer(question, answers) if command["kind"] == SOURCE else _code_answer(question)
        os.write(answers, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _code_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Load the code, and return the result; code that fails at a limit is accepted."""
    pulsar_facade.install()
    return {"refusal": examine(Question.from_json(question))}


def _source_answer(question: dict[str, Any], answers: int) -> dict[str, Any]:
    """Read the source, reporting the current file, as a file that is too expensive to read ends this process."""

    def reads(file: str) -> None:
        os.write(answers, json.dumps({"reading": file}).encode() + b"\n")

    try:
        return {"source": read_source(SourceQuestion.from_json(question), reads)}
    except PackageError as error:
        return {"refusal": str(error)}
