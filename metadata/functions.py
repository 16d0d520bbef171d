"""Function metadata manager: the functions of the cluster, and on the leader their changes.

`FunctionTable` is the state machine, `ReplicatedLog` the way in: a request is answered once its record has come back
out of the log, so the answer and every later look at the table agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ..errors import FunctionExists, NotLeader, OperationTimeout, OutOfDate
from ..tasks import TaskSet
from ..wire.functions_pb2 import FunctionMetaData
from .function_table import Change, FunctionRequest, FunctionTable, fqfn
from .replicated_log import LogRecord, LogStorage, ReplicatedLog, Turn

_ATTEMPTS = 3
"""How often a record is written anew when it came back and changed nothing; once would do."""

_log = logging.getLogger(__name__)

BeforeDeletion = Callable[[FunctionMetaData], Awaitable[None]]


class FunctionMetadataManager:
    """Holds all functions and, on the leader, changes them.

    Attributes:
        log: of the functions' records.
    """

    def __init__(
        self, storage: LogStorage, on_change: Callable[[Change], None], before_deletion: BeforeDeletion | None = None
    ) -> None:
        """Hold no functions yet.

        Args:
            storage: keeps the log.
            on_change: called after each record that changes a function.
            before_deletion: called with a function's record on the leader, before the function is gone and while no
                other change is decided; if it raises, the function stays.
        """
        self.log = ReplicatedLog(storage, self._apply, "metadata")
        self._table = FunctionTable()
        self._on_change = on_change
        self._before_deletion = before_deletion
        self._deleting = asyncio.Lock()
        self._under_way = TaskSet("function metadata")

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

    def _apply(self, key: str | None, value: bytes, properties: Mapping[str, str]) -> None:
        change = self._table.apply(key, value, properties)
        if change is not None:
            self._on_change(change)

    async def submit(self, request: FunctionRequest) -> None:
        """Carry out a request; returns when its record is durable and applied here.

        Cancellation: the request goes on by itself, and the next one waits for it; repeat it with the same id.

        Raises:
            NotLeader: another worker decides.
            OutOfDate, FunctionExists: the request contradicts the table.
        """
        # A record that is on its way must not be overtaken by the next decision, although its caller went away.
        name = fqfn(request.metadata)

        def failed(failure: BaseException) -> None:  # whoever awaits it gets it, too
            _log.debug("the request %s for %s ended: %s", request.request_id, name, failure)

        await asyncio.shield(self._under_way.start(self._submit(request), f"request for {name}", failed))

    async def deletions_ended(self) -> None:
        """Return when nothing is under way that comes before a deletion. Cancellation: safe."""
        async with self._deleting:
            pass

    async def _submit(self, request: FunctionRequest) -> None:
        async with self.log.turn() as turn:
            if turn is None:
                raise NotLeader("this worker does not lead; the request belongs to the leader")
            for _ in range(_ATTEMPTS):
                record = await self._decide(request)
                if record is None:
                    return
                if request.is_deletion:
                    await self._prepare_deletion(record.key, turn)
                await turn.append([record])
            if self._table.decide(request) is not None:
                raise OperationTimeout(f"a change was written {_ATTEMPTS} times and had no effect; the log says why")

    async def _prepare_deletion(self, name: str, turn: Turn) -> None:
        metadata = self._table.get(name)
        if metadata is None or self._before_deletion is None:
            return
        async with self._deleting:
            if turn.is_current:
                await self._before_deletion(metadata)
        if not turn.is_current:
            raise NotLeader("this worker led until now; the request belongs to the next leader")

    async def _decide(self, request: FunctionRequest) -> LogRecord | None:
        """Decide; a refusal only after a look at the log's end: another worker may lead and have changed things."""
        try:
            return self._table.decide(request)
        except (FunctionExists, OutOfDate):
            await self.log.catch_up()
            return self._table.decide(request)

    async def wait_until_seen(self, request: FunctionRequest) -> None:
        """Return when the table shows a request that was carried out elsewhere. Cancellation: safe.

        Raises:
            OperationTimeout: the log did not bring it.
        """
        what = f"version {request.metadata.version} of {fqfn(request.metadata)}"
        await self.log.wait_until(lambda: self._table.has_seen(request), what)
