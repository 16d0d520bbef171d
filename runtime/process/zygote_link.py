"""A zygote as the worker sees it: started, told what to do, heard, and known to be gone.

Invariant: every instance that was started through a link is told its end, whatever an event, a log file or the
connection is like: the one that an event is about if that event cannot be taken, and all when the link ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from typing import Any, Protocol

from ...errors import ProtocolError
from ...tasks import TaskSet
from . import marks
from .exit_code import how_it_ended
from .forked import ForkedProcess
from .messages import BEAT_S, LENGTH_BYTES, body_bytes, encode

log = logging.getLogger(__name__)

ZYGOTE_END_S = 3.0
REASON_TIMEOUT_S = 5.0  # to read the last words and the log's end from a disk that may be slow
ZygoteProcess = ForkedProcess | asyncio.subprocess.Process


class Linked(Protocol):
    """An instance as its link sees it."""

    def has_started(self, process_id: int) -> None:
        """The process runs."""

    def has_ended(self, reason: str) -> None:
        """The process is gone, or there was none."""

    def reason_of(self, code: int, said: str, verdict: str) -> str:
        """Return why the process ended; reads files."""

    async def close(self) -> None:
        """Let go of what belongs to the process."""


class ZygoteLink:
    """One zygote and the instances that it started."""

    def __init__(self, process: ZygoteProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to listen, and to say every `BEAT_S` that the worker lives.

        Args:
            process: the zygote.
            reader: its events.
            writer: its commands.
        """
        self._process = process
        self._writer = writer
        self._instances: dict[int, Linked] = {}
        self._is_closing = False
        self._tasks = TaskSet(f"zygote {process.pid}")
        self._ended = asyncio.Event()
        self._tasks.start(self._listen(reader), "events")
        self._beat()

    @property
    def is_open(self) -> bool:
        """Whether it takes commands."""
        return not self._writer.is_closing()

    @property
    def pid(self) -> int:
        """Of the zygote."""
        return self._process.pid

    def tell(self, command: dict[str, object]) -> None:
        """Send a command; one that is gone takes none."""
        if self.is_open:
            self._writer.write(encode(command))

    def add(self, number: int, instance: Linked) -> None:
        """Let an instance know what becomes of it from now on."""
        self._instances[number] = instance

    def forget(self, number: int) -> None:
        """Let it know nothing more."""
        self._instances.pop(number, None)

    def _beat(self) -> None:
        if self.is_open:
            self.tell({"command": "beat"})
            asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Take the zygote's events until it is gone; its instances are gone then, too."""
        reason = ""
        try:
            while True:
                size = body_bytes(await reader.readexactly(LENGTH_BYTES))
                self._take(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except ProtocolError as error:
            reason = str(error)
        finally:
            self._writer.close()
            reason = reason or f"the process that starts instances {await self._reap()}"
            if not self._is_closing:
                log.error("%s; its %d instances start again", reason, len(self._instances))
            instances, self._instances = self._instances, {}
            await asyncio.gather(*(self._bury(instance, reason) for instance in instances.values()))
            self._ended.set()

    async def _reap(self) -> str:
        """Wait for the end of the zygote, by force if need be, and return how it ended."""
        for kills in (False, True):
            if kills:
                log.error("the zygote did not end within %g s and is killed", ZYGOTE_END_S)
                self.kill()
            try:
                async with asyncio.timeout(ZYGOTE_END_S):
                    code = await self._process.wait()
            except TimeoutError:
                continue
            if code:
                # Killed, it could not end what its instances have started.
                await asyncio.to_thread(marks.end_all_of, self._process.pid)
            return how_it_ended(code)
        return f"does not end (process {self._process.pid}): the kernel holds it"

    def _take(self, body: bytes) -> None:
        instance: Linked | None = None
        try:
            event = json.loads(body)
            instance = self._instances.get(event["id"])
            self._take_event(event["id"], instance, event)
        except Exception as error:
            log.exception("an event of the zygote was not understood: %r", body[:200])
            if instance is not None:
                self._instances.pop(event["id"], None)
                instance.has_ended(f"the worker could not take what the zygote said of it: {error!r}")

    def _take_event(self, number: int, instance: Linked | None, event: dict[str, Any]) -> None:
        kind = event["event"]
        if instance is None:
            if kind == "started":  # too late: nobody waits for it, and it would keep its successor waiting
                self.kill_instance(number)
        elif kind == "started":
            instance.has_started(event["pid"])
        elif kind == "refused":
            self._instances.pop(number)
            self._end(instance, self._bury(instance, event["reason"]))
        elif kind == "ended":
            self._instances.pop(number)
            self._end(instance, self._explain(instance, event))

    def _end(self, instance: Linked, work: Any) -> None:
        """Bring an instance to its end without keeping the others' events waiting."""
        self._tasks.start(work, "end of an instance", on_failure=lambda error: instance.has_ended(repr(error)))

    async def _explain(self, instance: Linked, event: dict[str, Any]) -> None:
        reason = f"the instance's process {how_it_ended(event['code'])}"
        try:
            async with asyncio.timeout(REASON_TIMEOUT_S):
                reason = await asyncio.to_thread(instance.reason_of, event["code"], event["said"], event["verdict"])
        except Exception as error:  # noqa: BLE001  whatever it is, the instance's end is told
            log.warning("%s; why is not known: %r", reason, error)
        finally:
            await self._bury(instance, reason)

    async def _bury(self, instance: Linked, reason: str) -> None:
        try:
            await instance.close()  # first: its successor takes the same socket
        except Exception as error:  # noqa: BLE001
            log.warning("closing the connection to an instance failed: %r", error)
        finally:
            instance.has_ended(reason)

    def signal_instance(self, number: int, which: int) -> None:
        """Send a signal to an instance, if it still runs."""
        self.tell({"command": "signal", "id": number, "signal": int(which)})

    def kill_instance(self, number: int) -> None:
        """End an instance with what it started."""
        self.signal_instance(number, 9)

    def kill(self) -> None:
        """End the zygote, and with it all its instances, by force."""
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                log.debug("zygote %d has ended meanwhile", self._process.pid)

    async def close(self) -> None:
        """End the zygote and all instances; returns when that is done, or cannot be."""
        self._is_closing = True
        self._writer.close()
        await self._ended.wait()  # `_reap` bounds it
        await self._tasks.close()


async def execute_zygote() -> ZygoteLink:
    """Start a zygote by exec.

    Raises:
        OSError: no process could be made.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the worker's working directory is no place to import user code's modules from
                "-m",
                "magnetar.runtime.process.zygote",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
            )
    except BaseException:
        ours.close()
        raise
    return ZygoteLink(process, *await asyncio.open_unix_connection(sock=ours))


async def attach_zygote(forked: ForkedProcess) -> ZygoteLink:
    """Take over a zygote that was forked when this process had one thread."""
    return ZygoteLink(forked, *await forked.attach())
