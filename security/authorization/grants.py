"""Grants of a namespace and administrators of its tenant, parsed from Pulsar's JSON, and the reader interface.

Malformed JSON, which other programs may have written to the metadata store, grants nothing.

Source: Pulsar's TenantInfo (`adminRoles`) and Policies (`auth_policies`, `subscription_auth_mode`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

ByRole = Mapping[str, Collection[str]]
"""Action names by role."""
PREFIX = "Prefix"
SUBSCRIPTION_AUTH_MODES = ("None", PREFIX)
"""Values of `subscription_auth_mode`."""
_NOBODY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Grants:
    """The permissions for a namespace or its tenant.

    Attributes:
        has_tenant: whether the tenant exists.
        admin_roles: the tenant's administrators.
        by_namespace: actions granted on the namespace, by role.
        by_topic: actions granted on topics, by full topic name and role.
        by_subscription: roles that may use a subscription, by subscription name; a missing or empty entry means no
            restriction.
        needs_prefix: whether a subscription name must begin with the role.
    """

    has_tenant: bool = False
    admin_roles: Collection[str] = ()
    by_namespace: ByRole = field(default_factory=dict)
    by_topic: Mapping[str, ByRole] = field(default_factory=dict)
    by_subscription: ByRole = field(default_factory=dict)
    needs_prefix: bool = False


class GrantsReader(Protocol):
    """Reads grants: the broker from its own memory, a worker from the broker."""

    async def read(self, tenant: str, namespace: str, *, is_fresh: bool = False) -> Grants:
        """Return the current grants.

        Args:
            tenant: tenant name, which need not exist.
            namespace: ``tenant/namespace``, which need not exist; empty if only the tenant matters.
            is_fresh: bypass caches.

        Raises:
            MagnetarError: the grants cannot be read; the caller must deny the request.
        """


def grants_of(tenant: Mapping[str, Any] | None, policies: Mapping[str, Any] | None) -> Grants:
    """Return the grants in a TenantInfo and a namespace's policies, each of which may be None."""
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
    """Return the actions granted on a topic itself, by role."""
    return _object(grants.by_topic.get(topic))


def names_in(value: Any) -> Collection[str]:
    """Return a list of action or role names; invalid values yield an empty list."""
    return value if isinstance(value, list | tuple) else ()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NOBODY
