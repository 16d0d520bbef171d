"""Endpoints that read, set and remove a topic policy, with variants for some policies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, not_supported, nothing
from ....wire.topic_name import TopicName
from ...policies.policies import Policies
from ..backlog_quotas import refuse_retention_misfit
from ..bodies import as_int, as_text_list, with_field
from ..call import Call
from .lookup import is_known, not_found

_NO_CONTENT = (
    "publishRate",
    "maxConsumersPerSubscription",
    "maxSubscriptionsPerTopic",
    "maxMessageSize",
    "subscriptionTypesEnabled",
)
"""Policies that return 204 if unset; the others return 200 without a body."""
_TOO_LARGE = (
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the broker-level"
)


@dataclass(frozen=True)
class Policy:
    """A topic policy.

    Attributes:
        name: last segment of the path.
        field: field name in the topic's policies.
        read: converts the body to the value, or None for an empty body.
        applied: returns the effective value for a topic, set at any level.
        changed: applies the change to loaded topics; None if the broker reads the policy on each use.
        unset: response if the policy is not set; None means an empty body.
        method: HTTP method for setting the policy.
        is_removable: whether Pulsar has a DELETE for the policy.
    """

    name: str
    field: str
    read: Callable[[Any], Any]
    applied: Callable[[Call, TopicName], Any]
    changed: Callable[[Call, TopicName], Awaitable[None]] | None = None
    unset: Any = None
    method: str = "POST"
    is_removable: bool = True

    def get(self, call: Call) -> Response:
        """Return the policy or, with `applied`, its effective value."""
        name = topic_of(call)
        value = call.namespaces.topic_policies(name).get(self.field)
        if value is None:
            value = self.applied(call, name) if call.flag("applied") else self.unset
        if value is None:
            return Response(status_code=204) if self.name in _NO_CONTENT else nothing()
        return as_json(value)

    async def set(self, call: Call) -> None:
        """Set the policy."""
        body = await call.json()
        topic_of(call)
        await self._change(call, self.read(body))

    async def remove(self, call: Call) -> None:
        """Remove the policy."""
        await self._change(call, None)

    async def _change(self, call: Call, value: Any) -> None:
        name = topic_of(call)
        await call.namespaces.change_topic_policies(name, lambda policies: with_field(policies, self.field, value))
        if self.changed is not None:
            await self.changed(call, name)


def topic_of(call: Call) -> TopicName:
    """Return the topic in the path, which must exist and must not be a partition.

    Raises:
        Refused: 404 if the topic is missing, 412 if it is a partition.
    """
    name = call.require_topic_namespace()
    if name.partition >= 0:
        raise Refused(412, "Not allowed to set/get topic policy for a partition")
    if not is_known(call, name) or not name.is_persistent:
        raise not_found(name)
    if call.flag("isGlobal"):
        raise not_supported("a policy for all clusters (isGlobal)", "set it for this cluster")
    return name


class Retention(Policy):
    """The retention policy, which must not be smaller than a backlog quota."""

    async def _change(self, call: Call, value: Any) -> None:
        def change(policies: Policies) -> Policies:
            refuse_retention_misfit(value, policies, "topic")
            return with_field(policies, self.field, value)

        await call.namespaces.change_topic_policies(topic_of(call), change)


def _read_max_message_size(call: Call, body: Any) -> int | None:
    size = as_int(body, "maxMessageSize")
    if size is not None and not 0 <= size <= call.broker.config.max_message_bytes:
        raise Refused(412, _TOO_LARGE)
    return size


class MaxMessageSize(Policy):
    """The maximum message size, at most the broker's."""

    async def set(self, call: Call) -> None:
        """Set the policy."""
        body = await call.json()
        topic_of(call)
        await self._change(call, _read_max_message_size(call, body))


class MessageTtl(Policy):
    """The message TTL, sent as a query parameter or, by some clients, as the body."""

    async def set(self, call: Call) -> None:
        """Set the policy."""
        body = await call.json()
        topic_of(call)
        await self._change(call, self.read(call.request.query_params.get("messageTTL", body)))


class PauseOnAckState(Policy):
    """The policy that pauses dispatch while acknowledgements cannot be persisted; this broker persists all of them."""

    async def set(self, call: Call) -> None:
        """Set the policy; the request has no body."""
        await self._change(call, True)


class Replication(Policy):
    """The topic's replication clusters: only the local cluster is allowed."""

    async def set(self, call: Call) -> None:
        """Set the policy."""
        clusters = as_text_list(await call.json(), "clusters")
        topic_of(call)
        if not clusters:
            raise Refused(412, "ClusterIds should not be null or empty")
        own = call.namespaces.cluster_name
        if own not in clusters:
            raise Refused(412, "Can not remove local cluster from the local topic-level replication clusters policy")
        for cluster in clusters:
            if cluster != own:
                raise not_supported(f"replication to cluster {cluster}", f"use only {own}")
        await self._change(call, [own])
