"""Changes of a function's entire state, made by the leader: saving it with the replaced version, or restoring it.

Design: the pending change is in the function's record (`stateChange`), written together with the version. Until it is
removed, the scheduler keeps all instances stopped (`scheduler.manager.plan`), even if clients start the function or
deploy another version. The leader waits until all instances have ended, makes the state store perform the change, and
removes the change from the record; then the instances of the new version start. The leader may therefore be killed at
any time: the next leader finds the record, and the state store performs each change only once (`state.copies`), even if
a frozen leader resumes.

An instance has ended once its worker confirms this after reading its assignments to the end or, if the worker does not
answer, once no connection to the broker holds the instance's lock. After a restore, the state store rejects writes of a
frozen instance whose connection the broker has closed, because its epoch is stale.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from ...errors import FunctionExists, MagnetarError, NotLeader, OutOfDate
from ...instance.identity import lock_name, table_of
from ...metadata.functions import Change, FunctionMetadataManager, FunctionRequest, fqfn
from ...wire.functions_pb2 import FunctionMetaData
from ...wire.printable import summary
from ..cluster.broker_admin import BrokerAdmin
from .instances import Instances
from .service import FunctionName
from .state_plan import given_up, made, waits_for
from .state_tables import StateTables

_PAUSE_S = 0.2
_LOOKS_AT_ONCE = 16
_CHANGES_AT_ONCE = 2  # limited by the few threads that wait for the state store

_log = logging.getLogger(__name__)


class InstancesEnded:
    """Determines whether all instances of a stopping function have ended."""

    def __init__(self, instances: Instances, admin: BrokerAdmin, locks_topic: str) -> None:
        self._instances = instances
        self._admin = admin
        self._locks_topic = locks_topic

    async def what_runs(self, name: FunctionName, metadata: FunctionMetaData) -> str:
        """Check once, and return a description of instances that may still be running, or an empty string.

        Raises:
            MagnetarError: the broker did not answer, or an instance was assigned to a worker meanwhile.
        """
        if not await self._instances.settle(name, metadata):
            return "its instances are not stopped yet"
        silent = await self._instances.not_ended(name)
        start, end = lock_name(metadata, 0).rsplit(":0", 1)
        locks = (await self._admin.topic_stats(self._locks_topic)).get("subscriptions", {})
        for lock, found in locks.items():
            if lock.startswith(f"{start}:") and lock.endswith(end) and found.get("consumers"):
                where = f", possibly on {', '.join(sorted(silent))}, which did not answer" if silent else ""
                return f"{lock.split('@')[0]} still holds its lock{where}"
        return ""


class StateChanges:
    """Performs the state changes that are pending in records."""

    def __init__(
        self,
        metadata: FunctionMetadataManager,
        what_runs: Callable[[FunctionName, FunctionMetaData], Awaitable[str]],
        tables: StateTables,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Create the object without pending changes; `what_runs` is `InstancesEnded.what_runs`."""
        self._metadata = metadata
        self._what_runs = what_runs
        self._tables = tables
        self._now_ms = now_ms
        self._reasons: dict[str, str] = {}  # by function with a pending change; empty if nothing delays it
        self._begun = asyncio.Event()
        self._some = asyncio.Semaphore(_CHANGES_AT_ONCE)

    def notice(self, change: Change) -> None:
        """Process a changed record of a function."""
        if change.after is not None and change.after.HasField("stateChange"):
            self._reasons.setdefault(change.fqfn, "")
            self._begun.set()
        else:
            self._reasons.pop(change.fqfn, None)

    def waits_for(self, metadata: FunctionMetaData) -> str:
        """Return a one-line description of the change that a function's instances wait for, with any known reason."""
        return waits_for(metadata, self._reasons.get(fqfn(metadata), ""))

    async def run(self) -> None:
        """Perform changes while this worker is the leader, until cancelled."""
        while True:
            await self._begun.wait()
            if not self._reasons:
                self._begun.clear()
                continue
            if self._metadata.log.is_leading:
                await self.look()
            await asyncio.sleep(_PAUSE_S)

    async def look(self) -> None:
        """Perform every change that is possible now."""
        some = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def one(name: str) -> None:
            async with some:
                try:
                    self._wait(name, await self._look_at(name))
                except (OutOfDate, FunctionExists, NotLeader) as exc:
                    _log.info("rechecking the state change of %s: %s", name, exc)
                except MagnetarError as exc:
                    self._wait(name, str(exc))

        await asyncio.gather(*map(one, sorted(self._reasons)))

    def _wait(self, name: str, reason: str) -> None:
        if name not in self._reasons:
            return
        if reason and reason != self._reasons[name]:
            _log.warning("delaying the state change of %s: %s", name, summary(reason))
        self._reasons[name] = reason

    async def _look_at(self, name: str) -> str:
        """Perform the change of a function, and return the reason for a delay or an empty string."""
        metadata = self._metadata.get(name)
        if metadata is None or not metadata.HasField("stateChange"):
            return ""
        # From here on the record may be stale. Later records also contain the pending change until one marks it as
        # made, and that record is decided against the record examined here.
        if what_runs := await self._what_runs(FunctionName(*name.split("/")), metadata):
            return what_runs
        await self._submit(await self._change(name, metadata))
        return ""

    async def _change(self, name: str, metadata: FunctionMetaData) -> FunctionMetaData:
        table, change = table_of(metadata), metadata.stateChange
        async with self._some:
            if not change.isRestore:
                await self._tables.keep(table, change.version)
            elif not await self._tables.restore(table, change.version, change.askedBy):
                reason = (
                    f"the state store no longer has the state of version {change.version}, so no state was restored"
                )
                _log.error("rollback of %s: %s", name, reason)
                return given_up(metadata, reason, self._now_ms())
        _log.info("state of version %d of %s was %s", change.version, name, "restored" if change.isRestore else "saved")
        return made(metadata, self._now_ms())

    async def _submit(self, metadata: FunctionMetaData) -> None:
        await self._metadata.submit(FunctionRequest(metadata, uuid.uuid4().hex))
