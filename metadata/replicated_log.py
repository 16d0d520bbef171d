"""Replicated log: every worker applies the same records in the same order, and only the leader appends.

Design: the log is the source of truth. A state machine (the function table, the assignments) changes only when a record
is read back from the log, even on the leader. The leader decides in turns: it reads its state machine, appends records,
and waits until its own state machine has applied them before the next turn starts.

Invariants:
- Each record is applied once, in order of positions; a position that was seen before is skipped.
- When a turn starts, everything that earlier turns may have written has been applied. If an append was cancelled, or
  its record was not read back in time, the next turn first reads the log to its end.
- Fencing: a failed append ends the leadership. Its record may still arrive, but no record of this writer can arrive
  after a successor has opened the log. The log is therefore reopened, and read to its end, before the next decision.

Storage is an interface, so that managers and tests need no broker. `worker` implements it with a topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import NamedTuple, Protocol

from google.protobuf.message import DecodeError

from ..errors import MagnetarError, NotLeader, OperationTimeout
from ..tasks import settle, within

Position = tuple[int, int]
"""Ledger id and entry id of a record in the log. Later positions are greater."""

APPLY_TIMEOUT_S = 30.0
"""Timeout for reading a written record back from the log."""

_log = logging.getLogger(__name__)


class LogRecord(NamedTuple):
    """A record to write: key, value (empty to delete) and properties."""

    key: str
    value: bytes
    properties: Mapping[str, str] = MappingProxyType({})


Apply = Callable[[Position, str | None, bytes, Mapping[str, str]], None]
"""Called with the position, key, value and properties of the next record."""


class LogWriter(Protocol):
    """Exclusive writer of a log."""

    async def append(self, records: Sequence[LogRecord]) -> Position:
        """Write records in order, and return the position of the last one once all are durable."""

    async def close(self) -> None:
        """Release the log for the next writer."""


class LogStorage(Protocol):
    """Storage of a log."""

    async def tail(self, apply: Apply) -> None:
        """Call ``apply`` with every record from the first one, in order, until cancelled."""

    async def catch_up(self) -> None:
        """Wait until `tail` has applied all records in the log at the time of the call. Cancellation: safe."""

    async def open_writer(self, name: str) -> LogWriter:
        """Open and return the exclusive writer, with the name ``name``."""


class Turn:
    """The leader's turn to decide, during which nothing else is appended."""

    def __init__(self, log: ReplicatedLog, writer: LogWriter) -> None:
        self._log = log
        self._writer = writer

    @property
    def is_current(self) -> bool:
        """Whether the leadership under which the turn started still holds."""
        return self._log._leading is self._writer

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Write records in order, and wait until they are durable and applied here.

        Raises:
            NotLeader: the log could not be written, and this worker has lost its leadership.
            OperationTimeout: the records were not read back in time.
        """
        log = self._log
        # Until the records are read back, it is unknown whether those of a failed append reached the log.
        log._is_unsure = True
        try:
            position = await self._writer.append(records)
        except MagnetarError as exc:
            log._on_failure()
            raise NotLeader(f"the leader lost its log producer: {exc}") from exc
        await log.wait_until(lambda: log._applied >= position, f"{log._noun} {position[0]}:{position[1]}")
        log._is_unsure = False


class ReplicatedLog:
    """A worker's view of a log, bound to one event loop.

    Attributes:
        unreadable_records: number of skipped unreadable records.
    """

    def __init__(
        self,
        storage: LogStorage,
        apply: Callable[[str | None, bytes, Mapping[str, str]], None],
        name: str,
        noun: str = "record",
    ) -> None:
        """Create a log without records.

        Args:
            storage: storage of the log.
            apply: applies a record to the state machine; raises ValueError or DecodeError for an unreadable record.
            name: name of the log, used in log lines.
            noun: noun for a record, used in errors.
        """
        self._storage = storage
        self._apply = apply
        self._name = name
        self._noun = noun
        self._applied: Position = (-1, -1)
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._writer: LogWriter | None = None
        self._leading: LogWriter | None = None  # the writer of the current leadership
        self._on_failure: Callable[[], None] = self.follow
        self._turn = asyncio.Lock()
        self._is_unsure = False
        self.unreadable_records = 0

    async def run(self) -> None:
        """Apply the records of the log until cancelled."""
        await self._storage.tail(self.apply)

    async def catch_up(self) -> None:
        """Wait until every record in the log at the time of the call has been applied. Cancellation: safe.

        Raises:
            MagnetarError: the log cannot be read.
        """
        await self._storage.catch_up()

    def apply(self, position: Position, key: str | None, value: bytes, properties: Mapping[str, str]) -> None:
        """Apply the next record. Skip a record that was seen before; skip and count an unreadable record."""
        if position <= self._applied:
            return
        self._applied = position
        try:
            self._apply(key, value, properties)
        except (ValueError, DecodeError) as exc:
            self.unreadable_records += 1
            _log.warning("skipped record %d:%d of the %s topic: %s", *position, self._name, exc)
        for is_done, future in self._waiting:
            if is_done():
                settle(future, None)

    async def open(self, name: str) -> None:
        """Open the log for writing, under a name that the broker displays."""
        self._writer = await self._storage.open_writer(name)

    async def close(self) -> None:
        """Release the log for the next leader."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                await writer.close()
            except MagnetarError as exc:
                _log.debug("cannot close the %s topic: %s", self._name, exc)

    def lead(self, on_failure: Callable[[], None]) -> None:
        """Start deciding. The caller must have reopened the log for writing and then read it to its end.

        Args:
            on_failure: called when an append fails, to end the leadership.
        """
        assert self._writer is not None
        self._leading, self._on_failure = self._writer, on_failure
        self._is_unsure = False

    def follow(self) -> None:
        """Stop deciding, because another worker is the leader."""
        self._leading = None

    @property
    def is_leading(self) -> bool:
        """Whether this worker decides."""
        return self._leading is not None

    def undecided(self) -> AbstractAsyncContextManager[None]:
        """Context in which no turn can start. Cancellation: safe."""
        return self._turn

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn | None]:
        """Context that waits for a turn to decide; None if this worker is not the leader. Cancellation: safe."""
        async with self._turn:
            writer = self._leading
            if writer is None:
                yield None
                return
            if self._is_unsure:
                await self.catch_up()
                self._is_unsure = False
            yield Turn(self, writer)

    async def wait_until(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait until a condition becomes true as records are applied. Cancellation: safe.

        Args:
            is_done: the condition, checked now and after each record.
            what: description of the awaited event, for the error message.

        Raises:
            OperationTimeout: the condition did not become true in time.
        """
        if is_done():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (is_done, future)
        self._waiting.append(entry)
        try:
            if not await within(APPLY_TIMEOUT_S, future):
                raise OperationTimeout(
                    f"{what} was written but not read back within {APPLY_TIMEOUT_S:g} s: retry the request"
                )
        finally:
            self._waiting.remove(entry)
