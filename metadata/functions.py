"""Function metadata manager: holds the cluster's function table and, on the leader, changes it.

Design: the metadata topic is the source of truth. Every worker applies its records in order, and so has the same
`FunctionTable`, a state machine without I/O. Only the leader decides: it checks a request against its up-to-date table
and either appends one record or rejects the request. The table changes only when a record is read back from the log,
even on the leader. The request is answered after that, so the response agrees with every later read of the table.

Invariants:
- A record whose version is not newer than the table's changes nothing, so applying the log twice equals applying it
  once. The only exception is a record that ends the trial of a version (`ends_trial`), which does not affect running
  instances.
  Versions restart with each creation, so they are compared only within one. A reader that missed a deletion and the
  next creation because of compaction recognizes the new function by its creation time.
- An unreadable record changes nothing; the log counts it and continues.
- A request whose id was already written succeeds. If a response is lost, repeating the request causes neither an error
  nor a second change. Each record contains the ids of earlier requests (`earlierRequestIds`), so this holds even if the
  function was changed or deleted meanwhile, and for a worker that has read only the compacted log.

The creation time also detects that a request's function was deleted and recreated meanwhile, which the version alone
could not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ..errors import FunctionExists, NotLeader, OperationTimeout, OutOfDate
from ..tasks import TaskSet
from ..wire.functions_pb2 import FunctionMetaData
from .replicated_log import LogRecord, LogStorage, ReplicatedLog, Turn

VERSION = "version"
REQUEST_ID = "requestId"
CREATE_TIME = "createTime"
"""Property of a deletion record with the creation time of the deleted function."""

EARLIER_REQUEST_IDS = "earlierRequestIds"
"""Property with the ids of the requests before the record's own: comma-separated, newest first."""

REMEMBERED_REQUESTS = 16
"""Number of request ids retained per function: more than can be made while an earlier request may still be repeated."""

_REMEMBERED_DELETIONS = 10_000
"""Number of deleted functions whose requests are still recognized. Later, a repeated deletion finds no function."""

_ATTEMPTS = 3
"""Attempts to write a record that changes nothing when read back. A second attempt should suffice."""

BeforeDeletion = Callable[[FunctionMetaData], Awaitable[None]]

_log = logging.getLogger(__name__)


def fqfn(metadata: FunctionMetaData) -> str:
    """Return ``tenant/namespace/name``, the key of a function's records."""
    details = metadata.functionDetails
    return f"{details.tenant}/{details.namespace}/{details.name}"


@dataclass(frozen=True, slots=True)
class FunctionRequest:
    """A requested change.

    Attributes:
        metadata: the new record; a deletion uses only its name, version and creation time.
        request_id: identifies the request; the same in all repetitions.
        is_deletion: whether to delete the function instead of writing the record.
    """

    metadata: FunctionMetaData
    request_id: str
    is_deletion: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A record's effect on the table. ``before`` or ``after`` is None if the function did not or does not exist."""

    fqfn: str
    before: FunctionMetaData | None
    after: FunctionMetaData | None


class _Held(NamedTuple):
    metadata: FunctionMetaData
    request_ids: tuple[str, ...]


class _Read(NamedTuple):
    """A parsed record. A deletion may lack the function's creation time."""

    name: str
    metadata: FunctionMetaData | None
    version: int
    created: int | None


class FunctionTable:
    """All functions according to the records applied so far."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._deletions: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def get(self, name: str) -> FunctionMetaData | None:
        """Return the record of a function, which must not be modified."""
        held = self._held.get(name)
        return held.metadata if held else None

    def all(self) -> Iterable[FunctionMetaData]:
        """Return the records of all functions, by name."""
        return [self._held[name].metadata for name in sorted(self._held)]

    def apply(self, key: str | None, value: bytes, properties: Mapping[str, str]) -> Change | None:
        """Apply a record of the log and return the change, or None.

        Raises:
            ValueError: the record is unreadable and changes nothing.
        """
        name, after, version, created = _parse(key, value, properties)
        held = self._held.get(name)
        is_of_same = held is not None and created in (None, held.metadata.createTime)
        if (
            held is not None
            and is_of_same
            and held.metadata.version >= version
            and not ends_trial(held.metadata, after)
        ):
            return None
        known = self._request_ids(name)
        if properties.get(REQUEST_ID) in known:
            return None  # duplicate of a record that was sent twice
        request_ids = _ids_of(properties, known)
        if after is not None:
            self._held[name] = _Held(after, request_ids)
            self._deletions.pop(name, None)
        else:
            self._deletions[name] = request_ids
            self._deletions.move_to_end(name)
            if len(self._deletions) > _REMEMBERED_DELETIONS:
                self._deletions.popitem(last=False)
            if held is None:
                return None
            del self._held[name]
        return Change(name, held.metadata if held else None, after)

    def has_seen(self, request: FunctionRequest) -> bool:
        """Return whether an accepted request has been applied to this table."""
        name = fqfn(request.metadata)
        return request.request_id in self._request_ids(name) or (request.is_deletion and name not in self._held)

    def _request_ids(self, name: str) -> tuple[str, ...]:
        """Return the ids of a function's last requests, newest first."""
        held = self._held.get(name)
        return held.request_ids if held else self._deletions.get(name, ())

    def decide(self, request: FunctionRequest) -> LogRecord | None:
        """Return the record to write for a request, or None if there is nothing left to do.

        Raises:
            FunctionExists: the request creates a function that already exists.
            OutOfDate: the function was changed or deleted since the request was made.
        """
        name, version = fqfn(request.metadata), request.metadata.version
        known = self._request_ids(name)
        if request.request_id in known:
            return None
        held = self.get(name)
        if held is None:
            if request.is_deletion:
                return None
            is_out_of_date = version > 0
        elif not request.is_deletion and version == 0:
            raise FunctionExists(f"Function {request.metadata.functionDetails.name} already exists")
        elif held.createTime != request.metadata.createTime:
            is_out_of_date = True
        else:
            ends = not request.is_deletion and ends_trial(held, request.metadata)
            is_out_of_date = held.version >= version and not ends
        if is_out_of_date:
            what = "Delete" if request.is_deletion else "Update"
            raise OutOfDate(f"{what} request ignored because it is out of date. Please try again.")
        return _entry(request, name, known)


def ends_trial(before: FunctionMetaData, after: FunctionMetaData | None) -> bool:
    """Return whether a record only states that the version on trial started successfully.

    Its version is unchanged, because it deploys nothing. Older workers, which do not support trials, ignore it.
    """
    if after is None or after.version != before.version or not before.deployments.HasField("trial"):
        return False
    ended = FunctionMetaData()
    ended.CopyFrom(before)
    ended.deployments.ClearField("trial")
    return ended == after  # any other record of this version was decided from an older table


def _parse(key: str | None, value: bytes, properties: Mapping[str, str]) -> _Read:
    if not key:
        raise ValueError("the record has no key")
    if not value:
        version = _number(properties.get(VERSION, ""))
        if version is None:
            raise ValueError(f"the deletion of {key} has no version")
        return _Read(key, None, version, _number(properties.get(CREATE_TIME, "")))
    try:
        metadata = FunctionMetaData.FromString(value)
    except DecodeError:
        raise ValueError(f"the record of {key} is not a valid FunctionMetaData") from None
    if fqfn(metadata) != key:
        raise ValueError(f"the record of {key} is for {fqfn(metadata)[:100]}")
    return _Read(key, metadata, metadata.version, metadata.createTime)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _ids_of(properties: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the request ids in a record, with the known earlier ids if the record lacks them."""
    earlier = properties.get(EARLIER_REQUEST_IDS)
    before = known if earlier is None else tuple(one for one in earlier.split(",") if one)
    return (properties.get(REQUEST_ID, ""), *before)[:REMEMBERED_REQUESTS]


def _entry(request: FunctionRequest, name: str, known: tuple[str, ...]) -> LogRecord:
    value = b"" if request.is_deletion else request.metadata.SerializeToString()
    properties = {
        VERSION: str(request.metadata.version),
        REQUEST_ID: request.request_id,
        EARLIER_REQUEST_IDS: ",".join(known[: REMEMBERED_REQUESTS - 1]),
    }
    if request.is_deletion:
        properties[CREATE_TIME] = str(request.metadata.createTime)
    return LogRecord(name, value, properties)


class FunctionMetadataManager:
    """Holds all functions and, on the leader, changes them.

    Attributes:
        log: the log of function records.
    """

    def __init__(
        self, storage: LogStorage, on_change: Callable[[Change], None], before_deletion: BeforeDeletion | None = None
    ) -> None:
        """Create a manager without functions.

        Args:
            storage: storage of the log.
            on_change: called after each record that changes a function.
            before_deletion: called on the leader with a function's record before the function is deleted, while no
                other change is decided. If it raises, the function is not deleted.
        """
        self.log = ReplicatedLog(storage, self._apply, "metadata")
        self._table = FunctionTable()
        self._on_change = on_change
        self._before_deletion = before_deletion
        self._deleting = asyncio.Lock()
        self._under_way = TaskSet("function metadata")

    def get(self, name: str) -> FunctionMetaData | None:
        """Return the record of a function (``tenant/namespace/name``), which must not be modified."""
        return self._table.get(name)

    def all(self) -> Iterable[FunctionMetaData]:
        """Return the records of all functions, by name."""
        return self._table.all()

    def names(self, tenant: str, namespace: str) -> list[str]:
        """Return the names of a namespace's functions, without tenant and namespace."""
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
        """Execute a request, and wait until its record is durable and applied here.

        Cancellation: the request continues in the background, and the next one waits for it. It may be repeated with
        the same id.

        Raises:
            NotLeader: another worker is the leader.
            OutOfDate, FunctionExists: the request conflicts with the table.
        """
        # A record in flight must not be overtaken by the next decision, even if its caller was cancelled.
        name = fqfn(request.metadata)

        def failed(failure: BaseException) -> None:  # also raised to the caller that awaits it
            _log.debug("request %s for %s failed: %s", request.request_id, name, failure)

        await asyncio.shield(self._under_way.start(self._submit(request), f"request for {name}", failed))

    async def deletions_ended(self) -> None:
        """Wait until no deletion is in progress. Cancellation: safe."""
        async with self._deleting:
            pass

    async def _submit(self, request: FunctionRequest) -> None:
        async with self.log.turn() as turn:
            if turn is None:
                raise NotLeader("this worker is not the leader: send the request to the leader")
            for _ in range(_ATTEMPTS):
                record = await self._decide(request)
                if record is None:
                    return
                if request.is_deletion:
                    await self._prepare_deletion(record.key, turn)
                await turn.append([record])
            if self._table.decide(request) is not None:
                raise OperationTimeout(
                    f"the change was written {_ATTEMPTS} times without effect: see the log for the reason"
                )

    async def _prepare_deletion(self, name: str, turn: Turn) -> None:
        metadata = self._table.get(name)
        if metadata is None or self._before_deletion is None:
            return
        async with self._deleting:
            if turn.is_current:
                await self._before_deletion(metadata)
        if not turn.is_current:
            raise NotLeader("this worker lost its leadership: send the request to the new leader")

    async def _decide(self, request: FunctionRequest) -> LogRecord | None:
        """Decide a request. Before rejecting it, read the log to its end: the leader may have changed."""
        try:
            return self._table.decide(request)
        except (FunctionExists, OutOfDate):
            await self.log.catch_up()
            return self._table.decide(request)

    async def wait_until_seen(self, request: FunctionRequest) -> None:
        """Wait until a request executed by another worker is applied to the table. Cancellation: safe.

        Raises:
            OperationTimeout: the record did not arrive in time.
        """
        what = f"version {request.metadata.version} of {fqfn(request.metadata)}"
        await self.log.wait_until(lambda: self._table.has_seen(request), what)
