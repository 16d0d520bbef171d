"""What is granted in one namespace and who administers its tenant; how it is read from Pulsar's JSON, and the port.

What is no such JSON grants nothing: others may have written it into the metadata store.

Source: Pulsar's TenantInfo (`adminRoles`) and Policies (`auth_policies`, `subscription_auth_mode`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

ByRole = Mapping[str, Collection[str]]
"""Names of actions by role."""
PREFIX = "Prefix"
SUBSCRIPTION_AUTH_MODES = ("None", PREFIX)
"""Values of `subscription_auth_mode`."""
_NOBODY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Grants:
    """Everything by which requests to one namespace, or to its tenant, are judged.

    Attributes:
        has_tenant: whether the tenant exists.
        admin_roles: who administers it.
        by_namespace: actions granted on the namespace, by role.
        by_topic: actions granted on topics, by full name of the topic and role.
        by_subscription: who may use a subscription, by its name; one that is not named, or by nobody, is for all.
        needs_prefix: whether the name of a subscription must begin with the role.
    """

    has_tenant: bool = False
    admin_roles: Collection[str] = ()
    by_namespace: ByRole = field(default_factory=dict)
    by_topic: Mapping[str, ByRole] = field(default_factory=dict)
    by_subscription: ByRole = field(default_factory=dict)
    needs_prefix: bool = False


class GrantsReader(Protocol):
    """Where grants are read: the broker asks its own memory, a worker the broker."""

    async def read(self, tenant: str, namespace: str, *, is_fresh: bool = False) -> Grants:
        """Return what is granted.

        Args:
            tenant: may be absent.
            namespace: ``tenant/namespace``, which may be absent; empty if only the tenant counts.
            is_fresh: as it is now, and not as it was a moment ago.

        Raises:
            MagnetarError: it cannot be read; then nobody is allowed anything.
        """


def grants_of(tenant: Mapping[str, Any] | None, policies: Mapping[str, Any] | None) -> Grants:
    """Return the grants in a TenantInfo and in the policies of a namespace; None is what does not exist."""
    if tenant is None:
        return Grants()
    admins = names_in(tenant.get("adminRoles"))
    if policies is None:
        return Grants(True, admins)
    granted = _object(policies.get("auth_policies"))
    return Grants(
        True,
        admins,
        _object(granted.get("namespace_auth")),
        _object(granted.get("destination_auth")),
        _object(granted.get("subscription_auth_roles")),
        policies.get("subscription_auth_mode") == PREFIX,
    )


def of_topic(grants: Grants, topic: str) -> ByRole:
    """Return the actions granted on one topic alone, by role."""
    return _object(grants.by_topic.get(topic))


def names_in(value: Any) -> Collection[str]:
    """Return the names of actions or roles that a list has; there are none in anything else."""
    return value if isinstance(value, list | tuple) else ()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NOBODY
