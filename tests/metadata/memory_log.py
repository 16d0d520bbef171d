"""An in-memory log, as the storage of a replicated log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.errors import ConnectionLost
from magnetar.metadata.replicated_log import Apply, LogRecord, LogWriter, Position, ReplicatedLog


class MemoryLog:
    """Storage that delivers records immediately, late, or without an answer to their writer.

    Attributes:
        fails_after_writing: the next append is written and raises.
        is_late: records come back only by `catch_up`.
    """

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.fails_after_writing = False
        self.is_late = False
        self.log: ReplicatedLog | None = None
        self._applied = 0

    async def tail(self, apply: Apply) -> None:
        await asyncio.Event().wait()

    async def catch_up(self) -> None:
        self._deliver()

    def _deliver(self) -> None:
        assert self.log is not None
        for index in range(self._applied, len(self.records)):
            self.log.apply((1, index), *self.records[index])
        self._applied = len(self.records)

    async def open_writer(self, name: str) -> LogWriter:
        return _Writer(self)

    async def append(self, records: Sequence[LogRecord]) -> Position:
        self.records += records
        if self.fails_after_writing:
            self.fails_after_writing = False
            raise ConnectionLost("the answer was lost")
        if not self.is_late:
            asyncio.get_running_loop().call_soon(self._deliver)
        return 1, len(self.records) - 1

    async def lead(self, log: ReplicatedLog) -> None:
        """Make the worker that holds this log the leader, as `Leadership` does."""
        self.log = log
        await log.open("leader")
        await log.catch_up()
        log.lead(log.follow)


class _Writer:
    """One open handle of the log."""

    def __init__(self, storage: MemoryLog) -> None:
        self._storage = storage

    async def append(self, records: Sequence[LogRecord]) -> Position:
        return await self._storage.append(records)

    async def close(self) -> None:
        pass
