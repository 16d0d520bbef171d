"""What authorization can be told: one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidConfig
from ..roles import Roles

LOCKS_TOPIC = "persistent://public/functions/instances"
"""Where workers keep the locks of functions unless their namespace is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationSettings:
    """Settings of authorization, of a broker or a functions worker.

    Attributes:
        is_enabled: `authorizationEnabled`; without it everybody may do everything.
        super_user_roles: `superUserRoles`; they may do everything.
        allows_wildcards: `authorizationAllowWildcardsMatching`; a grant to ``abc*`` or ``*abc`` is one to every role
            that begins or ends so.
        locks_topic: keeps the locks of functions; see `function_locks`.
        proxy_roles: `proxyRoles`; they ask for somebody else, whom they name, and both must be allowed what is asked.
    """

    is_enabled: bool = False
    super_user_roles: tuple[str, ...] = ()
    allows_wildcards: bool = False
    proxy_roles: tuple[str, ...] = ()
    locks_topic: str = LOCKS_TOPIC

    def __post_init__(self) -> None:
        """Check that all roles are names.

        Raises:
            InvalidConfig: names the setting and the role.
        """
        for key, roles in (("superUserRoles", self.super_user_roles), ("proxyRoles", self.proxy_roles)):
            for role in roles:
                if not role.strip():
                    raise InvalidConfig(f"{key} has the role {role!r}, which is empty; give names, separated by commas")

    def is_super_user(self, role: str | None) -> bool:
        """Return whether a role may do everything."""
        return role is not None and role in self.super_user_roles

    def is_proxy(self, role: str | None) -> bool:
        """Return whether a role asks for somebody else."""
        return role is not None and role in self.proxy_roles

    def is_valid(self, roles: Roles) -> bool:
        """Return whether role and original role may stand together.

        A proxy names somebody, who is no proxy; everybody else names nobody, or itself.
        """
        original = (roles.original or "").strip()
        if self.is_proxy(roles.role):
            return bool(original) and not self.is_proxy(roles.original)
        return not original or roles.original == roles.role

    def judged(self, roles: Roles) -> tuple[str | None, ...]:
        """Return the roles that must all be allowed what is asked."""
        return (roles.role, roles.original) if self.is_proxy(roles.role) else (roles.role,)


NO_AUTHORIZATION = AuthorizationSettings()
"""Everybody may do everything."""
