"""Authorization decisions: pure functions of rule, resource and grants.

Super-users may do everything; tenant administrators may do everything in the tenant that is not reserved for
super-users. Other roles need a grant on the namespace or, for topic operations, on the topic or the partitioned topic
of a partition. For a proxied request, both roles need permission.

A subscription granted to some roles is denied to all others, and with `subscriptionAuthMode` Prefix, subscription names
must begin with the role. Administrators are exempt from both.

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
"""Rule types that depend on grants; the others depend only on the settings."""


class Why(Enum):
    """The reason for a denial."""

    INVALID_ROLES = "invalid combination of role and original role"
    NO_TENANT = "the tenant does not exist"
    NOT_ALLOWED = "the role lacks permission"
    WRONG_PREFIX = "the subscription name does not begin with the role"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A denial.

    Attributes:
        why: the reason.
        role: the denied role; for a proxied request, this may be either role.
    """

    why: Why
    role: str | None


def judge(
    settings: AuthorizationSettings, roles: Roles, rule: Rule, resource: Resource, grants: Grants
) -> Refusal | None:
    """Return the denial of an operation, or None if it is allowed.

    Args:
        settings: authorization settings.
        roles: the client's roles.
        rule: the operation's rule.
        resource: the resource that the operation affects.
        grants: grants of the resource's tenant and namespace; ignored for rule types not in `NEEDS_GRANTS`.
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
    """Return whether an action is granted to a role, by name or, if allowed, by a pattern ``abc*`` or ``*abc``."""
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
