"""Authorization decisions that first read the grants."""

from __future__ import annotations

from ..roles import Roles
from .decisions import NEEDS_GRANTS, Refusal, judge
from .grants import Grants, GrantsReader
from .rules import Resource, Rule
from .settings import AuthorizationSettings

_NOTHING = Grants()


async def decide(
    settings: AuthorizationSettings, reader: GrantsReader, roles: Roles, rule: Rule, resource: Resource
) -> Refusal | None:
    """Return the denial of an operation, or None if it is allowed; takes the arguments of `decisions.judge`.

    Cached grants may allow an operation but never deny it, so a new grant takes effect immediately.

    Raises:
        MagnetarError: the grants cannot be read.
    """
    if rule.who not in NEEDS_GRANTS or all(map(settings.is_super_user, settings.judged(roles))):
        return judge(settings, roles, rule, resource, _NOTHING)
    grants = await reader.read(resource.tenant, resource.namespace)
    refusal = judge(settings, roles, rule, resource, grants)
    if refusal is None:
        return None
    fresh = await reader.read(resource.tenant, resource.namespace, is_fresh=True)
    return judge(settings, roles, rule, resource, fresh)
