"""The storage engines that the conformance suite tests.

To test another engine, add it to `ENGINES`; nothing else in this package depends on a specific engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from magnetar.broker.storage import Position, Storage, StorageConfig, StoredEntry
from magnetar.broker.storage.memory import MemoryStore
from magnetar.broker.storage.port import Log, LogStore
from magnetar.errors import MagnetarError
from magnetar.tasks import called_back, settle

LEDGER_ENTRIES = 10
"""Maximum number of entries in a ledger of the tested logs."""
LEDGER_BYTES = 100_000
"""Size of a ledger after which the tested logs begin a new one."""

Clock = Callable[[], float]
Opened = AbstractAsyncContextManager[LogStore]


@contextlib.asynccontextmanager
async def journal(directory: Path, clock: Clock) -> AsyncIterator[LogStore]:
    config = StorageConfig(max_ledger_entries=LEDGER_ENTRIES, max_ledger_bytes=LEDGER_BYTES)
    storage = Storage.open(directory, config, clock=clock)
    storage.attach(asyncio.get_running_loop())
    try:
        yield storage
    finally:
        await storage.close()


@contextlib.asynccontextmanager
async def memory(directory: Path, clock: Clock) -> AsyncIterator[LogStore]:
    yield MemoryStore(clock, StorageConfig(max_ledger_entries=LEDGER_ENTRIES, max_ledger_bytes=LEDGER_BYTES))


ENGINES: dict[str, Callable[[Path, Clock], Opened]] = {"journal": journal, "memory": memory}
"""Functions that open a store, in an empty directory or in a directory that the same engine used before."""
DURABLE = ["journal"]
"""Engines whose logs survive closing and reopening the store."""


async def append(log: Log, payload: bytes, messages: int = 1, time_ms: int = 0) -> Position:
    """Append an entry and return its position, or raise the error if the log rejects it."""
    stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
    log.append(payload, messages, time_ms, lambda position, error: settle(stored, error or position))
    return await stored


async def created(store: LogStore, name: str, entries: int = 0) -> Log:
    """Return a new log with ``entries`` entries, where the payload of an entry is its index: ``b"0"``, ``b"1"``, …"""
    log = store.open_log(name)
    await called_back(log.create)
    for number in range(entries):
        await append(log, b"%d" % number, time_ms=number)
    return log


async def everything(log: Log, max_entries: int = 3, max_bytes: int = 1000) -> list[StoredEntry]:
    """Return all entries of a log, read in pieces."""
    found: list[StoredEntry] = []
    position = log.first_position
    while piece := await log.load(position, max_entries, max_bytes):
        assert len({entry.position.ledger_id for entry in piece}) == 1, "all entries of a piece are in the same ledger"
        found += piece
        position = log.next_position(piece[-1].position)
    return found


async def refusal(log: Log, payload: bytes = b"x") -> MagnetarError:
    """Return the error with which the log rejects an entry."""
    try:
        position = await append(log, payload)
    except MagnetarError as error:
        return error
    raise AssertionError(f"stored at {position}")
