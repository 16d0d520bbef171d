"""The function metadata manager: the shell around `FunctionTable` that waits, writes and tells who listens.

It gets the log as two callables, so that it does not know clients or topics: whoever tails the metadata topic calls
`apply` with each record, in order; the leader gives `append` when it starts to lead. A request is answered once its
record has come back out of the log, so the answer and every later look at the table agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from ..errors import FunctionExists, NotLeader, OperationTimeout, OutOfDate
from ..tasks import TaskSet
from ..wire.functions_pb2 import FunctionMetaData
from .function_table import Change, FunctionRequest, FunctionTable, LogEntry, fqfn

Position = tuple[int, int]
"""Ledger and entry of a record in the log; later records are greater."""

APPLY_TIMEOUT_S = 30.0
"""How long a written record may take to come back out of the log."""

_ATTEMPTS = 3
"""How often a record is written anew when it came back and changed nothing; once would do."""

_log = logging.getLogger(__name__)


Append = Callable[[str, bytes, Mapping[str, str]], Awaitable[Position]]
"""Writes one record (key, value, properties); returns its position once it is durable."""


CatchUp = Callable[[], Awaitable[None]]
BeforeDeletion = Callable[[FunctionMetaData], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LogAccess:
    """What a leader needs of the log.

    Attributes:
        append: writes one record.
        catch_up: returns when everything that the log held at the call has been applied.
    """

    append: Append
    catch_up: Callable[[], Awaitable[None]]


class FunctionMetadataManager:
    """Holds all functions and, on the leader, changes them."""

    def __init__(
        self,
        on_change: Callable[[Change], None],
        catch_up: CatchUp | None = None,
        before_deletion: BeforeDeletion | None = None,
    ) -> None:
        """Hold no functions yet.

        Args:
            on_change: called after each record that changes a function.
            catch_up: returns when everything that the log held at the call has been applied.
            before_deletion: called with a function's record on the leader, before the function is gone and while no
                other change is decided; if it raises, the function stays.
        """
        self._table = FunctionTable()
        self._on_change = on_change
        self._catch_up = catch_up
        self._before_deletion = before_deletion
        self._applied: Position = (-1, -1)
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._log: LogAccess | None = None
        self._turn = asyncio.Lock()
        self._deleting = asyncio.Lock()
        self._under_way = TaskSet("function metadata")
        self._is_unsure = False

    async def catch_up(self) -> None:
        """Return when the table shows everything that the log held at the call. Cancellation: safe.

        Raises:
            MagnetarError: the log cannot be read.
        """
        if self._catch_up is not None:
            await self._catch_up()

    def get(self, name: str) -> FunctionMetaData | None:
        """Return the record of a function (tenant/namespace/name); never modify it."""
        return self._table.get(name)

    def all(self) -> Iterable[FunctionMetaData]:
        """Return the records of all functions, by name."""
        return self._table.all()

    def names(self, tenant: str, namespace: str) -> list[str]:
        """Return the bare names of a namespace's functions."""
        return [
            metadata.functionDetails.name
            for metadata in self._table.all()
            if (metadata.functionDetails.tenant, metadata.functionDetails.namespace) == (tenant, namespace)
        ]

    def statistics(self) -> dict[str, int]:
        """Return counts for metrics."""
        return {"functions": len(self._table), "unreadable_records": self._table.unreadable_records}

    def apply(self, position: Position, key: str | None, value: bytes, properties: Mapping[str, str]) -> None:
        """Take the next record of the log; one that was seen before is passed over."""
        if position <= self._applied:
            return
        unreadable = self._table.unreadable_records
        change = self._table.apply(key, value, properties)
        if self._table.unreadable_records > unreadable:
            _log.warning("skipped record %d:%d of the metadata topic: %s", *position, self._table.last_unreadable)
        self._applied = position
        self._wake()
        if change is not None:
            self._on_change(change)

    def _wake(self) -> None:
        for is_done, future in self._waiting:
            if not future.done() and is_done():
                future.set_result(None)

    @contextlib.asynccontextmanager
    async def undecided(self) -> AsyncIterator[None]:
        """Keep every change from being decided here meanwhile. Cancellation: safe."""
        async with self._turn:
            yield

    def lead(self, log: LogAccess) -> None:
        """Accept requests from now on; the log has been caught up with."""
        self._log = log
        self._is_unsure = False

    def follow(self) -> None:
        """Refuse requests from now on; somebody else leads."""
        self._log = None

    @property
    def is_leading(self) -> bool:
        """Whether requests are accepted here."""
        return self._log is not None

    async def submit(self, request: FunctionRequest) -> None:
        """Carry out a request; returns when its record is durable and applied here.

        Cancellation: the request goes on by itself, and the next one waits for it; repeat it with the same id.

        Raises:
            NotLeader: another worker decides.
            OutOfDate, FunctionExists: the request contradicts the table.
        """
        # A record that is on its way must not be overtaken by the next decision, whoever has lost patience.
        name = fqfn(request.metadata)

        def failed(failure: BaseException) -> None:
            _log.debug(
                "the request %s for %s ended: %s", request.request_id, name, failure
            )  # whoever waits has it, too

        await asyncio.shield(self._under_way.start(self._submit(request), f"request for {name}", failed))

    async def deletions_ended(self) -> None:
        """Return when nothing is under way that comes before a deletion. Cancellation: safe."""
        async with self._deleting:
            pass

    async def _submit(self, request: FunctionRequest) -> None:
        async with self._turn:
            log = self._log
            if log is None:
                raise NotLeader("this worker does not lead; the request belongs to the leader")
            if self._is_unsure:
                await log.catch_up()
            self._is_unsure = False
            for _ in range(_ATTEMPTS):
                entry = await self._decide(request, log)
                if entry is None:
                    return
                if request.is_deletion:
                    await self._prepare_deletion(entry.key, log)
                # Until the record has come back, nobody knows whether a failed append reached the log.
                self._is_unsure = True
                position = await log.append(entry.key, entry.value, entry.properties)
                await self._wait_for(position)
                self._is_unsure = False
            if self._table.decide(request) is not None:
                raise OperationTimeout(f"a change was written {_ATTEMPTS} times and had no effect; the log says why")

    async def _prepare_deletion(self, name: str, log: LogAccess) -> None:
        metadata = self._table.get(name)
        if metadata is None or self._before_deletion is None:
            return
        async with self._deleting:
            if self._log is log:
                await self._before_deletion(metadata)
        if self._log is not log:
            raise NotLeader("this worker led until now; the request belongs to the next leader")

    async def _decide(self, request: FunctionRequest, log: LogAccess) -> LogEntry | None:
        """Decide; a refusal only after a look at the log's end: another worker may lead and have changed things."""
        try:
            return self._table.decide(request)
        except (FunctionExists, OutOfDate):
            await log.catch_up()
            return self._table.decide(request)

    async def _wait_for(self, position: Position) -> None:
        await self._wait(lambda: self._applied >= position, f"record {position[0]}:{position[1]}")

    async def wait_until_seen(self, request: FunctionRequest) -> None:
        """Return when the table shows a request that was carried out elsewhere. Cancellation: safe.

        Raises:
            OperationTimeout: the log did not bring it.
        """
        name = fqfn(request.metadata)

        def is_seen() -> bool:
            return self._table.has_seen(request)

        await self._wait(is_seen, f"version {request.metadata.version} of {name}")

    async def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        if is_done():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (is_done, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(APPLY_TIMEOUT_S):
                await future
        except TimeoutError:
            raise OperationTimeout(
                f"{what} was written but not read back within {APPLY_TIMEOUT_S:g} s; repeat the request"
            ) from None
        finally:
            self._waiting.remove(entry)
