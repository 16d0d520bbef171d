"""Metadata store in a ZooKeeper ensemble, below one of its nodes.

Design: a record is a node; a parent without a record is a node without a value. ZooKeeper's node versions are the
record versions. This module adds three things: nodes without a value are created and deleted with their descendants,
every operation ends in bounded time regardless of the servers, and if a lost connection leaves an outcome unknown, the
error says so.

Invariant: a node without a value below the store's root always has children. So the transaction that creates a record
also creates its missing parents, and the one that deletes it also deletes the parents that are no longer needed. A
transaction checks its preconditions (the version of a record above, the existence of another child). If one changed
meanwhile, the whole transaction fails, and a new one is planned.

Retries: an operation interrupted by a lost connection is retried until its timeout. The exception is a write that
depends on a version and whose first attempt may have taken effect: it fails with the error that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from ...errors import ClosedError, MetadataUnavailable, StorageError
from ...tasks import TaskSet, awaited_elsewhere, within
from .store import Change, Record, check_path, check_value, check_version
from .zookeeper_session import ConnectionBroken, Session
from .zookeeper_watch import RESERVED, RETRY_DELAY_S, TreeWatch

CLOSE_TIMEOUT_S = 2.0
"""Time that `ZookeeperStore.close` waits for pending operations."""
ANY_VERSION = -1
"""ZooKeeper's wildcard for any version."""

_RACED = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)
"""Errors of a request that lost a race against another client. The operation then rereads and replans."""
_T = TypeVar("_T")


@dataclass(slots=True)
class _Operation:
    """A call of a store method.

    Attributes:
        path: node path.
        is_repeatable: whether the operation may be resent if the outcome of an attempt is unknown.
        is_unsure: whether a write is in flight, or was when the connection was lost.
        has_deleted: whether an earlier attempt of a repeated deletion saw the record.
    """

    path: str
    is_repeatable: bool = True
    is_unsure: bool = False
    has_deleted: bool = False


class _Node(NamedTuple):
    """The contents of a node. A node without a value is not a record."""

    value: bytes
    version: int
    children: int


class ZookeeperStore:
    """`MetadataStore` on ZooKeeper; created by `open`, and bound to the event loop that called it."""

    def __init__(self, session: Session, top: str, timeout_s: float) -> None:
        self._session = session
        self._top = top
        self._timeout_s = timeout_s
        self._owned = TaskSet(f"ZooKeeper {session.servers}")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._trees: set[TreeWatch] = set()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        servers: str,
        path: str,
        timeout_s: float,
    ) -> ZookeeperStore:
        """Connect, and create the node at ``path`` if it is missing.

        Args:
            servers: ``host:port,host:port…``.
            path: root node of the store; ``/`` or an empty string for ZooKeeper's root.
            timeout_s: timeout for the first connection and for each operation.

        Raises:
            MetadataUnavailable: no server responded in time.
            StorageError: the ensemble denies access to ``path``.
        """
        session = Session(servers)
        await session.start(timeout_s)
        store = cls(session, path.rstrip("/"), timeout_s)
        try:
            await store._run(_Operation(path), store._make_top)
        except BaseException:
            await session.stop()
            raise
        return store

    def __repr__(self) -> str:
        return f"ZookeeperStore({self._session.servers}{self._top}, connections={self._session.generation})"

    async def get(self, path: str) -> Record | None:
        """Return the record at ``path``, or None."""
        node = await self._run(_Operation(self._node(path)), lambda operation: self._read(operation.path))
        return Record(node.value, node.version) if node is not None and node.value else None

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Write a record and return its new version."""
        check_value(check_path(path), value)
        operation = _Operation(self._node(path), is_repeatable=expected_version is None)
        return await self._run(operation, lambda operation: self._put(operation, value, expected_version))

    async def delete(self, path: str, expected_version: int | None = None) -> bool:
        """Delete a record, and return whether it existed."""
        operation = _Operation(self._node(path), is_repeatable=expected_version is None)
        return await self._run(operation, lambda operation: self._delete(operation, expected_version))

    async def children(self, path: str) -> list[str]:
        """Return the names directly below ``path``."""
        node = (self._top or "/") if path == "/" else self._node(path)
        names = await self._run(_Operation(node), lambda operation: self._names(operation.path))
        return sorted(names)

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> TreeWatch:
        """Call ``callback`` on the running loop for each change at ``prefix`` or below it."""
        top = (self._top or "/") if prefix == "/" else self._node(prefix)
        self._check_open()
        skipped = len(self._top)

        def report(path: str, version: int | None) -> None:
            callback(Change(path[skipped:], version))

        return TreeWatch(self._session, top, report, self._trees)

    async def close(self) -> None:
        """Finish pending operations if a server responds, and close the session."""
        if self._closing is None:
            self._closing = self._owned.start(self._close(), "close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for tree in tuple(self._trees):
            tree.close()
        if self._tasks and self._session.is_connected:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        await self._session.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise ClosedError(f"metadata store zk:{self._session.servers}{self._top} is closed")

    def _node(self, path: str) -> str:
        return self._top + check_path(path)

    # Running an operation

    async def _run(self, operation: _Operation, work: Callable[[_Operation], Awaitable[_T]]) -> _T:
        """Run an operation in a separate task, which continues if the caller is cancelled."""
        self._check_open()
        # Only an operation whose caller was cancelled can be overtaken by the next one of the same caller.
        earlier = tuple(self._abandoned)
        # After the caller was cancelled, a failure is irrelevant and not logged.
        task = self._owned.start(self._perform(operation, work, earlier), operation.path, awaited_elsewhere)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._abandoned.add(task)
                task.add_done_callback(self._abandoned.discard)
            raise

    async def _perform(
        self,
        operation: _Operation,
        work: Callable[[_Operation], Awaitable[_T]],
        earlier: tuple[asyncio.Task[Any], ...],
    ) -> _T:
        try:
            for tree in tuple(self._trees):
                await self._armed(tree)
            async with asyncio.timeout(self._timeout_s):
                if earlier:
                    await asyncio.wait(earlier)
                while True:
                    await self._session.connected()
                    try:
                        return await work(operation)
                    except ConnectionBroken as exc:
                        if operation.is_unsure and not operation.is_repeatable:
                            raise self._unavailable(operation, "the connection was lost") from exc
                        await asyncio.sleep(RETRY_DELAY_S)
        except TimeoutError:
            raise self._unavailable(operation, f"timed out after {self._timeout_s:g} s") from None
        except KazooException as exc:
            raise StorageError(
                f"ZooKeeper {self._session.servers} rejected {operation.path}: {type(exc).__name__} {exc}; check its"
                " access rights, quota and log"
            ) from exc

    async def _armed(self, tree: TreeWatch) -> None:
        """Wait until a watch is set. The timeout applies only without progress, as the tree may be large.

        Raises:
            TimeoutError: no progress was made.
        """
        read = -1
        while not tree.is_armed.is_set():
            if tree.nodes_read == read:
                raise TimeoutError
            read = tree.nodes_read
            await within(self._timeout_s, tree.is_armed.wait())

    def _unavailable(self, operation: _Operation, cause: str) -> MetadataUnavailable:
        effect = "the change may or may not have taken effect: reread the record" if operation.is_unsure else "retry"
        return MetadataUnavailable(f"ZooKeeper {self._session.servers}: {cause} for {operation.path}; {effect}")

    async def _write(self, operation: _Operation, start: Callable[[Any], Any]) -> Any:
        operation.is_unsure = True
        try:
            answer = await self._session.call(start)
        except KazooException:
            operation.is_unsure = False
            raise
        operation.is_unsure = False
        return answer

    async def _commit(self, operation: _Operation, plan: list[tuple[Any, ...]]) -> None:
        """Execute a list of ``(method, argument, …)`` atomically."""

        def start(client: Any) -> Any:
            transaction = client.transaction()
            for method, *arguments in plan:
                getattr(transaction, method)(*arguments)
            return transaction.commit_async()

        results = await self._write(operation, start)
        failures = [result for result in results if isinstance(result, Exception)]
        for failure in failures:
            if not isinstance(failure, RolledBackError | RuntimeInconsistency):
                raise failure
        if failures:
            raise failures[0]

    # Implementation of operations

    async def _make_top(self, operation: _Operation) -> None:
        names = self._top.split("/")[1:]
        for depth in range(1, len(names) + 1):
            node = "/" + "/".join(names[:depth])
            with contextlib.suppress(NodeExistsError):
                await self._write(operation, _request("create_async", node, b""))

    async def _read(self, node: str) -> _Node | None:
        try:
            value, stat = await self._session.call(_request("get_async", node))
        except NoNodeError:
            return None
        return _Node(value, stat.version, stat.numChildren)

    async def _names(self, node: str) -> list[str]:
        try:
            names = cast(list[str], await self._session.call(_request("get_children_async", node)))
        except NoNodeError:
            return []
        return [name for name in names if node != "/" or f"/{name}" != RESERVED]

    async def _put(self, operation: _Operation, value: bytes, expected: int | None) -> int:
        while True:
            version: int | None = ANY_VERSION
            if expected is not None:
                held = await self._read(operation.path)
                self._check_version(operation.path, held, expected)
                version = None if held is None else held.version
            try:
                if version is not None:
                    try:
                        stat = await self._write(operation, _request("set_async", operation.path, value, version))
                        return int(stat.version)
                    except NoNodeError:
                        if expected is not None:
                            raise
                await self._create(operation, value)
                return 0
            except _RACED:
                continue

    async def _create(self, operation: _Operation, value: bytes) -> None:
        """Create a record whose node does not exist, and its missing parents."""
        try:
            await self._write(operation, _request("create_async", operation.path, value))
        except NoNodeError:
            missing = []
            above = _parent(operation.path)
            while above != self._top and await self._read(above) is None:
                missing.append(above)
                above = _parent(above)
            parents = [("create", node, b"") for node in reversed(missing)]
            await self._commit(operation, [*parents, ("create", operation.path, value)])

    async def _delete(self, operation: _Operation, expected: int | None) -> bool:
        while True:
            held = await self._read(operation.path)
            if expected is not None:
                self._check_version(operation.path, held, expected)
            if held is None or not held.value:
                return operation.has_deleted
            try:
                plan = await self._removal(operation.path, held)
                operation.has_deleted = True
                await self._commit(operation, plan)
            except _RACED:
                operation.has_deleted = False
                continue
            return True

    async def _removal(self, node: str, held: _Node) -> list[tuple[Any, ...]]:
        """Return the transaction that deletes a record and the parents that become unnecessary."""
        if held.children:
            return [await self._other_child(node, None), ("set_data", node, b"", held.version)]
        plan: list[tuple[Any, ...]] = [("delete", node, held.version)]
        child, above = node, _parent(node)
        while above != self._top:
            parent = await self._read(above)
            if parent is None:
                raise NoNodeError(above)
            if parent.value:
                return [*plan, ("check", above, parent.version)]
            if parent.children > 1:
                return [*plan, await self._other_child(above, child)]
            plan.append(("delete", above, parent.version))
            child, above = above, _parent(above)
        return plan

    async def _other_child(self, node: str, child: str | None) -> tuple[Any, ...]:
        """Return a transaction step that checks that ``node`` has a child other than ``child``."""
        for name in await self._names(node):
            if (other := f"{node}/{name}") != child:
                return ("check", other, ANY_VERSION)
        raise NotEmptyError(node)

    def _check_version(self, node: str, held: _Node | None, expected: int) -> None:
        version = held.version if held is not None and held.value else None
        check_version(node[len(self._top) :], version, expected)


def _request(method: str, *arguments: Any) -> Callable[[Any], Any]:
    return lambda client: getattr(client, method)(*arguments)


def _parent(node: str) -> str:
    return node.rpartition("/")[0]
