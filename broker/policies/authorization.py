"""Authorization of a broker, with the permissions in its in-memory tenants and policies."""

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
    """Authorizes by the broker's own metadata; a `GrantsReader` that never waits.

    Attributes:
        settings: of authorization.
    """

    def __init__(self, settings: AuthorizationSettings, namespaces: Namespaces) -> None:
        self.settings = settings
        self._namespaces = namespaces

    def grants(self, tenant: str, namespace: str) -> Grants:
        """Return the current permissions, as `GrantsReader.read`."""
        namespaces = self._namespaces
        policies = namespaces.policies(namespace) if namespaces.has_namespace(namespace) else None
        return grants_of(namespaces.tenant(tenant), policies)

    async def read(self, tenant: str, namespace: str, *, is_fresh: bool = False) -> Grants:
        """Return the current permissions, which are always fresh."""
        return self.grants(tenant, namespace)

    def judge(self, roles: Roles | None, rule: Rule, resource: Resource) -> Refusal | None:
        """Return the reason why roles may not do something, None if they may.

        None as roles is anonymous: authorization is only on with authentication, and a request that bypassed it must
        not get any access.
        """
        grants = self.grants(resource.tenant, resource.namespace)
        return judge(self.settings, roles or NOBODY, rule, resource, grants)
