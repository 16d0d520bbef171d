"""Whether roles may do something: pure functions of the rule, what it is done to, and what is granted.

Super-users may do everything, administrators of a tenant everything in it but what is a super-user's. The others need
a grant: on the namespace, or for operations on a topic also on that topic or on the partitioned topic that it is a
partition of. A proxy and whom it asks for must both be allowed.

A subscription that roles were granted is closed to the others, and with `subscriptionAuthMode` Prefix its name must
begin with the role; administrators are exempt from both.

Source: Pulsar 4.0, AuthorizationService and PulsarAuthorizationProvider.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..roles import Roles
from .grants import ByRole, Grants, names_in, of_topic
from .operations import NEEDED_ON_NAMESPACE, NEEDED_ON_TOPIC, Action
from .rules import Resource, Rule, Who
from .settings import AuthorizationSettings

_NOT_JUDGED = frozenset((Who.EVERYBODY, Who.EVERY_ROLE, Who.BY_THE_HANDLER))
_FOR_SUPER_USERS = frozenset((Who.SUPER_USER, Who.CLUSTER, Who.CLUSTER_POLICY, Who.BROKER, Who.WORKER, Who.TENANTS))
_FOR_GRANTEES = {Who.NAMESPACE: NEEDED_ON_NAMESPACE, Who.COMPONENT: NEEDED_ON_NAMESPACE,
                 Who.PACKAGES: NEEDED_ON_NAMESPACE, Who.TOPIC: NEEDED_ON_TOPIC}  # fmt: skip
_ON_SUBSCRIPTIONS = frozenset((Who.TOPIC, Who.NAMESPACE))
NEEDS_GRANTS = frozenset(Who) - _NOT_JUDGED - _FOR_SUPER_USERS
"""Kinds of rules that depend on what is granted; the others are decided by the settings alone."""


class Why(Enum):
    """Why something is refused."""

    INVALID_ROLES = "role and original role may not stand together"
    NO_TENANT = "the tenant does not exist"
    NOT_ALLOWED = "the role may not"
    WRONG_PREFIX = "the name of the subscription does not begin with the role"


@dataclass(frozen=True, slots=True)
class Refusal:
    """That something is refused.

    Attributes:
        why: it is.
        role: of the two of a proxied request, the one that may not.
    """

    why: Why
    role: str | None


def judge(
    settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource, grants: Grants
) -> Refusal | None:
    """Return why roles may not do something, None if they may.

    Args:
        settings: of authorization.
        roles: of who asks.
        rule: of what is asked.
        resource: what it is done to.
        grants: of the resource's tenant and namespace; not looked at where super-users alone may, see `NEEDS_GRANTS`.
    """
    if rule.who in _NOT_JUDGED:
        return None
    if not settings.is_valid(roles):
        return Refusal(Why.INVALID_ROLES, roles.role)
    for role in settings.judged(roles):
        why = _judge_one(settings, role, rule, resource, grants)
        if why is not None:
            return Refusal(why, role)
    return None


def _judge_one(
    settings: AuthorizationSettings, role: str | None, rule: Rule, resource: Resource, grants: Grants
) -> Why | None:
    if settings.is_super_user(role):
        return None
    if rule.who in _FOR_SUPER_USERS or role is None:
        return Why.NOT_ALLOWED
    if not grants.has_tenant:
        return Why.NO_TENANT
    if role in grants.admin_roles:
        return None
    needed = _FOR_GRANTEES.get(rule.who, {}).get(rule.operation) if rule.operation is not None else None
    if not needed:
        return Why.NOT_ALLOWED
    if rule.who in _ON_SUBSCRIPTIONS and needed == {Action.CONSUME} and resource.subscription:
        why = _judge_subscription(role, resource.subscription, grants)
        if why is not None:
            return why
    granted = [grants.by_namespace]
    if rule.who is Who.TOPIC and resource.topic is not None:
        granted += [of_topic(grants, name) for name in dict.fromkeys((str(resource.topic), str(resource.topic.base)))]
    is_allowed = any(
        has_action(by_role, role, action.value, settings.allows_wildcards) for by_role in granted for action in needed
    )
    return None if is_allowed else Why.NOT_ALLOWED


def _judge_subscription(role: str, subscription: str, grants: Grants) -> Why | None:
    may_use = names_in(grants.by_subscription.get(subscription))
    if may_use and role not in may_use:
        return Why.NOT_ALLOWED
    return Why.WRONG_PREFIX if grants.needs_prefix and not subscription.startswith(role) else None


def has_action(by_role: ByRole, role: str, action: str, allows_wildcards: bool) -> bool:
    """Return whether an action is granted to a role, by its name or by a pattern ``abc*`` or ``*abc``."""
    if action in names_in(by_role.get(role)):
        return True
    return allows_wildcards and any(
        action in names_in(actions)
        and (
            (pattern.endswith("*") and role.startswith(pattern[:-1]))
            or (pattern.startswith("*") and role.endswith(pattern[1:]))
        )
        for pattern, actions in by_role.items()
    )
