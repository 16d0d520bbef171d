"""Clusters, tenants, namespaces, policies and partitioned topics: persisted in the metadata store, read from memory.

Design: every lookup needs partitions and policies, so reads are synchronous and from memory. A write is sent to the
store with the version in memory, and memory is updated after the store has confirmed the write. Concurrent writers of a
record therefore never lose a change: the later writer gets `BadVersion`, rereads the record and retries.

Other processes may change records in ZooKeeper, so the trees are watched: a changed record is reread into memory.

Invariant: memory never contains a value that is not durable, and never reverts to an older version.

The paths are the same as Pulsar's in ZooKeeper, so that the trees look alike.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from ...errors import BadVersion, ClosedError, InvalidConfig, StorageError
from ...metadata.store.store import ABSENT, Change, MetadataStore, Record
from ...tasks.supervised import TaskSet
from ...wire.topic_name import DOMAINS, TopicName, parse_topic_name
from ..config import BrokerConfig
from ..schemas.compatibility import Strategy
from . import dynamic
from .effective import EffectivePolicies, first_set, group_limits, resolve, retention_of
from .policies import (
    MAX_PARTITIONS,
    OLD_STRATEGIES,
    AutoCreation,
    DelayPolicy,
    Policies,
    Retention,
    SchemaPolicy,
    default_policies,
)

CLUSTERS = "/admin/clusters"
POLICIES = "/admin/policies"
PARTITIONED_TOPICS = "/admin/partitioned-topics"
TOPIC_PROPERTIES = "/admin/topic-properties"
"""Topic properties. Not a Pulsar path: Pulsar stores them with the managed ledger, here in the data directory."""
TOPIC_POLICIES = "/admin/topic-policies"
"""Topic policies. Not a Pulsar path: Pulsar stores them in a topic per namespace. There is one object per topic, which
applies to all its partitions; unset fields are absent.
"""
LOCAL_POLICIES = "/admin/local-policies"
"""Placement of namespaces on brokers and bookies. As in Pulsar, not part of the policies object."""
RESOURCE_GROUPS = "/admin/resourcegroups"
CONFIGURATION = "/admin/configuration"
"""Dynamic settings of all brokers: strings by name."""
MAX_ATTEMPTS = 10
"""Attempts at a change whose record was changed concurrently."""

MAX_READ_AT_ONCE = 200
"""Number of records of a tree to load concurrently."""
REFRESH_DELAY_S = 1.0
"""Delay before retrying to reread a changed record after a store failure."""

JsonObject = dict[str, Any]
log = logging.getLogger(__name__)


class Namespaces:
    """In-memory tenants, namespaces, policies and partitioned topics; `start` loads them.

    Attributes:
        store: metadata store, which also holds records without a copy in memory.
        cluster_name: cluster of this broker.
        config: the broker's settings, including dynamic changes.
        policy_changes: number of policy changes to namespaces and topics.
        on_policies: called after policies changed, with the namespace (``tenant/name``), and the topic if only its
            policies changed. Both names are empty after a change to `config`, which affects all of them.
    """

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self.store = store
        self.cluster_name = config.cluster
        self.config = config
        self._base_config = config
        self._records: dict[str, tuple[JsonObject, int]] = {}
        self.policy_changes = 0
        self.on_policies: Callable[[str, str], None] = _tell_nobody
        self._effective: dict[str, EffectivePolicies] = {}  # for topics without their own policies, by namespace
        self._leaving: set[str] = set()
        self._changed: dict[str, None] = {}  # in the order of the changes
        self._tasks = TaskSet("namespaces")
        self._refreshing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Namespaces(cluster={self.cluster_name!r}, records={len(self._records)})"

    async def start(self) -> None:
        """Load all records, and create the clusters, tenants and namespaces that a standalone broker always has."""
        roots = (
            CONFIGURATION, CLUSTERS, RESOURCE_GROUPS, POLICIES, LOCAL_POLICIES, PARTITIONED_TOPICS, TOPIC_PROPERTIES,
            TOPIC_POLICIES,
        )  # fmt: skip
        for root in roots:  # first, so that no change is missed
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
        # Topics of the functions worker are logs without durable subscriptions and must not be trimmed.
        first[f"{POLICIES}/public/functions"]["retention_policies"] = {
            "retentionTimeInMinutes": -1,
            "retentionSizeInMB": -1,
        }
        await asyncio.gather(*(self._create(path, value) for path, value in first.items() if path not in self._records))

    # Dynamic settings

    def changed_settings(self) -> dict[str, str]:
        """Return the overridden settings as strings by name."""
        return {name: str(value) for name, value in (self._value(CONFIGURATION) or {}).items()}

    async def change_setting(self, name: str, value: str | None) -> None:
        """Override a setting on all brokers; None restores each broker's initial value.

        Raises:
            InvalidConfig: the value is invalid.
        """

        def change(values: JsonObject) -> JsonObject:
            rest = {other: text for other, text in values.items() if other != name}
            return rest if value is None else rest | {name: value}

        if value is not None:
            dynamic.check(name, value)
        await self._change(CONFIGURATION, change, forgets_empty=True)

    # Clusters and tenants

    def clusters(self) -> list[str]:
        """Return the cluster names."""
        return self._names(CLUSTERS)

    def cluster(self, name: str) -> JsonObject | None:
        """Return a cluster's data, or None."""
        return self._value(f"{CLUSTERS}/{name}")

    async def create_cluster(self, name: str, data: JsonObject) -> None:
        """Add a cluster; raises BadVersion if it exists."""
        await self._create(f"{CLUSTERS}/{name}", data)

    async def change_cluster(self, name: str, change: Callable[[JsonObject], JsonObject]) -> None:
        """Replace a cluster's data with the result of ``change``."""
        await self._change(f"{CLUSTERS}/{name}", change)

    async def delete_cluster(self, name: str) -> None:
        """Remove a cluster."""
        await self._delete(f"{CLUSTERS}/{name}")

    def tenants(self) -> list[str]:
        """Return the tenant names."""
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
        """Return whether ``tenant/name`` exists and is not being deleted."""
        return f"{POLICIES}/{namespace}" in self._records and namespace not in self._leaving

    def policies(self, namespace: str) -> Policies:
        """Return the policies of ``tenant/name``, read-only; the defaults if the namespace does not exist."""
        value = self._value(f"{POLICIES}/{namespace}")
        return default_policies(self.cluster_name) if value is None else value

    def effective(self, name: TopicName) -> EffectivePolicies:
        """Return the effective policies of a topic. Topics without policies share one object per namespace."""
        namespace = name.namespace_name
        own = self.topic_policies(name)
        if own or not self.has_namespace(namespace):  # not cached, because clients choose the name
            return self._resolve(namespace, own)
        shared = self._effective.get(namespace)
        if shared is None:
            shared = self._effective[namespace] = self._resolve(namespace, {})
        return shared

    def _resolve(self, namespace: str, own: Policies) -> EffectivePolicies:
        policies = self.policies(namespace)
        group = str(policies.get("resource_group_name") or "")
        limits = self.resource_group(group)
        return resolve(self.config, policies, own, None if limits is None else group_limits(group, limits))

    def retention(self, namespace: str) -> Retention:
        """Return the namespace's retention of acknowledged messages, or the broker's default."""
        return retention_of(self.policies(namespace).get("retention_policies"), self.config)

    def compaction_threshold(self, name: TopicName) -> int:
        """Return a topic's compaction threshold in bytes; 0 means compaction only on request."""
        return int(self._first_set(name, "compaction_threshold", self.config.compaction_threshold_bytes))

    def deduplication(self, name: TopicName) -> bool:
        """Return whether deduplication is enabled for a topic."""
        return bool(self._first_set(name, "deduplicationEnabled", self.config.deduplication))

    def delayed_delivery(self, name: TopicName) -> DelayPolicy:
        """Return the delayed delivery policy of a topic."""
        policy = self._first_set(name, "delayed_delivery_policies", None)
        if policy is None:
            config = self.config
            return DelayPolicy(config.delayed_delivery, config.delayed_delivery_tick_ms, config.delayed_delivery_max_ms)
        return DelayPolicy(policy["active"], policy["tickTime"], policy["maxDeliveryDelayInMillis"])

    def schema_policy(self, name: TopicName) -> SchemaPolicy:
        """Return the schema policy of a topic."""
        config = self.config
        of_topic, of_namespace = self.topic_policies(name), self.policies(name.namespace_name)
        is_enforced = of_topic.get("schema_validation_enforced", of_namespace.get("schema_validation_enforced"))
        return SchemaPolicy(
            self._schema_strategy(name),
            of_namespace.get("is_allow_auto_update_schema", config.allow_auto_update_schema) is not False,
            bool(is_enforced or config.enforce_schema_validation),
        )

    def _schema_strategy(self, name: TopicName) -> Strategy:
        """Return the schema strategy of a topic: its own, its namespace's, or the broker's."""
        if name.local.startswith("__"):
            return Strategy(self.config.system_schema_strategy)
        for policies in (self.topic_policies(name), self.policies(name.namespace_name)):
            strategy = policies.get("schema_compatibility_strategy")
            if strategy not in (None, Strategy.UNDEFINED.value):
                return Strategy(strategy)
        old = self.policies(name.namespace_name).get("schema_auto_update_compatibility_strategy")
        if old is not None:
            return OLD_STRATEGIES[old]
        return Strategy(self.config.schema_strategy)

    def _first_set(self, name: TopicName, field: str, default: Any) -> Any:
        """Return a policy of the topic, or else of its namespace, or else ``default``."""
        value = first_set(field, (self.topic_policies(name), self.policies(name.namespace_name)), self.cluster_name)
        return default if value is None else value

    def max_topics(self, namespace: str) -> int:
        """Return the maximum number of topics in ``tenant/name``; 0 means unlimited."""
        limit = self.policies(namespace).get("max_topics_per_namespace")
        return self.config.max_topics_per_namespace if limit is None else int(limit)

    @property
    def max_partitions(self) -> int:
        """The maximum number of partitions of a topic."""
        return min(self.config.max_partitions or MAX_PARTITIONS, MAX_PARTITIONS)

    def auto_topic_creation(self, name: TopicName) -> AutoCreation:
        """Return the automatic topic creation policy of the namespace or the broker."""
        override = self.policies(name.namespace_name).get("autoTopicCreationOverride")
        if not override:
            return AutoCreation(self.config.allow_auto_topic_creation, self.config.auto_topic_partitions)
        is_partitioned = str(override.get("topicType")).lower() == "partitioned"
        partitions = override.get("defaultNumPartitions") or 0 if is_partitioned else 0
        return AutoCreation(bool(override["allowAutoTopicCreation"]), partitions)

    def auto_subscription_creation(self, name: TopicName) -> bool:
        """Return whether durable subscriptions are created automatically."""
        override = self._first_set(name, "autoSubscriptionCreationOverride", None)
        if not override:
            return self.config.allow_auto_subscription_creation
        return bool(override["allowAutoSubscriptionCreation"])

    async def create_namespace(self, namespace: str, policies: Policies) -> None:
        """Add ``tenant/name``; raises BadVersion if it exists."""
        await self._create(f"{POLICIES}/{namespace}", policies)

    async def change_policies(self, namespace: str, change: Callable[[Policies], Policies]) -> None:
        """Replace the policies with the result of ``change``, which receives a copy."""
        await self._change(f"{POLICIES}/{namespace}", change)

    def local_policies(self, namespace: str) -> Policies | None:
        """Return the local policies of ``tenant/name``, read-only, or None if they were never set."""
        return self._value(f"{LOCAL_POLICIES}/{namespace}")

    async def change_local_policies(self, namespace: str, field: str, value: Any) -> None:
        """Set one local policy of ``tenant/name``; None removes it."""
        path = f"{LOCAL_POLICIES}/{namespace}"
        # A removed policy remains as null: Pulsar's response differs if no local policy was ever set.
        await self._change(path, lambda policies: policies | {field: value}, forgets_empty=True)

    # Resource groups

    def resource_groups(self) -> list[str]:
        """Return the resource group names."""
        return self._names(RESOURCE_GROUPS)

    def resource_group(self, name: str) -> JsonObject | None:
        """Return the limits of a resource group, or None."""
        return self._value(f"{RESOURCE_GROUPS}/{name}")

    def has_members(self, group: str) -> bool:
        """Return whether a namespace belongs to a resource group."""
        return any(
            record.get("resource_group_name") == group
            for path, (record, _) in self._records.items()
            if path.startswith(f"{POLICIES}/")
        )

    async def create_resource_group(self, name: str, limits: JsonObject) -> None:
        """Add a resource group; raises BadVersion if it exists."""
        await self._create(f"{RESOURCE_GROUPS}/{name}", limits)

    async def change_resource_group(self, name: str, limits: JsonObject) -> None:
        """Change some limits of a resource group."""
        await self._change(f"{RESOURCE_GROUPS}/{name}", lambda before: before | limits)

    async def delete_resource_group(self, name: str) -> None:
        """Remove a resource group."""
        await self._delete(f"{RESOURCE_GROUPS}/{name}")

    async def delete_namespace(self, namespace: str, also: Callable[[str], Awaitable[None]] | None = None) -> None:
        """Remove ``tenant/name``, which must have no topics, and all records below it.

        Nothing can be created in it once this is called.

        Args:
            namespace: ``tenant/name``.
            also: removes the namespace's data elsewhere.
        """
        self._leaving.add(namespace)
        try:
            await self._delete_below(namespace)
            if also is not None:
                await also(namespace)
            await self._delete(f"{POLICIES}/{namespace}")
            await self._delete_below(namespace)  # records that were being written when this started
        finally:
            self._leaving.discard(namespace)

    async def _delete_below(self, namespace: str) -> None:
        below = [
            path
            for path in self._records
            for root in (PARTITIONED_TOPICS, TOPIC_PROPERTIES, TOPIC_POLICIES, LOCAL_POLICIES)
            if f"{path}/".startswith(f"{root}/{namespace}/")
        ]
        await asyncio.gather(*(self._delete(path) for path in below))

    # Topics

    def partitions(self, base: TopicName) -> int:
        """Return the number of partitions of a topic, or 0 if it is not partitioned or does not exist."""
        value = self._value(_topic_path(PARTITIONED_TOPICS, base))
        return 0 if value is None else min(int(value["partitions"]), MAX_PARTITIONS)

    def partitioned_topics(self, namespace: str, domain: str = DOMAINS[0]) -> list[TopicName]:
        """Return the partitioned topics of ``tenant/name``."""
        tenant, _, local_namespace = namespace.partition("/")
        names = self._names(f"{PARTITIONED_TOPICS}/{namespace}/{domain}")
        return [TopicName(domain, tenant, local_namespace, unquote(name)) for name in names]

    async def create_partitioned_topic(
        self, base: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Record a topic as partitioned; raises BadVersion if it already is."""
        value: JsonObject = {"partitions": partitions, "deleted": False}
        if properties:
            value["properties"] = dict(properties)
        await self._create(_topic_path(PARTITIONED_TOPICS, base), value)

    async def ensure_partitioned_topic(self, base: TopicName, partitions: int) -> int:
        """Record a topic as partitioned unless it already is, and return its recorded number of partitions."""
        if not self.partitions(base):
            try:
                await self.create_partitioned_topic(base, partitions)
            except BadVersion:
                await self._read_again(_topic_path(PARTITIONED_TOPICS, base))
        return self.partitions(base)

    async def update_partitions(self, base: TopicName, partitions: int) -> None:
        """Increase the number of partitions; a lower number is ignored."""
        await self._change(
            _topic_path(PARTITIONED_TOPICS, base),
            lambda value: value | {"partitions": max(partitions, value["partitions"])},
        )

    async def delete_partitioned_topic(self, base: TopicName) -> None:
        """Remove the record of a partitioned topic; the caller deletes its partitions."""
        await self._delete(_topic_path(PARTITIONED_TOPICS, base))
        await self.change_topic_policies(base, lambda _: {})
        await self.forget_grants(base, with_partitions=True)

    def properties(self, name: TopicName) -> dict[str, str]:
        """Return the properties of a topic, or an empty map if unset."""
        if partitioned := self._value(_topic_path(PARTITIONED_TOPICS, name)):
            return dict(partitioned.get("properties", {}))
        return dict(self._value(_topic_path(TOPIC_PROPERTIES, name)) or {})

    async def set_properties(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Replace the properties of a topic; an empty map removes the record."""
        partitioned = _topic_path(PARTITIONED_TOPICS, name)
        if partitioned in self._records:
            await self._change(partitioned, lambda value: value | {"properties": dict(properties)})
        else:
            await self._change(_topic_path(TOPIC_PROPERTIES, name), lambda _: dict(properties), forgets_empty=True)

    def topic_policies(self, name: TopicName) -> Policies:
        """Return the policies of a topic, or of a partition's topic, read-only."""
        return self._value(_topic_path(TOPIC_POLICIES, name.base)) or {}

    async def change_topic_policies(self, name: TopicName, change: Callable[[Policies], Policies]) -> None:
        """Replace the policies of a topic and its partitions with the result of ``change``; remove empty ones."""
        await self._change(_topic_path(TOPIC_POLICIES, name.base), change, forgets_empty=True)

    async def forget_topic(self, name: TopicName) -> None:
        """Remove the properties, policies and permissions of a topic, including those being written to the store."""
        await asyncio.gather(
            self._delete(_topic_path(TOPIC_PROPERTIES, name)), self._delete(_topic_path(TOPIC_POLICIES, name.base))
        )
        await self.forget_grants(name)

    async def forget_partition(self, name: TopicName) -> None:
        """Remove the properties and permissions of a partition; its policies belong to its topic."""
        # First: records being written to the store, including permissions, are in memory afterwards.
        await self._delete(_topic_path(TOPIC_PROPERTIES, name))
        await self.forget_grants(name)

    async def forget_grants(self, name: TopicName, *, with_partitions: bool = False) -> None:
        """Remove the permissions on a topic and its partitions, so that a recreated topic does not inherit them."""
        of_partitions = f"{name}-partition-"

        def is_forgotten(topic: str) -> bool:
            if topic == name.text:
                return True
            return with_partitions and topic.startswith(of_partitions) and parse_topic_name(topic).base == name

        def without(policies: Policies) -> Policies:
            grants = policies.get("auth_policies") or {}
            by_topic = (grants.get("destination_auth") or {}).items()
            kept = {topic: roles for topic, roles in by_topic if not is_forgotten(topic)}
            return policies | {"auth_policies": grants | {"destination_auth": kept}}

        granted = (self.policies(name.namespace_name).get("auth_policies") or {}).get("destination_auth") or {}
        if any(map(is_forgotten, granted)) and self.has_namespace(name.namespace_name):
            await self.change_policies(name.namespace_name, without)

    # Records

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
        if path.startswith((POLICIES, TOPIC_POLICIES)):
            self.policy_changes += 1
            parts = path.split("/")
            namespace = "/".join(parts[3:5])
            self._effective.pop(namespace, None)
            topic = f"{parts[5]}://{namespace}/{unquote(parts[6])}" if len(parts) == 7 else ""
            self.on_policies(namespace, topic)
        elif path.startswith(RESOURCE_GROUPS):
            self._tell_all()
        elif path == CONFIGURATION:
            self._override_config()

    def _override_config(self) -> None:
        """Apply changed dynamic settings, ignoring invalid values, which another broker may have written."""
        values = self.changed_settings()
        for name in list(values):
            try:
                if name not in dynamic.NAMES:
                    raise InvalidConfig(f"{name} is not a dynamic setting")
                dynamic.check(name, values[name])
            except InvalidConfig as error:
                log.error("ignored a setting in metadata record %s: %s", CONFIGURATION, error)
                del values[name]
        config = dynamic.overridden(self._base_config, values)
        if config != self.config:
            self.config = config
            self._tell_all()

    def _tell_all(self) -> None:
        """Notify all topics of a change that affects any topic."""
        self.policy_changes += 1
        self._effective.clear()
        self.on_policies("", "")

    async def _load(self, root: str) -> None:
        """Read a tree, a bounded number of records at a time because each read has its own deadline."""
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
        """Handle a change in the store, usually one made by this process."""
        held = self._records.get(change.path)
        if change.version != (None if held is None else held[1]):
            self._changed[change.path] = None
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._tasks.keep(self._refresh, "reloading changed records")

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
                log.warning("cannot reload a changed metadata record: %s; retrying", error)
                self._changed[path] = None
                await asyncio.sleep(REFRESH_DELAY_S)
                continue
            if (
                self._records.get(path) is not held
            ):  # changed by this process meanwhile: the record just read may be older
                self._changed[path] = None
                continue
            try:
                value = None if record is None else _decode(path, record.value)
            except StorageError as error:
                log.error("%s; keeping its previous value until then", error)
                continue
            self._forget(path)
            if record is not None and value is not None:
                self._keep(path, value, record.version)

    async def _create(self, path: str, value: JsonObject) -> None:
        self._keep(path, value, await self.store.put(path, _encode(value), ABSENT))

    async def _change(
        self, path: str, change: Callable[[JsonObject], JsonObject], *, forgets_empty: bool = False
    ) -> None:
        """Write the result of ``change``, which receives a copy of the current value; retry on concurrent writes.

        Args:
            path: record path.
            change: returns the new value.
            forgets_empty: True if an empty record is equivalent to a missing one.
        """
        for _ in range(MAX_ATTEMPTS):
            held = self._records.get(path)
            if held is None and not forgets_empty:
                raise BadVersion(f"metadata record {path} was deleted concurrently: retry")
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
        raise BadVersion(f"metadata record {path} was changed concurrently in each of {MAX_ATTEMPTS} attempts: retry")

    async def _read_again(self, path: str) -> None:
        """Reread a record into memory."""
        record = await self.store.get(path)
        self._forget(path)
        if record is not None:
            self._read(path, record)

    async def _delete(self, path: str) -> None:
        await self.store.delete(path)
        self._forget(path)


def _tell_nobody(namespace: str, topic: str) -> None:
    pass


def _encode(value: JsonObject) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(path: str, value: bytes) -> JsonObject:
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise StorageError(
            f"metadata record {path} is not valid JSON ({exc}): fix or delete it in the metadata store"
        ) from exc
    if not isinstance(decoded, dict):
        raise StorageError(f"metadata record {path} is not a JSON object: fix or delete it in the metadata store")
    if path.startswith(PARTITIONED_TOPICS) and type(decoded.get("partitions")) is not int:
        raise StorageError(
            f"field partitions of metadata record {path} is not an integer: fix or delete it in the metadata store"
        )
    return decoded


def _topic_path(root: str, name: TopicName) -> str:
    return f"{root}/{name.tenant}/{name.namespace}/{name.domain}/{quote(name.local, safe='')}"
