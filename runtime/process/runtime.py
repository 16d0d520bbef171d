"""Instances as processes of their own, seen from the worker."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import signal
import socket
import sys

from ...errors import ClosedError, ConnectionLost, FunctionLoadError, MagnetarError
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from ..control import ControlClient
from ..logs import tail
from ..spec import InstanceSpec
from .forked import ForkedProcess
from .messages import BEAT_S, LENGTH_BYTES, body_bytes, encode

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0  # for a fork; the zygote itself may have to be started first
ZYGOTE_END_S = 3.0
LOG_LINES_OF_A_CRASH = 20


ZygoteProcess = ForkedProcess | asyncio.subprocess.Process


class ProcessInstance:
    """One process."""

    def __init__(self, spec: InstanceSpec, number: int, runtime: ProcessRuntime) -> None:
        """Prepare; the runtime starts it."""
        self.process_id = 0
        self._spec = spec
        self._number = number
        self._runtime = runtime
        self._control = ControlClient(spec.control_socket)
        self._is_stopping = False
        self._started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def started(self) -> None:
        """Wait for the fork.

        Raises:
            MagnetarError: there was none.
        """
        async with asyncio.timeout(START_TIMEOUT_S):
            self.process_id = await self._started

    async def status(self) -> FunctionStatus:  # noqa: D102  documented in ports.Instance
        if self._ended.done():
            return FunctionStatus(failureException=self._ended.result())
        try:
            status = await self._control.status()
        except ConnectionLost as error:
            log.debug("%s: %s", self._spec.key, error)
            status = FunctionStatus()  # starting, or ending just now
        if self._is_stopping:
            # Until it has ended it may still be at its last message, whatever it says itself.
            status.running = not self._ended.done()
        return status

    async def metrics(self, reset: bool = False) -> MetricsData:  # noqa: D102
        if self._ended.done():
            return MetricsData()
        try:
            return await self._control.metrics(reset)
        except ConnectionLost as error:
            log.debug("%s: %s", self._spec.key, error)
            return MetricsData()

    async def stop(self, grace_s: float) -> None:  # noqa: D102
        if self._ended.done():
            return
        self._is_stopping = True
        self._runtime.signal(self._number, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.wait()
                return
        self._runtime.signal(self._number, signal.SIGKILL)
        await self.wait()

    def leftover(self) -> str:  # noqa: D102
        return ""  # a process always ends

    async def wait(self) -> str:  # noqa: D102
        return await asyncio.shield(self._ended)

    def has_started(self, process_id: int) -> None:
        """Take the word of the zygote that the process runs."""
        if not self._started.done():
            self._started.set_result(process_id)

    def has_ended(self, reason: str) -> None:
        """Take the word of the zygote that the process is gone."""
        if not self._started.done():
            self._started.set_exception(FunctionLoadError(reason))
            self._started.exception()  # nobody may be waiting
        if not self._ended.done():
            self._ended.set_result(reason)

    def reason_of(self, code: int) -> str:
        """Return why the process ended, from its exit code, its last words and its log."""
        if code == 0:
            return ""
        with contextlib.suppress(FileNotFoundError):
            text = self._spec.last_words.read_text(encoding="utf-8", errors="replace")
            self._spec.last_words.unlink()
            if text:
                return text
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        said = tail(self._spec.log_file, LOG_LINES_OF_A_CRASH) if code != -signal.SIGKILL else ""
        return f"the instance's process {how}" + (f"; the end of its log:\n{said}" if said else "")

    async def close(self) -> None:
        """Close the connection to the process."""
        await self._control.close()
        with contextlib.suppress(FileNotFoundError):
            self._spec.control_socket.unlink()


class ProcessRuntime:
    """Starts instances through a zygote, which it starts anew when it is gone."""

    def __init__(self, zygote: ForkedProcess | None = None) -> None:
        """Prepare; `warm_up` or the first instance starts the zygote.

        Args:
            zygote: one that was forked when this process had one thread; a later one is started by exec.
        """
        self._instances: dict[int, ProcessInstance] = {}
        self._numbers = itertools.count(1)
        self._forked = zygote
        self._process: ZygoteProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    async def warm_up(self) -> None:  # noqa: D102  documented in ports.Runtime
        async with self._starting:
            if self._writer is None and not self._is_closed:
                await self._start_zygote()

    async def _start_zygote(self) -> None:
        forked, self._forked = self._forked, None
        if forked is not None:
            self._process = forked
            reader, self._writer = await forked.attach()
        else:
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = await _execute_zygote(theirs)
            reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen(reader, self._writer, self._process))
        self._beat(self._writer)

    def _beat(self, writer: asyncio.StreamWriter) -> None:
        """Say every `BEAT_S` that the worker lives, as long as this connection is the one to the zygote."""
        if self._writer is writer and not writer.is_closing():
            self._tell({"command": "beat"})
            asyncio.get_running_loop().call_later(BEAT_S, self._beat, writer)

    async def start(self, spec: InstanceSpec) -> ProcessInstance:  # noqa: D102
        if self._is_closed:
            raise ClosedError("the worker is stopping")
        await self.warm_up()
        number = next(self._numbers)
        with contextlib.suppress(FileNotFoundError):
            spec.last_words.unlink()
        instance = self._instances[number] = ProcessInstance(spec, number, self)
        self._tell({"command": "start", "id": number, "spec": spec.to_json()})
        try:
            await instance.started()
        except (TimeoutError, MagnetarError) as error:
            self._instances.pop(number, None)
            reason = str(error) or f"the zygote did not answer within {START_TIMEOUT_S:g} s"
            raise FunctionLoadError(f"no process for {spec.key}: {reason}") from error
        return instance

    def signal(self, number: int, which: int) -> None:
        """Send a signal to an instance, if it still runs."""
        self._tell({"command": "signal", "id": number, "signal": int(which)})

    def _tell(self, command: dict[str, object]) -> None:
        if self._writer is not None:
            self._writer.write(encode(command))

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: ZygoteProcess) -> None:
        """Take the zygote's events until it is gone; its instances are gone then, too."""
        try:
            while True:
                size = body_bytes(await reader.readexactly(LENGTH_BYTES))
                buffer = await reader.readexactly(size)
                await self._take_event(buffer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writer = None
        code = await process.wait()
        if not self._is_closed:
            log.error("the zygote ended with code %d; its %d instances start again", code, len(self._instances))
        for number in list(self._instances):
            await self._forget(number, f"the process that starts instances ended with code {code}")

    async def _take_event(self, body: bytes) -> None:
        event = json.loads(body)
        number = event["id"]
        instance = self._instances.get(number)
        if instance is None:
            if event["event"] == "started":  # too late: nobody waits for it, and it would keep its successor waiting
                self.signal(number, signal.SIGKILL)
            return
        match event["event"]:
            case "started":
                instance.has_started(event["pid"])
            case "refused":
                await self._forget(number, event["reason"])
            case "ended":
                reason = await asyncio.to_thread(instance.reason_of, event["code"])
                await self._forget(number, reason)

    async def _forget(self, number: int, reason: str) -> None:
        instance = self._instances.pop(number)
        await instance.close()  # first: its successor takes the same socket
        instance.has_ended(reason)

    async def close(self) -> None:  # noqa: D102
        self._is_closed = True
        if self._writer is not None:
            self._writer.close()
        if self._listening is None or self._process is None:
            return
        try:
            async with asyncio.timeout(ZYGOTE_END_S):
                await asyncio.shield(self._listening)
        except TimeoutError:
            log.error("the zygote did not end within %.0f s and is killed", ZYGOTE_END_S)
            self._process.kill()
            await self._listening


async def _execute_zygote(commands: socket.socket) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the worker's working directory is no place to import user code's modules from
        "-m",
        "magnetar.runtime.process.zygote",
        str(commands.fileno()),
        pass_fds=(commands.fileno(),),
        stdin=asyncio.subprocess.DEVNULL,
    )
