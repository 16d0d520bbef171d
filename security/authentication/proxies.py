"""Which pairs of a role and the one it asks for are valid.

A proxy role asks for others, and only for others; whoever else names an original is refused, but over HTTP its own name
passes. Pure.

Source: Pulsar's AuthorizationService.isValidOriginalPrincipal.
"""

from __future__ import annotations

from collections.abc import Container

from ..roles import Roles


def fault_of_pair(roles: Roles, proxy_roles: Container[str], *, own_name_passes: bool = False) -> str | None:
    """Return what is wrong with a role and its original, None if nothing is.

    Args:
        roles: who asks, and for whom.
        proxy_roles: those that may ask for others.
        own_name_passes: whether an original that is the role itself is fine, as over HTTP.
    """
    original = (roles.original or "").strip()
    if roles.role is not None and roles.role in proxy_roles:
        if not original:
            return "a proxy role has to say for whom it asks"
        if roles.original in proxy_roles:
            return "a proxy role cannot ask for a proxy role"
        return None
    if original and not (own_name_passes and roles.original == roles.role):
        return "only a proxy role may ask for another"
    return None
