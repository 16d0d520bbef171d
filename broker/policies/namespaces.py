"""Clusters, tenants, namespaces, policies and partitioned topics: in memory to read, in the metadata store to keep.

Design: connections ask for partitions and policies on every lookup, so reads are synchronous and from memory. A write
goes to the store with the version that memory holds, and memory follows once the store says that it is durable. Two
writers of one record therefore never lose a change: the later one gets `BadVersion`, reads again and repeats.

A ZooKeeper ensemble may be changed by others too, so the trees are watched: a path that changed is read again, and what
the store holds then is what memory holds.

Invariant: memory never shows what is not durable, and never goes back to an older version.

The paths are those of Pulsar in ZooKeeper, so that the tree reads the same there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from ...errors import BadVersion, ClosedError, StorageError
from ...metadata.store.store import ABSENT, Change, MetadataStore, Record
from ...tasks.supervised import TaskSet
from ...wire.topic_name import DOMAINS, TopicName
from ..config import BrokerConfig
from .policies import AutoCreation, Policies, Retention, default_policies

CLUSTERS = "/admin/clusters"
POLICIES = "/admin/policies"
PARTITIONED_TOPICS = "/admin/partitioned-topics"
TOPIC_PROPERTIES = "/admin/topic-properties"
"""Ours: Pulsar keeps them with the managed ledger, which here lies in the data directory."""
TOPIC_POLICIES = "/admin/topic-policies"
"""Ours: Pulsar keeps them in a topic of each namespace. One object a topic, partitions included; unset is absent."""
MAX_ATTEMPTS = 10
"""Repetitions of a change whose record was changed by somebody else meanwhile."""

MAX_READ_AT_ONCE = 200
"""Records that are loaded together from each tree."""
REFRESH_DELAY_S = 1.0
"""Pause before a changed record is read again after the store failed."""

JsonObject = dict[str, Any]
log = logging.getLogger(__name__)


class Namespaces:
    """Tenants, namespaces, policies and partitioned topics, in memory; `start` loads them.

    Attributes:
        store: what keeps them, and records that need no copy in memory.
        cluster_name: of this broker.
        policy_changes: how often policies of namespaces or topics changed.
    """

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self.store = store
        self.cluster_name = config.cluster
        self._config = config
        self._records: dict[str, tuple[JsonObject, int]] = {}
        self.policy_changes = 0
        self._leaving: set[str] = set()
        self._changed: dict[str, None] = {}  # in the order of the changes
        self._tasks = TaskSet("namespaces")
        self._refreshing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Namespaces(cluster={self.cluster_name!r}, records={len(self._records)})"

    async def start(self) -> None:
        """Load everything and create what a standalone broker always has."""
        roots = CLUSTERS, POLICIES, PARTITIONED_TOPICS, TOPIC_PROPERTIES, TOPIC_POLICIES
        for root in roots:  # first, so that no change falls between
            self.store.watch(root, self._note)
        await asyncio.gather(*(self._load(root) for root in roots))
        tenant = {"adminRoles": [], "allowedClusters": [self.cluster_name]}
        first: dict[str, JsonObject] = {
            f"{CLUSTERS}/{self.cluster_name}": {},
            f"{POLICIES}/public": tenant,
            f"{POLICIES}/pulsar": tenant,
        }
        for namespace in ("public/default", "public/functions", "pulsar/system"):
            first[f"{POLICIES}/{namespace}"] = default_policies(self.cluster_name)
        # The functions' own topics are logs that no durable subscription holds back: nothing of them may be trimmed.
        first[f"{POLICIES}/public/functions"]["retention_policies"] = {
            "retentionTimeInMinutes": -1,
            "retentionSizeInMB": -1,
        }
        await asyncio.gather(*(self._create(path, value) for path, value in first.items() if path not in self._records))

    # Clusters and tenants

    def clusters(self) -> list[str]:
        """Return the names of the clusters."""
        return self._names(CLUSTERS)

    def cluster(self, name: str) -> JsonObject | None:
        """Return a cluster's data, or None."""
        return self._value(f"{CLUSTERS}/{name}")

    async def create_cluster(self, name: str, data: JsonObject) -> None:
        """Add a cluster; raises BadVersion if it exists."""
        await self._create(f"{CLUSTERS}/{name}", data)

    async def change_cluster(self, name: str, change: Callable[[JsonObject], JsonObject]) -> None:
        """Replace a cluster's data by what ``change`` makes of it."""
        await self._change(f"{CLUSTERS}/{name}", change)

    async def delete_cluster(self, name: str) -> None:
        """Remove a cluster."""
        await self._delete(f"{CLUSTERS}/{name}")

    def tenants(self) -> list[str]:
        """Return the names of the tenants."""
        return self._names(POLICIES)

    def tenant(self, name: str) -> JsonObject | None:
        """Return a tenant's TenantInfo, or None."""
        return self._value(f"{POLICIES}/{name}")

    async def create_tenant(self, name: str, info: JsonObject) -> None:
        """Add a tenant; raises BadVersion if it exists."""
        await self._create(f"{POLICIES}/{name}", info)

    async def change_tenant(self, name: str, info: JsonObject) -> None:
        """Replace a tenant's TenantInfo."""
        await self._change(f"{POLICIES}/{name}", lambda _: info)

    async def delete_tenant(self, name: str) -> None:
        """Remove a tenant, which must have no namespaces."""
        await self._delete(f"{POLICIES}/{name}")

    # Namespaces and policies

    def namespaces(self, tenant: str) -> list[str]:
        """Return a tenant's namespaces as ``tenant/name``."""
        return [f"{tenant}/{name}" for name in self._names(f"{POLICIES}/{tenant}")]

    def has_namespace(self, namespace: str) -> bool:
        """Return whether ``tenant/name`` exists; one that is being deleted does not."""
        return f"{POLICIES}/{namespace}" in self._records and namespace not in self._leaving

    def policies(self, namespace: str) -> Policies:
        """Return the policies of ``tenant/name``, not to be modified; the defaults if there is no such namespace."""
        value = self._value(f"{POLICIES}/{namespace}")
        return default_policies(self.cluster_name) if value is None else value

    def retention(self, namespace: str) -> Retention:
        """Return how long acknowledged messages stay; nothing is kept without a policy."""
        limits = self.policies(namespace).get("retention_policies") or {}
        minutes = limits.get("retentionTimeInMinutes", 0)
        megabytes = limits.get("retentionSizeInMB", 0)
        return Retention(
            -1 if minutes < 0 else minutes * 60_000,
            -1 if megabytes < 0 else megabytes * 1024 * 1024,
        )

    def compaction_threshold(self, name: TopicName) -> int:
        """Return how many bytes of a topic may wait to be compacted; 0 is any number: it is compacted on request."""
        return int(self._first_set(name, "compaction_threshold", self._config.compaction_threshold_bytes))

    def deduplication(self, name: TopicName) -> bool:
        """Return whether entries are dropped that a producer of the topic repeats."""
        return bool(self._first_set(name, "deduplicationEnabled", self._config.deduplication))

    def _first_set(self, name: TopicName, field: str, default: Any) -> Any:
        """Return a policy: the topic's word, its namespace's, the broker's (``default``)."""
        for policies in (self.topic_policies(name), self.policies(name.namespace_name)):
            if policies.get(field) is not None:
                return policies[field]
        return default

    def auto_topic_creation(self, name: TopicName) -> AutoCreation:
        """Return whether and how topics are created on first use; the namespace's word, or the broker's."""
        override = self.policies(name.namespace_name).get("autoTopicCreationOverride")
        if not override:
            return AutoCreation(self._config.allow_auto_topic_creation, self._config.auto_topic_partitions)
        partitions = override.get("defaultNumPartitions") or 0 if override.get("topicType") == "partitioned" else 0
        return AutoCreation(bool(override["allowAutoTopicCreation"]), partitions)

    def auto_subscription_creation(self, name: TopicName) -> bool:
        """Return whether durable subscriptions are created on first use."""
        override = self.policies(name.namespace_name).get("autoSubscriptionCreationOverride")
        if not override:
            return self._config.allow_auto_subscription_creation
        return bool(override["allowAutoSubscriptionCreation"])

    async def create_namespace(self, namespace: str, policies: Policies) -> None:
        """Add ``tenant/name``; raises BadVersion if it exists."""
        await self._create(f"{POLICIES}/{namespace}", policies)

    async def change_policies(self, namespace: str, change: Callable[[Policies], Policies]) -> None:
        """Replace the policies by what ``change`` makes of a copy of them."""
        await self._change(f"{POLICIES}/{namespace}", change)

    async def delete_namespace(self, namespace: str) -> None:
        """Remove ``tenant/name``, which must have no topics, and what else is recorded under it.

        From the call on nothing is created in it.
        """
        self._leaving.add(namespace)
        try:
            await self._delete_below(namespace)
            await self._delete(f"{POLICIES}/{namespace}")
            await self._delete_below(namespace)  # what was on its way to the store when this began
        finally:
            self._leaving.discard(namespace)

    async def _delete_below(self, namespace: str) -> None:
        below = [
            path
            for path in self._records
            for root in (PARTITIONED_TOPICS, TOPIC_PROPERTIES, TOPIC_POLICIES)
            if path.startswith(f"{root}/{namespace}/")
        ]
        await asyncio.gather(*(self._delete(path) for path in below))

    # Topics

    def partitions(self, base: TopicName) -> int:
        """Return the number of partitions of a topic; 0 if it is not partitioned or does not exist."""
        value = self._value(_topic_path(PARTITIONED_TOPICS, base))
        return 0 if value is None else int(value["partitions"])

    def partitioned_topics(self, namespace: str, domain: str = DOMAINS[0]) -> list[TopicName]:
        """Return the partitioned topics of ``tenant/name``."""
        tenant, _, local_namespace = namespace.partition("/")
        names = self._names(f"{PARTITIONED_TOPICS}/{namespace}/{domain}")
        return [TopicName(domain, tenant, local_namespace, unquote(name)) for name in names]

    async def create_partitioned_topic(
        self, base: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Record a topic as partitioned; raises BadVersion if it is already."""
        value: JsonObject = {"partitions": partitions, "deleted": False}
        if properties:
            value["properties"] = dict(properties)
        await self._create(_topic_path(PARTITIONED_TOPICS, base), value)

    async def ensure_partitioned_topic(self, base: TopicName, partitions: int) -> int:
        """Record a topic as partitioned, unless somebody else has; then that holds. Returns its partitions."""
        if not self.partitions(base):
            try:
                await self.create_partitioned_topic(base, partitions)
            except BadVersion:
                await self._read_again(_topic_path(PARTITIONED_TOPICS, base))
        return self.partitions(base)

    async def update_partitions(self, base: TopicName, partitions: int) -> None:
        """Raise the number of partitions; a lower number leaves it as it is."""
        await self._change(
            _topic_path(PARTITIONED_TOPICS, base),
            lambda value: value | {"partitions": max(partitions, value["partitions"])},
        )

    async def delete_partitioned_topic(self, base: TopicName) -> None:
        """Forget that a topic is partitioned; its partitions are the caller's to delete."""
        await self._delete(_topic_path(PARTITIONED_TOPICS, base))
        await self.change_topic_policies(base, lambda _: {})

    def properties(self, name: TopicName) -> dict[str, str]:
        """Return the properties that an administrator gave a topic; empty if none."""
        if partitioned := self._value(_topic_path(PARTITIONED_TOPICS, name)):
            return dict(partitioned.get("properties", {}))
        return dict(self._value(_topic_path(TOPIC_PROPERTIES, name)) or {})

    async def set_properties(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Replace the properties of a topic; empty ones are forgotten."""
        partitioned = _topic_path(PARTITIONED_TOPICS, name)
        if partitioned in self._records:
            await self._change(partitioned, lambda value: value | {"properties": dict(properties)})
        else:
            await self._change(_topic_path(TOPIC_PROPERTIES, name), lambda _: dict(properties), forgets_empty=True)

    def topic_policies(self, name: TopicName) -> Policies:
        """Return what was set for a topic, or for the one that it is a partition of; not to be modified."""
        return self._value(_topic_path(TOPIC_POLICIES, name.base)) or {}

    async def change_topic_policies(self, name: TopicName, change: Callable[[Policies], Policies]) -> None:
        """Replace the policies of a topic and its partitions by what ``change`` makes of them; empty is forgotten."""
        await self._change(_topic_path(TOPIC_POLICIES, name.base), change, forgets_empty=True)

    async def forget_topic(self, name: TopicName) -> None:
        """Forget the properties and policies of a topic, those on their way to the store too."""
        await asyncio.gather(
            self._delete(_topic_path(TOPIC_PROPERTIES, name)), self._delete(_topic_path(TOPIC_POLICIES, name.base))
        )

    # The records behind all of this

    def _value(self, path: str) -> JsonObject | None:
        held = self._records.get(path)
        return None if held is None else held[0]

    def _names(self, path: str) -> list[str]:
        below = path + "/"
        return sorted(p[len(below) :] for p in self._records if p.startswith(below) and "/" not in p[len(below) :])

    def _keep(self, path: str, value: JsonObject, version: int) -> None:
        held = self._records.get(path)
        if held is not None and held[1] > version:
            return
        self._records[path] = value, version
        self._count_change(path)

    def _forget(self, path: str) -> None:
        self._records.pop(path, None)
        self._count_change(path)

    def _count_change(self, path: str) -> None:
        self.policy_changes += path.startswith((POLICIES, TOPIC_POLICIES))

    async def _load(self, root: str) -> None:
        """Read a tree, a bounded number of records at a time: each read has a deadline of its own."""
        to_read = [root]
        while to_read:
            paths = to_read[-MAX_READ_AT_ONCE:]
            del to_read[-MAX_READ_AT_ONCE:]
            for below in await asyncio.gather(*(self._load_one(path) for path in paths)):
                to_read += below

    async def _load_one(self, path: str) -> list[str]:
        record, names = await asyncio.gather(self.store.get(path), self.store.children(path))
        if record is not None:
            self._read(path, record)
        return [f"{path}/{name}" for name in names]

    def _read(self, path: str, record: Record) -> None:
        self._keep(path, _decode(path, record.value), record.version)

    def _note(self, change: Change) -> None:
        """Take note of a change in the store, most often our own."""
        held = self._records.get(change.path)
        if change.version != (None if held is None else held[1]):
            self._changed[change.path] = None
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._tasks.keep(self._refresh, "reading changed records again")

    async def _refresh(self) -> None:
        while self._changed:
            path = next(iter(self._changed))
            del self._changed[path]
            held = self._records.get(path)
            try:
                record = await self.store.get(path)
            except ClosedError:
                return
            except StorageError as error:
                log.warning("%s; trying again", error)
                self._changed[path] = None
                await asyncio.sleep(REFRESH_DELAY_S)
                continue
            if self._records.get(path) is not held:  # changed by us meanwhile: what was read may be older than that
                self._changed[path] = None
                continue
            try:
                value = None if record is None else _decode(path, record.value)
            except StorageError as error:
                log.error("%s; until then what it was before holds", error)
                continue
            self._forget(path)
            if record is not None and value is not None:
                self._keep(path, value, record.version)

    async def _create(self, path: str, value: JsonObject) -> None:
        self._keep(path, value, await self.store.put(path, _encode(value), ABSENT))

    async def _change(
        self, path: str, change: Callable[[JsonObject], JsonObject], *, forgets_empty: bool = False
    ) -> None:
        """Write what ``change`` makes of a copy of the current value, however often others write meanwhile.

        Args:
            path: of the record.
            change: returns the new value.
            forgets_empty: of this record absent and empty are the same.
        """
        for _ in range(MAX_ATTEMPTS):
            held = self._records.get(path)
            if held is None and not forgets_empty:
                raise BadVersion(f"metadata record {path} was deleted meanwhile")
            value = change({} if held is None else json.loads(_encode(held[0])))
            try:
                if value or not forgets_empty:
                    version = await self.store.put(path, _encode(value), ABSENT if held is None else held[1])
                    self._keep(path, value, version)
                elif held is not None:
                    await self.store.delete(path, held[1])
                    self._forget(path)
            except BadVersion:
                await self._read_again(path)
            else:
                return
        raise BadVersion(f"metadata record {path} was changed by others {MAX_ATTEMPTS} times meanwhile; try again")

    async def _read_again(self, path: str) -> None:
        """Update memory to what the store holds."""
        record = await self.store.get(path)
        self._forget(path)
        if record is not None:
            self._read(path, record)

    async def _delete(self, path: str) -> None:
        await self.store.delete(path)
        self._forget(path)


def _encode(value: JsonObject) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(path: str, value: bytes) -> JsonObject:
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise StorageError(f"metadata record {path} is no JSON ({exc}); correct or delete it in the store") from exc
    if not isinstance(decoded, dict):
        raise StorageError(f"metadata record {path} is no JSON object; correct or delete it in the store")
    if path.startswith(PARTITIONED_TOPICS) and type(decoded.get("partitions")) is not int:
        raise StorageError(f"metadata record {path} has no number as partitions; correct or delete it in the store")
    return decoded


def _topic_path(root: str, name: TopicName) -> str:
    return f"{root}/{name.tenant}/{name.namespace}/{name.domain}/{quote(name.local, safe='')}"
