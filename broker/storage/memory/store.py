"""The in-memory storage of a broker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

from ....errors import StorageError
from ....tasks import called_back
from ..config import StorageConfig
from ..cursors.names import check_text
from ..cursors.partial_acks import PartialAcks
from ..ports import Done
from .log import MemoryLog
from .volatile_log import VolatileLog

PARTIAL_ACKS_BYTES = 64 * 1024 * 1024
logger = logging.getLogger(__name__)


class MemoryStore:
    """All logs of a broker, kept in memory until the process ends; implements `broker.storage.port.LogStore`.

    Args:
        clock: returns the wall time, in seconds.
        config: limits of ledgers; the others have no effect.

    Attributes:
        touched: logs that have changed since the last `take_touched`, in order.
        failure: always None: changes are never rejected.
        is_congested: always False.
    """

    failure: StorageError | None = None
    is_congested = False

    def __init__(self, clock: Callable[[], float] = time.time, config: StorageConfig | None = None) -> None:
        self.config = config or StorageConfig()
        self.partial_acks = PartialAcks(PARTIAL_ACKS_BYTES, time.monotonic)
        self.touched: dict[MemoryLog, None] = {}
        self._clock = clock
        self._logs: dict[str, MemoryLog] = {}
        self._last_ledger_id = 0
        self._later: list[Callable[[], object]] = []

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return int(self._clock() * 1000)

    def new_ledger_id(self) -> int:
        """Return the next ledger id."""
        self._last_ledger_id += 1
        return self._last_ledger_id

    def later(self, call: Callable[[], object]) -> None:
        """Schedule ``call`` for the next iteration of the event loop, after all previously scheduled calls."""
        if not self._later:
            asyncio.get_running_loop().call_soon(self._make_calls)
        self._later.append(call)

    def _make_calls(self) -> None:
        calls, self._later = self._later, []
        for call in calls:
            try:
                call()
            except Exception:  # the remaining callbacks still have to run
                logger.exception("storage callback failed")

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Call ``done`` later, without writing anything."""
        if done is not None:
            self.later(partial(done, None))

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Do nothing: memory is never congested."""

    def has_log(self, name: str) -> bool:
        """Return whether a log with this name exists."""
        log = self._logs.get(name)
        return log is not None and log.is_created

    def log_names(self) -> list[str]:
        """Return the names of all existing logs."""
        return [name for name, log in self._logs.items() if log.is_created]

    def open_log(self, name: str) -> MemoryLog:
        """Return the log with this name; a new log is listed after its first change.

        Raises:
            NotAllowed: the name is not valid UTF-8.
        """
        log = self._logs.get(name)
        if log is None:
            check_text("topic name", name)
            log = self._logs[name] = MemoryLog(self, name)
        return log

    def volatile_log(self, name: str) -> VolatileLog:
        """Return a log that is always empty, for a non-persistent topic; it is not listed.

        Raises:
            NotAllowed: the name is not valid UTF-8.
        """
        check_text("topic name", name)
        return VolatileLog(self, name)

    async def delete_log(self, name: str) -> None:
        """Delete a log and its cursors, if it exists.

        Cancellation: the log is deleted anyway.
        """

        def delete(done: Done) -> None:
            log = self._logs.pop(name, None)
            if log is not None:
                if log.view is not None:
                    log.view.log.is_deleted = True
                log.delete()
            self.record(done)

        await called_back(delete)

    def take_touched(self) -> list[MemoryLog]:
        """Return the logs that have changed since the last call."""
        touched = list(self.touched)
        self.touched.clear()
        return touched

    def used_names(self) -> list[str]:
        """Return an empty list: logs in memory cannot be unloaded."""
        return []

    def unload(self, names: Iterable[str]) -> list[Callable[[], bool]]:
        """Return an empty list: logs in memory cannot be unloaded."""
        return []
