"""Watch on a tree of ZooKeeper nodes, built from one-shot watches, which every server supports.

Design: for each node at or below the prefix, the watch stores the last seen state, and sets one ZooKeeper watch on the
node's value and one on its children. A ZooKeeper watch only signals a change. The node is then reread, which also
renews the watches, and differences from the last seen state are reported. ZooKeeper watches are lost with their
connection, so the whole tree is reread after each reconnection, and changes made meanwhile are reported as differences.

Invariant: store operations wait until the tree has been read once (`is_armed`), so a record that a caller reads or
writes after `watch` is never older than the state with which the watch compares it.

Rejected alternative: ZooKeeper's persistent recursive watches, of which one per tree would suffice. Neither servers
before 3.6 nor kazoo support them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kazoo.exceptions import KazooException, NoNodeError

from ...errors import ClosedError
from ...tasks import TaskSet, call_in
from .zookeeper_session import ConnectionBroken, Session

RESERVED = "/zookeeper"
"""ZooKeeper's own nodes below the root of every server."""
MAX_READ_AT_ONCE = 200
"""Maximum number of nodes read concurrently."""
RETRY_DELAY_S = 0.05
"""Pause before rereading a tree after its connection was lost, which the session notices slightly later."""
REFUSED_DELAY_S = 1.0
"""Pause after the server rejected a read."""

log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """Last seen state of a record. ``change_id`` (ZooKeeper's mzxid) increases even if a record is recreated."""

    change_id: int
    version: int


class TreeWatch:
    """Reports changes at ``top`` and below it.

    Attributes:
        is_armed: set once no later change can be missed.
        nodes_read: number of nodes read so far, which shows progress to callers that wait for `is_armed`.
    """

    def __init__(
        self, session: Session, top: str, report: Callable[[str, int | None], None], open_ones: set[TreeWatch]
    ) -> None:
        """Start watching. ``open_ones`` contains the watch until it is closed."""
        self.is_armed = asyncio.Event()
        self.nodes_read = 0
        self._session = session
        self._top = top
        self._report = report
        self._records: dict[str, _Seen] = {}
        self._names: dict[str, set[str]] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._open_ones = open_ones
        open_ones.add(self)
        session.on_connect.add(self._wake.set)
        self._tasks = TaskSet(f"ZooKeeper {session.servers}")
        self._tasks.keep(self._follow, f"watch of {top}")

    def __repr__(self) -> str:
        return f"TreeWatch({self._top!r}, records={len(self._records)}, nodes={len(self._names)})"

    def close(self) -> None:
        """Stop the watch. No reports follow."""
        self._open_ones.discard(self)
        self._session.on_connect.discard(self._wake.set)
        self._tasks.cancel()
        self.is_armed.set()

    async def _follow(self) -> None:
        generation = 0
        while True:
            try:
                current = await self._session.connected()
            except ClosedError:
                return
            try:
                if current != generation:
                    self._dirty.clear()
                    await self._read((self._top,), is_deep=True)
                    generation = current
                    self.is_armed.set()
                while self._dirty:
                    dirty, self._dirty = self._dirty, set()
                    await self._read(dirty, is_deep=False)
            except ConnectionBroken:
                generation = 0  # the dirty nodes are part of the tree
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            except KazooException as exc:
                log.warning(
                    "ZooKeeper %s rejected a watch of %s: %s %s; check the access rights",
                    self._session.servers, self._top, type(exc).__name__, exc,
                )  # fmt: skip
                generation = 0
                await asyncio.sleep(REFUSED_DELAY_S)
                continue
            await self._wake.wait()
            self._wake.clear()

    async def _read(self, paths: Iterable[str], *, is_deep: bool) -> None:
        """Read nodes, and their new descendants, or all of them if ``is_deep``."""
        frontier = list(paths)
        while frontier:
            chunk = frontier[-MAX_READ_AT_ONCE:]
            del frontier[-MAX_READ_AT_ONCE:]
            for below in await asyncio.gather(*(self._visit(path, is_deep) for path in chunk)):
                frontier += below
            self.nodes_read += len(chunk)

    async def _visit(self, path: str, is_deep: bool) -> list[str]:
        """Read one node, report differences, and return the nodes to read next."""
        node = await self._look(path)
        # Reading a missing node sets no watch. The parent's watch signals a new node; the top has no watched parent,
        # so its existence is checked, which sets a watch.
        while node is None and path == self._top and await self._call("exists_async", path) is not None:
            node = await self._look(path)
        if node is None:
            self._forget(path)
            return []
        value, stat, names = node
        self._saw(path, value, stat)
        found = {name for name in names if path != "/" or f"/{name}" != RESERVED}
        held = self._names.get(path, set())
        self._names[path] = found
        base = path.rstrip("/")
        for name in held - found:
            self._forget(f"{base}/{name}")
        return [f"{base}/{name}" for name in (found if is_deep else found - held)]

    async def _look(self, path: str) -> tuple[bytes, Any, list[str]] | None:
        """Read a node's value and children, which sets its watches; return None if it does not exist."""
        reading = self._call("get_async", path), self._call("get_children_async", path)
        found: Any
        names: Any
        found, names = await asyncio.gather(*reading, return_exceptions=True)
        for answer in (found, names):
            if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                raise answer
        if isinstance(found, BaseException) or isinstance(names, BaseException):
            return None
        value, stat = found
        return value, stat, names

    async def _call(self, method: str, path: str) -> Any:
        return await self._session.call(lambda client: getattr(client, method)(path, watch=self._happened))

    def _saw(self, path: str, value: bytes, stat: Any) -> None:
        held = self._records.get(path)
        if held is not None and held.change_id >= stat.mzxid:
            return
        if value:
            self._records[path] = _Seen(stat.mzxid, stat.version)
            self._tell(path, stat.version)
        elif held is not None:
            del self._records[path]
            self._tell(path, None)

    def _forget(self, path: str) -> None:
        """Report the deletion of a node and its descendants."""
        parent, _, name = path.rpartition("/")
        self._names.get(parent or "/", set()).discard(name)
        gone = [path]
        while gone:
            one = gone.pop()
            gone += [f"{one.rstrip('/')}/{below}" for below in self._names.pop(one, ())]
            if self._records.pop(one, None) is not None:
                self._tell(one, None)

    def _tell(self, path: str, version: int | None) -> None:
        if self in self._open_ones and self.is_armed.is_set():
            self._report(path, version)

    def _happened(self, event: Any) -> None:
        """Handle a fired watch. Runs in kazoo's thread."""
        if event.path is None:  # the connection was lost, and all watches with it
            return
        call_in(self._loop, self._mark, event.path)

    def _mark(self, path: str) -> None:
        self._dirty.add(path)
        self._wake.set()
