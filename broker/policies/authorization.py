"""Broker authorization, based on permissions in the in-memory tenants and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...security.authorization.decisions import Refusal, judge
from ...security.authorization.grants import Grants, grants_of
from ...security.authorization.rules import Resource, Rule
from ...security.authorization.settings import AuthorizationSettings
from ...security.roles import Roles

if TYPE_CHECKING:
    from .namespaces import Namespaces

NOBODY = Roles(None)


class Authorization:
    """Authorization from the broker's own metadata; a `GrantsReader` that never waits.

    Attributes:
        settings: authorization settings.
    """

    def __init__(self, settings: AuthorizationSettings, namespaces: Namespaces) -> None:
        self.settings = settings
        self._namespaces = namespaces

    def grants(self, tenant: str, namespace: str) -> Grants:
        """Return the current permissions without waiting."""
        namespaces = self._namespaces
        policies = namespaces.policies(namespace) if namespaces.has_namespace(namespace) else None
        return grants_of(namespaces.tenant(tenant), policies)

    async def read(self, tenant: str, namespace: str, *, is_fresh: bool = False) -> Grants:
        """Return the current permissions, which are never stale."""
        return self.grants(tenant, namespace)

    def judge(self, roles: Roles | None, rule: Rule, resource: Resource) -> Refusal | None:
        """Return why roles may not perform an operation, or None if they may.

        If ``roles`` is None, the caller is anonymous. Authorization requires authentication, and a request that
        bypassed it must not be allowed anything.
        """
        grants = self.grants(resource.tenant, resource.namespace)
        return judge(self.settings, roles or NOBODY, rule, resource, grants)
