"""Topic policies: reading, setting and removing one, with the variants that some policies need."""

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
"""These read as 204 when not set; the others as 200 without a body."""
_TOO_LARGE = (
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the broker-level"
)


@dataclass(frozen=True)
class Policy:
    """A policy of topics.

    Attributes:
        name: last part of its path.
        field: name in the topic's policies.
        read: converts the body to the value; None for an empty body.
        applied: returns the effective value for a topic, at whatever level it is set.
        changed: applies the change to loaded topics; without it the broker reads the policy each time.
        unset: response while it is not set; None is an empty body.
        method: HTTP method that sets it.
        is_removable: whether Pulsar has a DELETE for it.
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
        """Answer with the policy; with `applied`, with the effective value."""
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
    """Return the topic of the path, which must exist and not be a single partition.

    Raises:
        Refused: 404, 412.
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
    """Retention, which must cover the backlog quotas."""

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
    """The maximum entry size; at most the broker's."""

    async def set(self, call: Call) -> None:
        """Set the policy."""
        body = await call.json()
        topic_of(call)
        await self._change(call, _read_max_message_size(call, body))


class MessageTtl(Policy):
    """Message lifetime; sent as a query parameter, by some clients as a body."""

    async def set(self, call: Call) -> None:
        """Set the policy."""
        body = await call.json()
        topic_of(call)
        await self._change(call, self.read(call.request.query_params.get("messageTTL", body)))


class PauseOnAckState(Policy):
    """Delivery only of messages whose acknowledgements can be persisted; always the case here, since all are."""

    async def set(self, call: Call) -> None:
        """Set the policy; the request has no body."""
        await self._change(call, True)


class Replication(Policy):
    """The clusters of the topic: only this one."""

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
                raise not_supported(f"replication to cluster {cluster}", f"name only {own}")
        await self._change(call, [own])
