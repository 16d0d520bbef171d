"""Client for the broker's admin REST interface; uses only endpoints that Apache Pulsar also provides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UnknownBrokerError
from ...security.client_credentials import ClientCredentials
from ...web.async_client import connections, request
from ...web.client import Answer, segment
from ...wire.topic_name import parse_topic_name

_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_REASON_CHARACTERS = 200


class BrokerAdmin:
    """Client for the admin REST interface; must be closed."""

    def __init__(self, admin_url: str, credentials: ClientCredentials | None = None) -> None:
        self._base_url = f"{admin_url.rstrip('/')}/admin/v2/"
        self._http = connections(_TIMEOUT_S, _CONNECT_TIMEOUT_S, credentials)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _call(self, method: str, path: str, accepted: tuple[int, ...], body: Any = None) -> Answer:
        answer = await request(self._http, method, self._base_url + path, body=body)
        if not answer.is_success and answer.status not in accepted:
            reason = answer.reason[:_REASON_CHARACTERS]
            raise UnknownBrokerError(f"{method} {path} returned {answer.status}: {reason}")
        return answer

    async def has_tenant(self, tenant: str) -> bool:
        """Return whether the tenant exists."""
        answer = await self._call("GET", f"tenants/{segment(tenant)}", (404, 412))
        return answer.is_success

    async def tenant_info(self, tenant: str) -> dict[str, Any] | None:
        """Return the TenantInfo of a tenant, or None if the tenant does not exist."""
        return await self._object(f"tenants/{segment(tenant)}")

    async def policies(self, namespace: str) -> dict[str, Any] | None:
        """Return the policies of ``tenant/namespace``, or None if the namespace does not exist."""
        return await self._object("namespaces/" + "/".join(map(segment, namespace.split("/"))))

    async def _object(self, path: str) -> dict[str, Any] | None:
        answer = await self._call("GET", path, (404, 412))
        found = answer.json() if answer.is_success else None
        return found if isinstance(found, dict) else None

    async def namespaces(self, tenant: str) -> list[str] | None:
        """Return a tenant's namespaces as ``tenant/namespace``, or None if the tenant does not exist."""
        answer = await self._call("GET", f"namespaces/{segment(tenant)}", (404, 412))
        return list(answer.json()) if answer.is_success else None

    async def ensure_namespace(self, name: str, cluster: str) -> None:
        """Create the tenant and namespace with unlimited retention if they are missing."""
        tenant = name.split("/")[0]
        clusters = (await self._call("GET", "clusters", ())).json()
        allowed = {"adminRoles": [], "allowedClusters": [cluster] if cluster in clusters else clusters[:1]}
        if not await self.has_tenant(tenant):
            await self._call("PUT", f"tenants/{tenant}", (409,), allowed)
        if name not in (await self.namespaces(tenant) or ()):
            await self._call("PUT", f"namespaces/{name}", (409,))
        retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        await self._call("POST", f"namespaces/{name}/retention", (), retention)
        # Apache Pulsar removes topics that are idle for a minute; brokers that do not remove them lack this policy.
        policy = {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 60,
            "deleteWhileInactive": False,
        }
        await self._call("POST", f"namespaces/{name}/inactiveTopicPolicies", (400, 404, 405, 409, 412, 501), policy)

    async def ensure_topic(self, topic: str) -> None:
        """Create a non-partitioned topic if it is missing."""
        await self._call("PUT", parse_topic_name(topic).rest_path, (409,))

    async def topic_stats(self, topic: str) -> dict[str, Any]:
        """Return the statistics of a topic."""
        stats = (await self._call("GET", f"{parse_topic_name(topic).rest_path}/stats", ())).json()
        return stats if isinstance(stats, dict) else {}

    async def internal_stats(self, topic: str) -> dict[str, Any]:
        """Return the statistics of a topic's ledgers and cursors."""
        stats = (await self._call("GET", f"{parse_topic_name(topic).rest_path}/internalStats", ())).json()
        return stats if isinstance(stats, dict) else {}

    async def consumers(self, topic: str, subscription: str) -> list[str]:
        """Return the names of a subscription's consumers."""
        return [str(consumer.get("consumerName", "")) for consumer in await self._subscribers(topic, subscription)]

    async def subscribers(self, topic: str, subscription: str) -> list[Mapping[str, Any]]:
        """Return the statistics of a subscription's consumers on all partitions."""
        return [one for part in await self.parts(topic) for one in await self._subscribers(part, subscription)]

    async def _subscribers(self, topic: str, subscription: str) -> list[Mapping[str, Any]]:
        answer = await self._call("GET", f"{parse_topic_name(topic).rest_path}/stats", (404,))
        return list(answer.json().get("subscriptions", {}).get(subscription, {}).get("consumers", []))

    async def parts(self, topic: str) -> list[str]:
        """Return a topic's partitions, or the topic if it is not partitioned."""
        name = parse_topic_name(topic)
        count = int((await self._call("GET", f"{name.rest_path}/partitions", ())).json().get("partitions", 0))
        return [name.partition_name(number).text for number in range(count)] or [topic]

    async def reset_to_time(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Move a subscription to the first message published at or after a time."""
        await self._call("POST", f"{_path(topic, subscription)}/resetcursor/{timestamp_ms}", ())

    async def reset_to_position(self, topic: str, subscription: str, ledger_id: int, entry_id: int) -> None:
        """Move a subscription to an entry, which is then delivered next."""
        target = {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1}
        await self._call("POST", f"{_path(topic, subscription)}/resetcursor", (), target)

    async def topics(self, namespace: str) -> list[str]:
        """Return the names of a namespace's persistent topics."""
        return list((await self._call("GET", f"persistent/{namespace}", ())).json())

    async def compact(self, topic: str) -> None:
        """Trigger compaction of a topic; no error if it is already running."""
        await self._call("PUT", f"{parse_topic_name(topic).rest_path}/compaction", (409,))

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its subscriptions; no error if it does not exist."""
        await self._call("DELETE", f"{parse_topic_name(topic).rest_path}?force=true", (404,))

    async def create_subscription(self, topic: str, subscription: str, *, is_earliest: bool = False) -> bool:
        """Create a durable subscription at the end or start of a topic; return False if it already exists."""
        number = -1 if is_earliest else 2**63 - 1
        position = {"ledgerId": number, "entryId": number, "partitionIndex": -1}
        return (await self._call("PUT", _path(topic, subscription), (409,), position)).is_success

    async def is_durable(self, topic: str, subscription: str) -> bool:
        """Return whether a topic has a durable subscription with this name."""
        found = (await self.topic_stats(topic)).get("subscriptions", {}).get(subscription, {})
        return bool(found.get("isDurable", found.get("durable", False)))

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        """Delete a subscription from a topic or all its partitions; return False if it is in use.

        A subscription that does not exist counts as deleted. With `is_forced`, consumers are disconnected.
        """
        path = _path(topic, subscription) + ("?force=true" if is_forced else "")
        answer = await self._call("DELETE", path, (404, 409, 412))
        return answer.is_success or answer.status == 404


def _path(topic: str, subscription: str) -> str:
    return f"{parse_topic_name(topic).rest_path}/subscription/{segment(subscription)}"
