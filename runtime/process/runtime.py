"""The process runtime: the worker's side of instances in separate processes, and of the zygote that forks them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...config.function_config import DEFAULT_CPU
from ...errors import ClosedError, ConnectionLost, FunctionLoadError, MagnetarError, PackageError
from ...instance.examination.package import Question
from ...instance.examination.source import Source, SourceQuestion
from ...instance.logs.file import InstanceLog, open_log, tail
from ...instance.secrets import needs_worker
from ...instance.spec import InstanceSpec
from ...instance.system_user import SystemUser, clean_environment
from ...instance.trees import remove_tree
from ...tasks import TaskSet, settle, within
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from ..control import SOCKET_PATH_BYTES_MAX, ControlClient
from ..isolation.places import Isolation
from . import marks, proc
from .channel import BEAT_S, ProcessChannel, execute
from .examinations import (
    CODE,
    SOURCE,
    SOURCE_CPU_S,
    SOURCE_MEMORY_BYTES,
    SOURCE_TIME_LIMIT_S,
    TIME_LIMIT_S,
    Examined,
)
from .forked import ForkedProcess, how_it_ended
from .handed_files import HandedFiles, memory_file
from .liveness import Liveness

log = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0  # time for a fork; on an overloaded machine the zygote may have to be started first
KILL_TIMEOUT_S = 20.0  # time for a zygote on a busy machine to kill an instance
CLOSE_TIMEOUT_S = 2.0
LIVENESS_CHECK_S = 10.0
SILENCE_SHOWN_S = 3.0  # a starting process does not respond either
LOG_LINES_OF_A_CRASH = 20
LAST_WORDS_BYTES_MAX = 64 * 1024
EXAMINATION_TIMEOUT_S = TIME_LIMIT_S + 2.0
"""How long a request waits for the examination of its package, in seconds; after that the package is accepted."""
SOURCE_TIMEOUT_S = SOURCE_TIME_LIMIT_S + 5.0
"""How long a request waits until the source of its package is read, in seconds; after that it is rejected."""
ZYGOTE_END_S = 10.0
REASON_TIMEOUT_S = 5.0  # time to read the exit reason and the end of the log from a possibly slow disk
_ZYGOTE = "magnetar.runtime.process.zygote"


class ProcessInstance:
    """An instance in a separate process."""

    def __init__(self, spec: InstanceSpec, number: int, zygote: ZygoteClient, check_s: float) -> None:
        """Create an instance that the runtime starts.

        Args:
            spec: instance to run.
            number: number that is unique among all instances the worker ever started.
            zygote: zygote that forks it.
            check_s: seconds between two health checks; 0 for none.
        """
        self.process_id = 0
        self.number = number
        self.spec = spec
        self._zygote = zygote
        self._check_s = check_s
        self._control = ControlClient(spec.control_socket, None if spec.user is None else spec.user.uid)
        self.files: HandedFiles | None = None
        self.discard: Callable[[Path], None] = remove_tree
        self._is_stopping = False
        self._verdict = ""
        self._death = ""
        self._liveness = Liveness(check_s, time.monotonic())
        self._tasks = TaskSet(f"instance {spec.key}")
        self._started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def started(self) -> None:
        """Wait until the process was forked.

        Raises:
            MagnetarError: forking failed.
        """
        async with asyncio.timeout(START_TIMEOUT_S):
            self.process_id = await self._started
        if self._check_s > 0:
            self._tasks.keep(self._watch, "liveness")

    async def _watch(self) -> None:
        """Check the instance's health periodically, and kill it if it is unresponsive for too long."""
        while not self._ended.done():
            await asyncio.sleep(self._check_s)
            try:
                await self._control.check_health()
            except ConnectionLost as error:
                log.debug("%s: %s", self.spec.key, error)
                waited_s = await asyncio.to_thread(proc.waited_for_processor_s, self.process_id)
                self._liveness.missed(time.monotonic(), waited_s)
            else:
                self._liveness.answered(time.monotonic())
            if self._liveness.is_hanging and not self._is_stopping and not self._ended.done():
                self._verdict = self._liveness.reason(time.monotonic())
                log.error("killing %s: %s", self.spec.key, self._verdict)
                self._zygote.kill_instance(self.number)
                return

    async def status(self) -> FunctionStatus:  # noqa: D102  documented in interface.Instance
        if self._ended.done():
            return FunctionStatus(failureException=self._ended.result())
        try:
            status = await self._control.status()
            self._liveness.seen(time.monotonic())
        except ConnectionLost as error:
            log.debug("%s: %s", self.spec.key, error)
            status = FunctionStatus()  # starting, ending or hanging
            now_s = time.monotonic()
            is_silent = self._liveness.is_silent and now_s - self._liveness.silent_since_s > SILENCE_SHOWN_S
            if self._check_s > 0 and is_silent and not self._is_stopping:
                status.failureException = self._liveness.reason(now_s)
        if self._is_stopping:
            # Until it has ended, it may still be processing its last message, regardless of its own status.
            status.running = not self._ended.done()
        return status

    async def metrics(self) -> MetricsData:  # noqa: D102
        if self._ended.done():
            return MetricsData()
        try:
            return await self._control.metrics()
        except ConnectionLost as error:
            log.debug("%s: %s", self.spec.key, error)
            return MetricsData()

    async def stop(self, grace_s: float) -> None:  # noqa: D102
        if self._ended.done():
            return
        self._is_stopping = True
        self._zygote.signal_instance(self.number, signal.SIGTERM)
        if await within(grace_s, self.wait()):
            return
        self._zygote.kill_instance(self.number)
        if await within(KILL_TIMEOUT_S, self.wait()):
            return
        log.error("killing the zygote, which did not end %s within %g s", self.spec.key, KILL_TIMEOUT_S)
        self._zygote.channel.kill()
        if not await within(KILL_TIMEOUT_S, self.wait()):
            self.has_ended(f"process {self.process_id} cannot be killed, it is blocked in the kernel")

    def leftover(self) -> str:  # noqa: D102
        return ""  # a process can always be killed

    def death(self) -> str:  # noqa: D102
        return self._death

    async def wait(self) -> str:  # noqa: D102
        return await asyncio.shield(self._ended)

    def has_started(self, process_id: int) -> None:
        """Record that the process runs."""
        settle(self._started, process_id)

    def has_ended(self, reason: str) -> None:
        """Record that the process has ended."""
        self._tasks.cancel()
        if not self._started.done():
            self._started.set_exception(FunctionLoadError(reason))
            self._started.exception()  # avoid a warning if nothing awaits it
        settle(self._ended, reason)

    def reason_of(self, code: int, said: str, verdict: str) -> str:
        """Return why the process ended: our own reason, the one it wrote, or its exit code and log."""
        if self.files is not None:
            said = self.files.rest()
        if said:
            self._keep_said(said)
        decided = verdict or self._verdict
        self._death = "" if self._is_stopping else decided or f"the process {how_it_ended(code)}"
        if code == 0:
            return ""
        if decided:
            return decided
        with contextlib.suppress(OSError):
            with open(open_log(self.spec.last_words, os.O_RDONLY), "rb") as file:
                text = file.read(LAST_WORDS_BYTES_MAX).decode("utf-8", "replace")
            self.spec.last_words.unlink()
            if text:
                self._death = ""
                return text
        end = tail(self.spec.log_file, LOG_LINES_OF_A_CRASH) if code != -signal.SIGKILL else ""
        return f"the instance's process {how_it_ended(code)}" + (f"; the end of its log:\n{end}" if end else "")

    def _keep_said(self, said: str) -> None:
        with contextlib.suppress(OSError):
            instance_log = InstanceLog(self.spec.log_file)
            instance_log.write("ERROR", said)
            instance_log.close()

    async def close(self) -> None:
        """Close the connection to the process."""
        await within(CLOSE_TIMEOUT_S, self._control.close())
        if self.files is not None:
            self.files.close()
        if self.spec.home is not None:
            await asyncio.to_thread(self.discard, self.spec.home)
            return
        with contextlib.suppress(OSError):
            self.spec.control_socket.unlink()


class ZygoteClient:
    """A zygote and the instances that it started.

    Invariant: every instance started through a client is notified of its end, despite any error in an event, a log file
    or the connection: a single instance if its event cannot be processed, and all when the zygote ends.

    Attributes:
        channel: connection to the zygote.
    """

    def __init__(self, channel: ProcessChannel) -> None:
        """Create a client that listens to the zygote, and sends a heartbeat every `BEAT_S`."""
        self.channel = channel
        self._instances: dict[int, ProcessInstance] = {}
        self._examined: dict[int, asyncio.Future[Examined]] = {}
        self._is_closing = False
        self._tasks = TaskSet(f"zygote {channel.pid}")
        self._ended = asyncio.Event()
        self._tasks.start(self._listen(), "events")
        self._beat()

    def add(self, number: int, instance: ProcessInstance) -> None:
        """Start notifying an instance of its process's events."""
        self._instances[number] = instance

    def forget(self, number: int) -> None:
        """Stop notifying an instance."""
        self._instances.pop(number, None)

    async def examine(
        self, number: int, kind: str, question: Question | SourceQuestion, user: SystemUser | None = None
    ) -> Examined:
        """Examine a package, and return the result.

        Args:
            number: examination number.
            kind: kind of question.
            question: question about the package.
            user: user that examines it; None for the worker's own user.
        """
        future = self._examined[number] = asyncio.get_running_loop().create_future()
        file = -1
        try:
            command: dict[str, Any] = {"command": "examine", "id": number, "kind": kind, "tenant": question.tenant}
            if user is None:
                command["question"] = question.to_json()
            else:
                file = memory_file("question", json.dumps(question.to_json()))
                command |= {"file": file, "user": user}
            if not self.channel.is_open:
                return Examined(None)
            self.channel.tell(command)
            found: Examined = await future
            return found
        finally:
            del self._examined[number]
            if file >= 0:
                os.close(file)

    def _beat(self) -> None:
        if self.channel.is_open:
            self.channel.tell({"command": "beat"})
            asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    async def _listen(self) -> None:
        """Handle the zygote's events until it ends; its instances end with it."""
        reason = ""
        try:
            reason = await self.channel.listen(self._take)
        finally:
            reason = reason or f"the process that starts instances {await self._reap()}"
            if not self._is_closing:
                log.error("%s; restarting its %d instances", reason, len(self._instances))
            instances, self._instances = self._instances, {}
            for future in self._examined.values():
                settle(future, Examined(None))
            await asyncio.gather(*(self._finish(instance, reason) for instance in instances.values()))
            self._ended.set()

    async def _reap(self) -> str:
        """Wait until the zygote has ended, killing it if necessary, and return how it ended."""
        for kills in (False, True):
            if kills:
                log.error("killing the zygote, which did not end within %g s", ZYGOTE_END_S)
                self.channel.kill()
            try:
                async with asyncio.timeout(ZYGOTE_END_S):
                    code = await self.channel.wait()
            except TimeoutError:
                continue
            if code:
                # If killed, it could not kill the processes started by its instances.
                await asyncio.to_thread(marks.end_all_of, self.channel.pid)
            return how_it_ended(code)
        return f"cannot be killed (process {self.channel.pid}), it is blocked in the kernel"

    def _take(self, body: bytes) -> None:
        instance: ProcessInstance | None = None
        try:
            event = json.loads(body)
            instance = self._instances.get(event["id"])
            self._take_event(event["id"], instance, event)
        except Exception as error:
            log.exception("cannot handle an event from the zygote: %r", body[:200])
            if instance is not None:
                self._instances.pop(event["id"], None)
                instance.has_ended(f"the worker could not handle an event from the zygote: {error!r}")

    def _take_event(self, number: int, instance: ProcessInstance | None, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "examined":
            if (future := self._examined.get(number)) is not None:
                settle(future, Examined(event["answer"], event["has_ended"], event["reading"]))
        elif instance is None:
            if kind == "started":  # too late: it was cancelled and would delay its successor
                self.kill_instance(number)
        elif kind == "started":
            instance.has_started(event["pid"])
        elif kind == "refused":
            self._instances.pop(number)
            self._end(instance, self._finish(instance, event["reason"]))
        elif kind == "ended":
            self._instances.pop(number)
            self._end(instance, self._explain(instance, event))

    def _end(self, instance: ProcessInstance, work: Any) -> None:
        """Handle the end of an instance without delaying the others' events."""
        self._tasks.start(work, "end of an instance", on_failure=lambda error: instance.has_ended(repr(error)))

    async def _explain(self, instance: ProcessInstance, event: dict[str, Any]) -> None:
        reason = f"the instance's process {how_it_ended(event['code'])}"
        try:
            async with asyncio.timeout(REASON_TIMEOUT_S):
                reason = await asyncio.to_thread(instance.reason_of, event["code"], event["said"], event["verdict"])
        except Exception as error:  # noqa: BLE001  on any error, the instance's end is still reported
            log.warning("%s; cannot determine the reason: %r", reason, error)
        finally:
            await self._finish(instance, reason)

    async def _finish(self, instance: ProcessInstance, reason: str) -> None:
        try:
            await instance.close()  # first, because its successor uses the same socket
        except Exception as error:  # noqa: BLE001
            log.warning("failed to close the connection to an instance: %r", error)
        finally:
            instance.has_ended(reason)

    def signal_instance(self, number: int, which: int) -> None:
        """Send a signal to an instance, if it still runs."""
        self.channel.tell({"command": "signal", "id": number, "signal": int(which)})

    def kill_instance(self, number: int) -> None:
        """Kill an instance and all processes that it started."""
        self.signal_instance(number, 9)

    async def close(self) -> None:
        """End the zygote and all instances; returns when this is done or has failed."""
        self._is_closing = True
        self.channel.close()
        await self._ended.wait()  # `_reap` limits the duration
        await self._tasks.close()


class ProcessRuntime:
    """Starts instances through a zygote, and restarts the zygote when it has ended."""

    def __init__(
        self,
        zygote: ForkedProcess | None = None,
        liveness_check_s: float = LIVENESS_CHECK_S,
        isolation: Isolation | None = None,
    ) -> None:
        """Create a runtime; `warm_up` or the first instance starts the zygote.

        Args:
            zygote: zygote forked while this process had one thread; later ones are started with exec.
            liveness_check_s: seconds between two health checks; 0 or less for none.
            isolation: set if instances run as other users: the zygote then has none of the worker's memory and
                environment.
        """
        self._isolation = isolation
        self._numbers = itertools.count(1)
        self._forked = zygote
        self._check_s = max(0.0, liveness_check_s)
        self._zygote: ZygoteClient | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    async def warm_up(self) -> None:  # noqa: D102  documented in interface.Runtime
        await self._open_zygote()

    async def _open_zygote(self) -> ZygoteClient:
        async with self._starting:
            if self._is_closed:
                raise ClosedError("the worker is stopping")
            if self._zygote is None or not self._zygote.channel.is_open:
                forked, self._forked = self._forked, None
                environment = None if self._isolation is None else clean_environment(os.environ)
                if forked is not None:
                    channel = ProcessChannel(forked, *await forked.attach())
                else:  # -P: user modules must not be imported from the worker's working directory
                    channel = await execute(
                        lambda number: [sys.executable, "-P", "-m", _ZYGOTE, str(number)], environment
                    )
                self._zygote = ZygoteClient(channel)
            return self._zygote

    async def start(self, spec: InstanceSpec) -> ProcessInstance:  # noqa: D102
        if len(os.fsencode(spec.control_socket)) > SOCKET_PATH_BYTES_MAX:
            raise FunctionLoadError(
                f"cannot start {spec.key}: socket path {spec.control_socket} has more than {SOCKET_PATH_BYTES_MAX}"
                " bytes: set TMPDIR to a directory with a shorter path"
            )
        zygote = await self._open_zygote()
        number = next(self._numbers)
        instance = ProcessInstance(spec, number, zygote, self._check_s)
        given = spec.details.resources
        cores = 0.0 if given.cpu == DEFAULT_CPU else given.cpu
        command: dict[str, Any] = {"command": "start", "id": number, "ram": given.ram, "cpu": cores}
        if spec.user is None or spec.home is None:
            with contextlib.suppress(FileNotFoundError):
                spec.last_words.unlink()
            command["spec"] = spec.to_json()
        else:
            assert self._isolation is not None, "a user requires isolation"
            await asyncio.to_thread(self._isolation.open_home, spec.user, spec.home)
            resolves = needs_worker(spec)
            handed = spec if resolves else replace(spec, secrets_config="")  # its memory must not contain the settings
            instance.files = HandedFiles(handed.to_json())
            instance.discard = self._isolation.discard
            command |= {"files": instance.files.numbers, "user": spec.user, "home": str(spec.home)}
            command["resolves"] = resolves
        zygote.add(number, instance)
        zygote.channel.tell(command)
        try:
            await instance.started()
        except (TimeoutError, MagnetarError) as error:
            zygote.forget(number)
            if instance.files is not None:
                instance.files.close()
            reason = str(error) or f"the zygote did not respond within {START_TIMEOUT_S:g} s"
            raise FunctionLoadError(f"cannot start {spec.key}: {reason}") from error
        if instance.files is not None:
            instance.files.keep_output()
        return instance

    async def examine(  # noqa: D102  documented in interface.Examines
        self, question: Question, user: SystemUser | None = None
    ) -> str | None:
        answer = (await self._examined(CODE, question, user, EXAMINATION_TIMEOUT_S)).answer or {}
        refusal = answer.get("refusal")
        return refusal if isinstance(refusal, str) else None

    async def read_source(  # noqa: D102
        self, question: SourceQuestion, user: SystemUser | None = None
    ) -> Source | None:
        examined = await self._examined(SOURCE, question, user, SOURCE_TIMEOUT_S)
        answer = examined.answer or {}
        if "source" in answer:
            return Source(*answer["source"])
        if not answer and not examined.has_ended:
            return None
        raise PackageError(answer.get("refusal") or _too_costly(examined.reading))

    async def _examined(
        self, kind: str, question: Question | SourceQuestion, user: SystemUser | None, timeout_s: float
    ) -> Examined:
        try:
            async with asyncio.timeout(timeout_s):
                zygote = await self._open_zygote()
                return await zygote.examine(next(self._numbers), kind, question, user)
        except (TimeoutError, OSError, ClosedError) as error:
            log.info("could not examine %s: %s", question.class_name, str(error) or "timed out")
            return Examined(None)

    async def close(self) -> None:  # noqa: D102
        self._is_closed = True
        async with self._starting:
            if self._zygote is not None:
                await self._zygote.close()


def _too_costly(file: str) -> str:
    return (
        f"{file or 'the package'} is too expensive to parse: it takes more than {SOURCE_CPU_S} s of CPU time or"
        f" {SOURCE_MEMORY_BYTES // 2**20} MiB of memory; split it, and move data to non-Python files"
    )
