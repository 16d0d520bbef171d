"""Authorization settings of a server."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidConfig
from ..roles import Roles

LOCKS_TOPIC = "persistent://public/functions/instances"
"""Default topic of function locks; depends on the workers' namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationSettings:
    """Authorization settings of a broker or a functions worker.

    Attributes:
        is_enabled: `authorizationEnabled`; if off, every client may do everything.
        super_user_roles: `superUserRoles`; these roles may do everything.
        allows_wildcards: `authorizationAllowWildcardsMatching`; a grant to ``abc*`` or ``*abc`` applies to every role
            with that prefix or suffix.
        locks_topic: topic of function locks (see `function_locks`).
        proxy_roles: `proxyRoles`; roles that act on behalf of an original role, which also needs permission.
    """

    is_enabled: bool = False
    super_user_roles: tuple[str, ...] = ()
    allows_wildcards: bool = False
    proxy_roles: tuple[str, ...] = ()
    locks_topic: str = LOCKS_TOPIC

    def __post_init__(self) -> None:
        """Validate that no role is empty.

        Raises:
            InvalidConfig: a role is empty; the message names the setting.
        """
        for key, roles in (("superUserRoles", self.super_user_roles), ("proxyRoles", self.proxy_roles)):
            for role in roles:
                if not role.strip():
                    raise InvalidConfig(f"{key} contains an empty role {role!r}: expected comma-separated names")

    def is_super_user(self, role: str | None) -> bool:
        """Return whether a role may do everything."""
        return role is not None and role in self.super_user_roles

    def is_proxy(self, role: str | None) -> bool:
        """Return whether a role is a proxy role."""
        return role is not None and role in self.proxy_roles

    def is_valid(self, roles: Roles) -> bool:
        """Return whether the pair of role and original role is valid.

        A proxy role must name an original role that is not a proxy role; other roles may name only themselves.
        """
        original = (roles.original or "").strip()
        if self.is_proxy(roles.role):
            return bool(original) and not self.is_proxy(roles.original)
        return not original or roles.original == roles.role

    def judged(self, roles: Roles) -> tuple[str | None, ...]:
        """Return the roles that must all have permission."""
        return (roles.role, roles.original) if self.is_proxy(roles.role) else (roles.role,)


NO_AUTHORIZATION = AuthorizationSettings()
"""Every client may do everything."""
