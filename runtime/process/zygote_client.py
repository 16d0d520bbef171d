"""Client of a zygote: starts it, commands it, takes its events, and notices its end.

Invariant: every instance that was started through a client is told its end, whatever an event, a log file or the
connection is like: the one that an event is about if that event cannot be taken, and all when the zygote ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any, Protocol

from ...tasks import TaskSet
from . import marks
from .channel import BEAT_S, ProcessChannel, execute
from .forked import ForkedProcess, how_it_ended

log = logging.getLogger(__name__)

ZYGOTE_END_S = 3.0
REASON_TIMEOUT_S = 5.0  # to read the last words and the log's end from a disk that may be slow


class StartedInstance(Protocol):
    """Instance that hears what becomes of its process."""

    def has_started(self, process_id: int) -> None:
        """The process runs."""

    def has_ended(self, reason: str) -> None:
        """The process is gone, or there was none."""

    def reason_of(self, code: int, said: str, verdict: str) -> str:
        """Return why the process ended; reads files."""

    async def close(self) -> None:
        """Release what belongs to the process."""


class ZygoteClient:
    """One zygote and the instances that it started.

    Attributes:
        channel: to the zygote.
    """

    def __init__(self, channel: ProcessChannel) -> None:
        """Begin to listen, and to send a heartbeat every `BEAT_S`."""
        self.channel = channel
        self._instances: dict[int, StartedInstance] = {}
        self._is_closing = False
        self._tasks = TaskSet(f"zygote {channel.pid}")
        self._ended = asyncio.Event()
        self._tasks.start(self._listen(), "events")
        self._beat()

    def add(self, number: int, instance: StartedInstance) -> None:
        """Tell an instance what becomes of its process from now on."""
        self._instances[number] = instance

    def forget(self, number: int) -> None:
        """Tell an instance nothing more."""
        self._instances.pop(number, None)

    def _beat(self) -> None:
        if self.channel.is_open:
            self.channel.tell({"command": "beat"})
            asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    async def _listen(self) -> None:
        """Take the zygote's events until it is gone; its instances are gone then, too."""
        reason = ""
        try:
            reason = await self.channel.listen(self._take)
        finally:
            reason = reason or f"the process that starts instances {await self._reap()}"
            if not self._is_closing:
                log.error("%s; its %d instances start again", reason, len(self._instances))
            instances, self._instances = self._instances, {}
            await asyncio.gather(*(self._finish(instance, reason) for instance in instances.values()))
            self._ended.set()

    async def _reap(self) -> str:
        """Wait for the end of the zygote, by force if need be, and return how it ended."""
        for kills in (False, True):
            if kills:
                log.error("the zygote did not end within %g s and is killed", ZYGOTE_END_S)
                self.channel.kill()
            try:
                async with asyncio.timeout(ZYGOTE_END_S):
                    code = await self.channel.wait()
            except TimeoutError:
                continue
            if code:
                # Killed, it could not end what its instances have started.
                await asyncio.to_thread(marks.end_all_of, self.channel.pid)
            return how_it_ended(code)
        return f"does not end (process {self.channel.pid}): the kernel holds it"

    def _take(self, body: bytes) -> None:
        instance: StartedInstance | None = None
        try:
            event = json.loads(body)
            instance = self._instances.get(event["id"])
            self._take_event(event["id"], instance, event)
        except Exception as error:
            log.exception("an event of the zygote was not understood: %r", body[:200])
            if instance is not None:
                self._instances.pop(event["id"], None)
                instance.has_ended(f"the worker could not take what the zygote said of it: {error!r}")

    def _take_event(self, number: int, instance: StartedInstance | None, event: dict[str, Any]) -> None:
        kind = event["event"]
        if instance is None:
            if kind == "started":  # too late: nobody waits for it, and it would keep its successor waiting
                self.kill_instance(number)
        elif kind == "started":
            instance.has_started(event["pid"])
        elif kind == "refused":
            self._instances.pop(number)
            self._end(instance, self._finish(instance, event["reason"]))
        elif kind == "ended":
            self._instances.pop(number)
            self._end(instance, self._explain(instance, event))

    def _end(self, instance: StartedInstance, work: Any) -> None:
        """Bring an instance to its end without keeping the others' events waiting."""
        self._tasks.start(work, "end of an instance", on_failure=lambda error: instance.has_ended(repr(error)))

    async def _explain(self, instance: StartedInstance, event: dict[str, Any]) -> None:
        reason = f"the instance's process {how_it_ended(event['code'])}"
        try:
            async with asyncio.timeout(REASON_TIMEOUT_S):
                reason = await asyncio.to_thread(instance.reason_of, event["code"], event["said"], event["verdict"])
        except Exception as error:  # noqa: BLE001  whatever it is, the instance's end is told
            log.warning("%s; why is not known: %r", reason, error)
        finally:
            await self._finish(instance, reason)

    async def _finish(self, instance: StartedInstance, reason: str) -> None:
        try:
            await instance.close()  # first: its successor takes the same socket
        except Exception as error:  # noqa: BLE001
            log.warning("closing the connection to an instance failed: %r", error)
        finally:
            instance.has_ended(reason)

    def signal_instance(self, number: int, which: int) -> None:
        """Send a signal to an instance, if it still runs."""
        self.channel.tell({"command": "signal", "id": number, "signal": int(which)})

    def kill_instance(self, number: int) -> None:
        """End an instance with what it started."""
        self.signal_instance(number, 9)

    async def close(self) -> None:
        """End the zygote and all instances; returns when that is done, or cannot be."""
        self._is_closing = True
        self.channel.close()
        await self._ended.wait()  # `_reap` bounds it
        await self._tasks.close()


async def execute_zygote() -> ZygoteClient:
    """Start a zygote by exec.

    Raises:
        OSError: no process could be made.
    """
    module = "magnetar.runtime.process.zygote"
    # -P: the worker's working directory is no place to import user code's modules from
    return ZygoteClient(await execute(lambda number: [sys.executable, "-P", "-m", module, str(number)]))


async def attach_zygote(forked: ForkedProcess) -> ZygoteClient:
    """Take over a zygote that was forked when this process had one thread."""
    return ZygoteClient(ProcessChannel(forked, *await forked.attach()))
