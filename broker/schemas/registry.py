"""Schema versions of all topics, stored in the metadata store.

Design: each version is an immutable record, and creating it is the commit. If two writers create a version
concurrently, even in two brokers that share a store, one succeeds and the other rereads. A deletion is also a record,
which invalidates the versions before it; their numbers are not reused. A topic's partitions share its schemas. Schemas
are cached up to `MAX_CACHED_BYTES`, and evicted when another broker changes them.

Invariant: every returned version is durable, and refers to the same schema as long as the topic's schemas exist.

Source: Pulsar 4.0's SchemaRegistryServiceImpl. The paths are specific to Magnetar, below Pulsar's path in ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from ...errors import BadVersion
from ...metadata.store.store import ABSENT, Change, MetadataStore
from ...tasks import FairLock
from ...wire.topic_name import TopicName
from .compatibility import Incompatible, Strategy, check_new, identical, version_of
from .model import History, Schema, SchemaVersion, stored_type
from .records import NO_NAMES, SCHEMAS, decode, encode, encode_deletion, numbers_of, schema_path
from .validity import check_definition

MAX_CACHED_BYTES = 32 * 1024 * 1024
"""Maximum total size of cached definitions."""
MAX_READ_AT_ONCE = 200
MAX_BYTES_AT_ONCE = 2 * 1024
"""Maximum size of definitions to parse and compare on the event loop, which takes about 5 ms."""
MAX_QUICK_BYTES = 64 * 1024
"""Maximum size of definitions that are compared within half a second; larger ones take up to several seconds."""


T = TypeVar("T")


class SchemaRegistry:
    """Schema versions by topic. Call `start` to watch the store.

    Each method may raise `StorageError`.

    Attributes:
        compatible: number of compatible new schemas since the broker started, by namespace.
        incompatible: number of incompatible new schemas since the broker started, by namespace.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._quick, self._slow = FairLock(), FairLock()
        self.compatible: Counter[str] = Counter()
        self.incompatible: Counter[str] = Counter()
        self._cache: OrderedDict[str, History] = OrderedDict()
        self._cached_bytes = 0
        self._reading: dict[str, bool] = {}  # whether the record changed while it was being read
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"SchemaRegistry(topics={len(self._cache)}, bytes={self._cached_bytes})"

    def start(self) -> None:
        """Start watching for changes by other brokers."""
        self._store.watch(SCHEMAS, self._note)

    async def history(self, name: TopicName) -> History:
        """Return the versions of a topic, or of a partition's topic.

        Cancellation: safe.
        """
        if name.base.local in NO_NAMES:
            return History()
        path = schema_path(name)
        cached = self._cache.get(path)
        if cached is not None:
            self._cache.move_to_end(path)
            return cached
        async with self._lock(path):
            return await self._read(path)

    async def put(
        self,
        name: TopicName,
        schema: Schema,
        strategy: Strategy,
        *,
        may_write: Callable[[], None] = lambda: None,
    ) -> int:
        """Return the version of a schema, adding it if it is new and compatible with the existing versions.

        Args:
            name: the topic or one of its partitions.
            schema: the schema, with its arrival time.
            strategy: the required compatibility.
            may_write: called immediately before the schema is added; raises to prevent that.

        Raises:
            InvalidDefinition: the schema is invalid.
            Incompatible: the schema is incompatible.

        Cancellation: the schema may still be added.
        """
        path = schema_path(name)
        versions = (await self.history(name)).versions
        known = identical(schema, versions)
        if known is not None:
            return known
        await self.apart(name, schema, (), lambda: check_definition(schema))
        async with self._lock(path):
            while True:
                history = await self._read(path)  # rechecked under the lock: it may have been added concurrently
                known = await self._known(name, schema, history.versions)
                if known is not None:
                    return known
                may_write()  # its error takes precedence over incompatibility
                await self._check(name, schema, history.versions, strategy)
                number = history.next_number
                may_write()
                added = Schema(stored_type(schema.type), schema.data, dict(schema.properties), schema.timestamp_ms)
                if await self._create(path, number, encode(added)):
                    versions = (*history.versions, SchemaVersion(number, added))
                    self._keep(path, History(versions, (*history.numbers, number)))
                    return number

    async def _known(self, name: TopicName, schema: Schema, versions: Sequence[SchemaVersion]) -> int | None:
        return await self.apart(name, schema, versions, lambda: version_of(schema, versions))

    async def _check(
        self, name: TopicName, schema: Schema, versions: Sequence[SchemaVersion], strategy: Strategy
    ) -> None:
        try:
            await self.apart(name, schema, versions, lambda: check_new(schema, versions, strategy))
        except Incompatible:
            self.incompatible[name.namespace_name] += 1
            raise
        self.compatible[name.namespace_name] += 1

    async def delete(self, name: TopicName, now_ms: int, *, may_write: Callable[[], None] = lambda: None) -> int:
        """Delete all versions of a topic and return the number of the deletion.

        Args:
            name: the topic or one of its partitions.
            now_ms: current time.
            may_write: called immediately before the deletion; raises to prevent it.

        Cancellation: the versions may still be deleted.
        """
        path = schema_path(name)
        async with self._lock(path):
            while True:
                history = await self._read(path)
                number = history.next_number
                may_write()
                if await self._create(path, number, encode_deletion(now_ms)):
                    self._keep(path, History((), (*history.numbers, number)))
                    return number

    async def forget(self, name: TopicName) -> None:
        """Delete all versions of a topic and their numbers, so that the next version is 0.

        Cancellation: some versions may remain; call again.
        """
        await self._forget(schema_path(name))

    async def forget_namespace(self, namespace: str) -> None:
        """Call `forget` for all topics of ``tenant/namespace``.

        Cancellation: some versions may remain; call again.
        """
        root = f"{SCHEMAS}/{namespace}"
        for topic in await self._store.children(root):
            await self._forget(f"{root}/{topic}")

    async def apart(
        self, name: TopicName, schema: Schema, versions: Sequence[SchemaVersion], decide: Callable[[], T]
    ) -> T:
        """Return the result of ``decide`` for a topic's schema and versions, run in a thread if they are large.

        At most one small and one large comparison run at a time, because Python threads share a core. Tenants are
        served in turn.

        Cancellation: safe.
        """
        size = len(schema.data) + sum(len(version.schema.data) for version in versions)
        if size <= MAX_BYTES_AT_ONCE:
            return decide()
        async with (self._quick if size <= MAX_QUICK_BYTES else self._slow).turn(name.tenant):
            return await asyncio.to_thread(decide)

    # Records

    def _lock(self, path: str) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

    async def _forget(self, path: str) -> None:
        async with self._lock(path):
            numbers = numbers_of(await self._store.children(path))
            self._drop(path)
            try:
                # In ascending order, so that a crash leaves the last versions, or the deletion that ended them.
                for number in numbers:
                    await self._store.delete(f"{path}/{number}")
            finally:
                self._drop(path)

    async def _create(self, path: str, number: int, value: bytes) -> bool:
        """Write a new record and return whether its number was free. If the outcome is unknown, clear the cache."""
        try:
            await self._store.put(f"{path}/{number}", value, ABSENT)
        except BadVersion:
            self._drop(path)
            return False
        except BaseException:
            self._drop(path)
            raise
        return True

    async def _read(self, path: str) -> History:
        cached = self._cache.get(path)
        if cached is not None:
            return cached
        self._reading[path] = False
        try:
            numbers = numbers_of(await self._store.children(path))
            history = await self._load(path, numbers)
        finally:
            is_stale = self._reading.pop(path, False)
        if not is_stale:
            self._keep(path, history)
        return history

    async def _load(self, path: str, numbers: list[int]) -> History:
        versions: list[SchemaVersion] = []
        for begin in range(0, len(numbers), MAX_READ_AT_ONCE):
            some = numbers[begin : begin + MAX_READ_AT_ONCE]
            records = await asyncio.gather(*(self._store.get(f"{path}/{number}") for number in some))
            for number, record in zip(some, records, strict=True):
                schema = None if record is None else decode(f"{path}/{number}", record.value)
                if schema is None:
                    versions.clear()  # a deletion, or a version deleted during this read
                else:
                    versions.append(SchemaVersion(number, schema))
        return History(tuple(versions), tuple(numbers))

    def _keep(self, path: str, history: History) -> None:
        self._drop(path)
        self._cache[path] = history
        self._cached_bytes += history.bytes_
        while self._cached_bytes > MAX_CACHED_BYTES and len(self._cache) > 1:
            self._drop(next(iter(self._cache)))

    def _drop(self, path: str) -> None:
        dropped = self._cache.pop(path, None)
        if dropped is not None:
            self._cached_bytes -= dropped.bytes_

    def _note(self, change: Change) -> None:
        """Evict schemas that another broker changed. Changes by this registry are already in memory."""
        path, _, number = change.path.rpartition("/")
        if path in self._reading:
            self._reading[path] = True
        cached = self._cache.get(path)
        if cached is not None and number.isdecimal():
            is_known = int(number) in cached.numbers
            if is_known == (change.version is None):
                self._drop(path)
