"""Validates the pair of a role and its original role.

A proxy role must name an original role that is not a proxy role. Other roles must not name one, except that over HTTP
they may name themselves.

Source: Pulsar's AuthorizationService.isValidOriginalPrincipal.
"""

from __future__ import annotations

from collections.abc import Container

from ..roles import Roles


def fault_of_pair(roles: Roles, proxy_roles: Container[str], *, own_name_passes: bool = False) -> str | None:
    """Return why a pair of role and original role is invalid, or None if it is valid.

    Args:
        roles: the pair.
        proxy_roles: roles that may act for others.
        own_name_passes: whether the original role may be the role itself, as over HTTP.
    """
    original = (roles.original or "").strip()
    if roles.role is not None and roles.role in proxy_roles:
        if not original:
            return "a proxy role must name an original role"
        if roles.original in proxy_roles:
            return "the original role must not be a proxy role"
        return None
    if original and not (own_name_passes and roles.original == roles.role):
        return "only a proxy role may name an original role"
    return None
