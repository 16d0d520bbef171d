"""Endpoints that read, set and remove a namespace policy, with variants for some policies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, nothing
from ...policies.policies import Policies
from ..backlog_quotas import refuse_retention_misfit
from ..bodies import parse, with_field
from ..call import Call


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that is read, set and removed as a whole.

    Attributes:
        method: HTTP method for setting the policy.
        name: last segment of the path.
        field: field name in the namespace's policies.
        read: validates the body and returns the value to store, or None for an empty body.
        changed: applies the change to loaded topics, if they do not read the policy on each use.
        missing: error message for setting the policy on a missing namespace.
        unset: response if the policy is not set; None means 200 without a body.
        is_removable: whether Pulsar has a DELETE for the policy; otherwise Pulsar parses the name as a bundle.
    """

    method: str
    name: str
    field: str
    read: Callable[[Any], Any]
    changed: Callable[[Call, str], Awaitable[None]] | None = None
    missing: str = "Namespace does not exist"
    unset: Any = None
    is_removable: bool = True

    def get(self, call: Call) -> Response:
        """Return the policy."""
        value = call.policies.get(self.field)
        value = self.unset if value is None else value
        return nothing() if value is None else as_json(value)

    async def set(self, call: Call) -> None:
        """Set the policy."""
        wanted = await call.json()
        namespace = call.require_namespace(self.missing)
        await self._change(call, namespace, self.read(wanted))

    async def remove(self, call: Call) -> None:
        """Remove the policy."""
        namespace = call.require_namespace()
        if not self.is_removable:
            raise Refused(412, f"Invalid bundle range: {self.name}")
        await self._change(call, namespace, None)

    async def _change(self, call: Call, namespace: str, value: Any) -> None:
        value = self.unset if value is None and self.unset == [] else value  # an empty list is stored
        await call.namespaces.change_policies(namespace, lambda policies: with_field(policies, self.field, value))
        if self.changed is not None:
            await self.changed(call, namespace)


class Number(Policy):
    """A required number. As in Pulsar's Java class, null is 0."""

    async def set(self, call: Call) -> None:
        """Set the policy."""
        body = await call.body()
        namespace = call.require_namespace(self.missing)
        if not body.strip():
            raise Refused(400, "The request entity cannot be empty.")
        number = self.read(parse(body))
        await self._change(call, namespace, 0 if number is None else number)


class Retention(Policy):
    """The retention policy, which must not be smaller than a backlog quota."""

    async def _change(self, call: Call, namespace: str, value: Any) -> None:
        def change(policies: Policies) -> Policies:
            refuse_retention_misfit(value, policies, "namespace")
            return with_field(policies, self.field, value)

        await call.namespaces.change_policies(namespace, change)


class PauseOnAckState(Policy):
    """The policy that pauses dispatch while acknowledgements cannot be persisted; this broker persists all of them."""

    def get(self, call: Call) -> Response:
        """Return the policy."""
        policies = call.namespaces.policies(call.require_namespace("Namespace policies does not exist"))
        return as_json(policies.get(self.field, False))

    async def set(self, call: Call) -> None:
        """Set the policy; the request has no body."""
        await self._change(call, call.require_namespace(), True)

    async def remove(self, call: Call) -> None:
        """Set the policy to false, as Pulsar does."""
        await self._change(call, call.require_namespace(), False)


class Rate(Policy):
    """A rate limit, which policies store per cluster; there is only one cluster."""

    def get(self, call: Call) -> Response:
        """Return the rate."""
        value = (call.policies.get(self.field) or {}).get(call.namespaces.cluster_name)
        return nothing() if value is None else as_json(value)

    def fields_of(self, cluster: str, value: Any) -> dict[str, Any]:
        """Return the policy fields of a rate; the topic dispatch rate also has an old name."""
        by_cluster = {} if value is None else {cluster: value}
        older = {"clusterDispatchRate": by_cluster} if self.field == "topicDispatchRate" else {}
        return {self.field: by_cluster} | older

    async def _change(self, call: Call, namespace: str, value: Any) -> None:
        fields = self.fields_of(call.namespaces.cluster_name, value)
        await call.namespaces.change_policies(namespace, lambda policies: policies | fields)


class ReplicatorRate(Rate):
    """The replicator dispatch rate, which has its own error message for a missing namespace."""

    def get(self, call: Call) -> Response:
        """Return the rate."""
        call.require_namespace("Namespace policies does not exist")
        return super().get(call)
