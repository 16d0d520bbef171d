"""The zygote, the parent of all process instances: imports modules once, then forks.

Design: starting an interpreter and importing our modules takes a third of a second and 23 MB; a fork of a process that
has done so takes 2 ms and shares those pages. This is only safe while the parent has a single thread that holds no
locks. So this process creates no threads, event loops, channels or servers, imports no user code, and refuses to fork
if the kernel reports more than one thread.

It is forked from the worker before the worker does anything else, or started with exec if that is too late, and shares
only one socket with it. When that socket closes, the worker has ended, so the zygote ends with its children. The same
happens if the worker, after its first heartbeat, is silent for `LEASE_S` while stopped, or for `HELD_LEASE_S` for any
reason: other workers are about to take over its instances, and wait until these have ended. As the parent of the
children, the zygote never signals a reused process id.

It adopts processes started by instances, and kills them when the instance ends (`marks`). It watches their memory
(`memory_watch`), which a worker with a busy interpreter could not, and puts those with a CPU limit into control groups
(`cpu_groups`). It also forks the examiners of packages (`examinations`).

Invariant: an error with one instance is reported for that instance, and does not affect others.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from . import child, cpu_groups, isolated_child, marks, proc
from .channel import HELD_LEASE_S, LEASE_S, LOOK_S, encode, take
from .cpu_groups import NoCpuLimit
from .examinations import Examinations
from .forked import LIBC, PR_SET_CHILD_SUBREAPER, ForkedProcess, die_with, fork, thread_count
from .memory_watch import MemoryWatch
from .output import Output, is_readable
from .proc import is_stopped

_READ_BYTES = 64 * 1024
SAID_BYTES_MAX = 64 * 1024
"""Number of last bytes of an instance's standard output to keep."""
_OUTGOING_BYTES_MAX = 64 * 1024 * 1024
_END_S = 2.0
_LEFTOVERS_S = 0.2
_LEFTOVERS_PAUSE_S = 0.005
STRAYS_S = 5.0
"""Interval of searching hidden processes of isolated instances, in seconds; this scans all processes of the machine."""


@dataclass(slots=True)
class _Child:
    """A forked instance.

    Attributes:
        number: number assigned by the worker.
        output: read end of its and its children's standard output; -1 if the worker reads it.
        user: id of its user; None for this process's user.
        cpu_group: its control group; None without a CPU limit.
        verdict: why this process killed it, or empty.
    """

    number: int
    output: int
    user: int | None = None
    cpu_group: Path | None = None
    verdict: str = ""


class Zygote:
    """Serves commands of one worker."""

    def __init__(self, commands: socket.socket) -> None:
        """Create a zygote that serves the commands from a connected socket."""
        self._commands = commands
        self._received = bytearray()
        self._outgoing = bytearray()
        self._children: dict[int, _Child] = {}  # by process id
        self._process_ids: dict[int, int] = {}  # by the worker's number of the instance
        self._ended_marks: set[int] = set()  # marks of ended instances with remaining processes
        self._memory = MemoryWatch()
        self._next_strays_s = math.inf
        self._cpu_groups: cpu_groups.CpuGroups | None = None  # found when the first limit is requested
        self._left_cpu_groups: set[Path] = set()  # groups of ended instances
        self._is_worker_gone = False
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._wakeup_read, self._wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._examinations = Examinations(self._selector, self._tell, self._leave, _kill_with_group)

    def run(self) -> None:
        """Serve until the worker has ended, then kill all children and the processes they started."""
        try:
            LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            marks.end_abandoned()
            _allow_files((self._files[1], self._files[1]))  # each instance needs a pipe
            self._serve()
        finally:
            # PR_SET_PDEATHSIG has the same effect if this process is killed; here the children are also reaped, so that
            # init does not inherit zombies.
            for process_id in (*self._children, *self._examinations.process_ids):
                _kill_with_group(process_id)
            self._end_everything()
            self._left_cpu_groups.update(one.cpu_group for one in self._children.values() if one.cpu_group is not None)
            self._remove_cpu_groups(time.monotonic() + _LEFTOVERS_S)

    def _end_everything(self) -> None:
        deadline_s = time.monotonic() + _END_S
        while time.monotonic() < deadline_s:
            left = marks.find(os.getpid())
            for process_id, mark in left.items():
                if process_id in self._children:
                    _kill_with_group(process_id)
                elif mark:
                    marks.kill(process_id, mark)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not any(mark or process_id in self._children for process_id, mark in left.items()):
                return
            time.sleep(_LEFTOVERS_PAUSE_S)

    def _serve(self) -> None:
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_IGN)  # Ctrl-C in a terminal also reaches us, but the worker handles it
        # A child inherits the handler, so a stop signal that arrives before the child resets it would be lost. A
        # blocked signal remains pending until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._selector.register(self._commands, selectors.EVENT_READ)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        heard_at = math.inf  # until the first message from the worker, which must start first
        worker, beat_at = os.getppid(), heard_at
        while not self._is_worker_gone:
            due_s = min(
                heard_at + LEASE_S, self._memory.next_look_s, self._examinations.next_look_s, self._next_strays_s
            )
            wait_s = due_s - time.monotonic()
            ready = self._selector.select(None if math.isinf(wait_s) else max(0.0, wait_s))
            if time.monotonic() - heard_at > 2 * LEASE_S:
                # This process was also frozen, so the worker's heartbeats may be waiting in the socket.
                heard_at = beat_at = time.monotonic()
            elif not ready and time.monotonic() - heard_at >= LEASE_S:
                if is_stopped(worker) or time.monotonic() - beat_at >= HELD_LEASE_S:
                    return
                heard_at = (
                    time.monotonic() - LEASE_S + LOOK_S
                )  # it is running, but its interpreter is blocked: check again later
            for key, events in ready:
                if key.fileobj is self._commands:
                    if events & selectors.EVENT_WRITE:
                        self._send()
                    if not events & selectors.EVENT_READ:
                        continue
                    data = self._commands.recv(_READ_BYTES)
                    if not data:
                        return
                    heard_at = beat_at = time.monotonic()
                    self._received += data
                    while (command := take(self._received)) is not None:
                        self._obey(command)
                elif key.data is self._examinations:
                    self._examinations.read(key.fd)
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup_read, _READ_BYTES)
            self._reap()
            self._look_after_memory()
            self._look_for_strays()
            self._examinations.look(time.monotonic())

    def _obey(self, command: dict[str, Any]) -> None:
        try:
            match command["command"]:
                case "start":
                    self._start(command["id"], command, command["ram"], command["cpu"])
                case "signal":
                    process_id = self._process_ids.get(command["id"])
                    if process_id is not None:
                        if command["signal"] == signal.SIGKILL:
                            _kill_with_group(process_id)
                        else:
                            os.kill(process_id, command["signal"])
                case "examine":
                    self._examinations.take(command)
                case "beat":
                    pass
                case unknown:
                    _complain(f"unknown command {unknown!r}")
        except Exception as error:  # noqa: BLE001  an error with one instance must not affect others
            _complain(f"command {command.get('command')} for instance {command.get('id')}: {error!r}")
            if command.get("command") == "start":
                self._tell({"event": "refused", "id": command["id"], "reason": repr(error)})

    def _start(self, number: int, command: dict[str, Any], ram_bytes: int, cores: float) -> None:
        threads = thread_count()
        if threads != 1:
            self._tell({"event": "refused", "id": number, "reason": f"the zygote has {threads} threads instead of 1"})
            return
        parent = os.getpid()
        try:
            group = self._make_cpu_group(number, cores)
        except (OSError, NoCpuLimit) as error:
            self._tell({"event": "refused", "id": number, "reason": f"resources.cpu cannot be enforced: {error}"})
            return
        user = command.get("user")
        try:
            if user is None:
                spec, output = -1, Output(*os.pipe2(os.O_CLOEXEC))
            else:
                spec, output = isolated_child.open_files(os.getppid(), command["files"])
        except OSError as error:
            self._leave_cpu_group(group)
            self._tell({"event": "refused", "id": number, "reason": f"cannot create a pipe for its output: {error}"})
            return
        try:
            process_id = os.fork()
        except OSError as error:
            for descriptor in (output.read_end, output.write_end, *((spec,) if spec >= 0 else ())):
                os.close(descriptor)
            self._leave_cpu_group(group)
            self._tell({"event": "refused", "id": number, "reason": f"fork failed: {error}"})
            return
        if process_id == 0:
            self._become_child(parent, number, command, spec, output)
        os.close(output.write_end)
        if user is None:
            found = _Child(number, output.read_end, None, group)
        else:
            os.close(spec)
            os.close(output.read_end)
            found = _Child(number, -1, user[1], group)
            self._next_strays_s = min(self._next_strays_s, time.monotonic() + STRAYS_S)
        self._children[process_id] = found
        if group is not None:
            try:
                cpu_groups.add(group, process_id)  # it takes milliseconds until the instance runs user code
            except OSError as error:
                found.verdict = f"the instance was ended because resources.cpu cannot be enforced: {error}"
                _kill_with_group(process_id)
        self._process_ids[number] = process_id
        if ram_bytes > 0:
            self._memory.add(process_id, ram_bytes, found.user)
        self._tell({"event": "started", "id": number, "pid": process_id})

    def _make_cpu_group(self, number: int, cores: float) -> Path | None:
        """Return the control group for an instance, or None without a limit."""
        if cores <= 0:
            return None
        if self._cpu_groups is None:
            self._cpu_groups = cpu_groups.find()
            self._cpu_groups.remove_abandoned()
        return self._cpu_groups.make(os.getpid(), number, cores)

    def _leave_cpu_group(self, group: Path | None) -> None:
        """Remove a group, now or when its remaining processes have ended."""
        if group is not None and not cpu_groups.remove(group):
            self._left_cpu_groups.add(group)

    def _remove_cpu_groups(self, deadline_s: float) -> None:
        """Remove the groups of ended instances, which the kernel empties shortly after it reports the exit."""
        while self._left_cpu_groups:
            self._left_cpu_groups = {group for group in self._left_cpu_groups if not cpu_groups.remove(group)}
            if time.monotonic() >= deadline_s:
                return
            time.sleep(_LEFTOVERS_PAUSE_S)

    def _become_child(self, parent: int, number: int, command: dict[str, Any], spec: int, output: Output) -> NoReturn:
        """Discard all state of the zygote and run an instance."""
        try:
            self._leave(parent, number)
            if spec >= 0:
                isolated_child.run(command, parent, spec, output)
            self._selector.close()
            self._commands.close()
            outputs = [one.output for one in self._children.values() if one.output >= 0]
            for descriptor in (self._wakeup_read, self._wakeup_write, *outputs, *self._examinations.pipes):
                os.close(descriptor)
            child.run(command["spec"], output)
        finally:
            os._exit(1)

    def _leave(self, parent: int, number: int) -> None:
        """Discard all state of the zygote except its files, in a child."""
        die_with(parent)
        os.setsid()
        marks.put_on(marks.mark_of(parent, number))
        _die_first_when_memory_is_short()
        _allow_files(self._files)
        signal.set_wakeup_fd(-1)
        for ignored in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _reap(self) -> None:
        """Report ended instances to the worker, and clean up after them."""
        ended: list[tuple[_Child, int]] = []
        with contextlib.suppress(ChildProcessError):
            while True:
                process_id, status = os.waitpid(-1, os.WNOHANG)
                if not process_id:
                    break
                found = self._children.pop(process_id, None)
                if found is not None:
                    self._process_ids.pop(found.number, None)
                    self._memory.remove(process_id)
                    _kill_group(process_id)
                    self._ended_marks.add(marks.mark_of(os.getpid(), found.number))
                    ended.append((found, os.waitstatus_to_exitcode(status)))
                elif (number := self._examinations.has_ended(process_id)) is not None:
                    _kill_group(process_id)
                    self._ended_marks.add(marks.mark_of(os.getpid(), number))
        if self._ended_marks:
            self._end_leftovers(waits=bool(ended))
        self._left_cpu_groups.update(one.cpu_group for one, _ in ended if one.cpu_group is not None)
        self._remove_cpu_groups(time.monotonic())
        for one, code in ended:
            said = _rest_of(one.output) if one.output >= 0 else ""
            self._tell({"event": "ended", "id": one.number, "code": code, "said": said, "verdict": one.verdict})

    def _end_leftovers(self, waits: bool) -> None:
        """Kill the remaining processes of ended instances.

        Args:
            waits: wait briefly until they have ended; processes that wait for a disk and cannot end are checked again
                later.
        """
        deadline_s = time.monotonic() + (_LEFTOVERS_S if waits else 0.0)
        while True:
            left = marks.find(os.getpid())
            for process_id, mark in left.items():
                if mark in self._ended_marks:
                    marks.kill(process_id, mark)
            self._end_strays(left)
            self._ended_marks.intersection_update(left.values())
            if not self._ended_marks or time.monotonic() >= deadline_s:
                return
            time.sleep(_LEFTOVERS_PAUSE_S)

    def _end_strays(self, left: Mapping[int, int]) -> None:
        """Kill processes of isolated instances that hide their origin by lowering the resource limit.

        Args:
            left: descendants and their marks; each must have the mark of a living instance, and run as its user or
                still as ours.
        """
        if not any(one.user is not None for one in self._children.values()) and not self._examinations.users:
            return
        own = os.getpid()
        users = {marks.mark_of(own, one.number): one.user for one in self._children.values()}
        users |= {marks.mark_of(own, number): user for number, user in self._examinations.users.items()}
        known = {*self._children, *self._examinations.process_ids}
        for process_id, mark in left.items():
            if process_id in known or (mark in users and users[mark] is None):
                continue
            if mark not in users or proc.user_of(process_id) not in (users[mark], os.getuid(), None):
                marks.kill(process_id, mark)

    def _look_for_strays(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_strays_s:
            self._end_strays(marks.find(os.getpid()))
            has_users = any(one.user is not None for one in self._children.values())
            self._next_strays_s = now_s + STRAYS_S if has_users else math.inf

    def _look_after_memory(self) -> None:
        for process_id, verdict in self._memory.look(time.monotonic()):
            found = self._children.get(process_id)
            if found is not None:
                found.verdict = verdict
                _kill_with_group(process_id)

    def _tell(self, event: dict[str, Any]) -> None:
        self._outgoing += encode(event)
        self._send()

    def _send(self) -> None:
        """Send as much as the worker accepts now, and the remainder later; the worker's interpreter may be blocked."""
        try:
            while self._outgoing:
                del self._outgoing[: self._commands.send(self._outgoing)]
        except BlockingIOError:
            self._is_worker_gone = len(self._outgoing) > _OUTGOING_BYTES_MAX
        except OSError:
            self._is_worker_gone = True
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._commands, wanted)


def _complain(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the worker's standard error may be closed
        print(f"magnetar zygote: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _rest_of(output: int) -> str:
    """Return the unread standard output of an instance, and close the pipe."""
    rest = b""
    try:
        while is_readable(output, 0) and (piece := os.read(output, _READ_BYTES)):
            rest = (rest + piece)[-SAID_BYTES_MAX:]
    except OSError as error:
        _complain(f"the last output of an instance was lost: {error}")
    os.close(output)
    return rest.decode("utf-8", "replace")


def _allow_files(limits: tuple[int, int]) -> None:
    with contextlib.suppress(OSError, ValueError):  # it may no longer be permitted
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _die_first_when_memory_is_short() -> None:
    """Make the kernel kill this process and its children before brokers and workers if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _kill_with_group(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)  # also individually: right after the fork it has no group yet
    _kill_group(process_id)


def _kill_group(process_id: int) -> None:
    """Kill an instance's process group: the processes that its function started in the same session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)


def fork_zygote() -> ForkedProcess:
    """Fork a zygote from a worker that has not started anything yet; in the zygote this raises SystemExit.

    Raises:
        OSError: the kernel cannot create a process.
    """
    return fork(_run_forked)


def _run_forked(commands: socket.socket) -> int:
    # User code must see the same environment as with a zygote started with exec: neither the command line's module as
    # `__main__`, which multiprocessing would import again, nor the worker's start directory.
    sys.modules["__main__"] = sys.modules[__name__]
    if not sys.flags.safe_path:
        del sys.path[0]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    _serve(commands)
    return 0


def _serve(commands: socket.socket) -> None:
    child.warm_up()
    gc.collect()
    gc.freeze()  # otherwise a collection in a child would write to, and so copy, every shared page
    commands.setblocking(False)
    Zygote(commands).run()


def main() -> None:
    """Serve the socket whose descriptor is the only argument."""
    commands = socket.socket(fileno=int(sys.argv[1]))
    commands.set_inheritable(False)
    _serve(commands)


if __name__ == "__main__":
    main()
