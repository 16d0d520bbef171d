"""Policies of single topics; they hold for all partitions of a topic.

Those that this broker does not obey read as not set and are refused when set. A further one that it obeys needs a line
in `_POLICIES`, its typed reading in `broker/policies/policies.py`, and to be taken out of `_REFUSED`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, not_supported, nothing, refusing
from ....wire.topic_name import TopicName
from ..bodies import as_bool, as_int, with_field
from ..call import Call
from ..routing import TOPIC, Handler, Routes, of_existing
from .lookup import find, is_known, not_found

_REFUSED = (
    "messageTTL",
    "retention",
    "backlogQuota",
    "persistence",
    "delayedDelivery",
    "dispatchRate",
    "subscriptionDispatchRate",
    "replicatorDispatchRate",
    "publishRate",
    "subscribeRate",
    "deduplicationSnapshotInterval",
    "inactiveTopicPolicies",
    "maxProducers",
    "maxConsumers",
    "maxUnackedMessagesOnConsumer",
    "maxUnackedMessagesOnSubscription",
    "maxConsumersPerSubscription",
    "maxSubscriptionsPerTopic",
    "maxMessageSize",
    "replication",
    "schemaCompatibilityStrategy",
    "schemaValidationEnforced",
    "autoSubscriptionCreation",
    "offloadPolicies",
    "subscriptionTypesEnabled",
    "entryFilters",
    "shadowTopics",
    "dispatcherPauseOnAckStatePersistent",
)
_NO_CONTENT = (
    "publishRate",
    "maxConsumersPerSubscription",
    "maxSubscriptionsPerTopic",
    "maxMessageSize",
    "subscriptionTypesEnabled",
)
"""Read as 204 when not set; the others as 200 without a body."""


@dataclass(frozen=True)
class _Policy:
    """A policy of topics.

    Attributes:
        name: last part of its path.
        field: name in the topic's policies.
        read: makes its value of the body; None for a body that says nothing.
        applied: returns the effective value for a topic, wherever it is set.
        changed: makes loaded topics obey; without it the broker reads the policy each time.
    """

    name: str
    field: str
    read: Callable[[Any], Any]
    applied: Callable[[Call, TopicName], Any]
    changed: Callable[[Call, TopicName], Awaitable[None]] | None = None

    def get(self, call: Call) -> Response:
        """Answer with the policy; with `applied`, with the effective value."""
        name = _topic_of(call)
        value = call.namespaces.topic_policies(name).get(self.field)
        if value is None and call.flag("applied"):
            value = self.applied(call, name)
        return nothing() if value is None else as_json(value)

    async def set(self, call: Call) -> None:
        """Set the policy."""
        await self._change(call, self.read(await call.json()))

    async def remove(self, call: Call) -> None:
        """Remove the policy."""
        await self._change(call, None)

    async def _change(self, call: Call, value: Any) -> None:
        name = _topic_of(call)
        await call.namespaces.change_topic_policies(name, lambda policies: with_field(policies, self.field, value))
        if self.changed is not None:
            await self.changed(call, name)


async def adjust_deduplication(call: Call, concerns: Callable[[TopicName], bool]) -> None:
    """Have loaded topics obey at once.

    Raises:
        PersistenceError: the disk refuses; it is tried again.
    """
    topics = [topic for topic in call.broker.topics.values() if concerns(topic.name)]
    await call.broker.adjust_deduplication(topics)
    for topic in topics:
        topic.deduplication.check()


async def _adjust_deduplication(call: Call, name: TopicName) -> None:
    await adjust_deduplication(call, lambda other: other.base == name.base)


def _threshold(body: Any) -> int | None:
    threshold = as_int(body, "compactionThreshold", bits=64)
    if threshold is not None and threshold < 0:
        raise Refused(412, "Invalid value for compactionThreshold")
    return threshold


_POLICIES = (
    _Policy(
        "deduplicationEnabled",
        "deduplicationEnabled",
        lambda body: as_bool(body, "deduplicationEnabled"),
        lambda call, name: call.namespaces.deduplication(name),
        _adjust_deduplication,
    ),
    _Policy(
        "compactionThreshold",
        "compaction_threshold",
        _threshold,
        lambda call, name: call.namespaces.compaction_threshold(name),
    ),
)


def _topic_of(call: Call) -> TopicName:
    """Return the topic of the path, which must exist and be no single partition.

    Raises:
        Refused: 404, 412.
    """
    name = call.require_topic_namespace()
    if name.partition >= 0:
        raise Refused(412, "Not allowed to set/get topic policy for a partition")
    if not is_known(call, name):
        raise not_found(name)
    if call.flag("isGlobal"):
        raise not_supported("a policy for all clusters (isGlobal)", "set it for this cluster")
    return name


def _routes_of(policy: _Policy) -> Routes:
    path = f"{TOPIC}/{policy.name}"
    return (("GET", path, policy.get), ("POST", path, policy.set), ("DELETE", path, policy.remove))


def _refuse(name: str) -> Handler:
    remedy = "leave it unset, or set it on the namespace where that is possible"
    return of_existing(find, refusing(not_supported(f"topic policy {name}", remedy)))


_DONE = of_existing(find, lambda _: None)
_NOT_SET = of_existing(find, lambda _: nothing())
ROUTES: Routes = (
    *(route for policy in _POLICIES for route in _routes_of(policy)),
    ("GET", f"{TOPIC}/backlogQuotaMap", of_existing(find, lambda _: as_json({}))),
    *(("GET", f"{TOPIC}/{name}", _DONE) for name in _NO_CONTENT),
    *(("GET", f"{TOPIC}/{name}", _NOT_SET) for name in _REFUSED if name not in (*_NO_CONTENT, "backlogQuota")),
    *(("POST", f"{TOPIC}/{name}", _refuse(name)) for name in _REFUSED),
    *(("PUT", f"{TOPIC}/{name}", _refuse(name)) for name in ("schemaCompatibilityStrategy", "shadowTopics")),
    *(("DELETE", f"{TOPIC}/{name}", _DONE) for name in _REFUSED),
)
