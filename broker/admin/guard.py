"""Authorization for the admin REST API: derives the resource of a request from the names in its path."""

from __future__ import annotations

from ...security.authorization.broker_rules import BROKER_RULES
from ...security.authorization.rules import Resource, Rule, Rules, Who
from ...web.guard import Guard
from ...wire.topic_name import TopicName
from ..policies.authorization import Authorization
from .call import Call
from .routing import path_in_table

_ON_TOPICS = frozenset((Who.TOPIC, Who.TOPIC_POLICY))
_ON_NAMESPACES = frozenset((Who.NAMESPACE, Who.NAMESPACE_POLICY, Who.PACKAGES, Who.COMPONENT))


class AdminGuard(Guard[Call]):
    """Authorization check that runs before the broker's handlers."""

    def __init__(self, authorization: Authorization) -> None:
        super().__init__(authorization.settings, BROKER_RULES, authorization)

    def rules_of(self, method: str, path: str) -> Rules:
        """Return the rules of a route."""
        return super().rules_of(method, path_in_table(path))

    async def check(self, call: Call, rules: Rules) -> None:
        """Raise unless the request is authorized."""
        if any(rule.if_not_persistent is not None for rule in rules) and not call.topic.is_persistent:
            rules = tuple(rule.if_not_persistent or rule for rule in rules)
        await super().check(call, rules)

    def resource_of(self, call: Call, rule: Rule) -> Resource | None:
        """Return the resource of a request."""
        parameters = call.request.path_params
        subscription = call.subscription if "subscription" in parameters else None
        if rule.who in _ON_TOPICS:
            topic = _topic(call)
            if rule.is_after_existence and not call.namespaces.has_namespace(topic.namespace_name):
                return None
            return Resource.of_topic(topic, subscription)
        if rule.who in _ON_NAMESPACES:
            return Resource.of_namespace(call.namespace, subscription)
        if rule.who in (Who.CLUSTER, Who.CLUSTER_POLICY):
            return Resource(name=call.cluster)
        if rule.who is Who.BROKER:
            return Resource(name=call.host)
        if "tenant" in parameters:
            return Resource(tenant=call.text("tenant"))
        return Resource(tenant=call.request.query_params.get("tenant", ""))


def _topic(call: Call) -> TopicName:
    """Return the topic in the path. Schema paths have no domain, as both domains share schemas."""
    if "domain" in call.request.path_params:
        return call.topic
    return call.topic_of("persistent")


def guard_of(authorization: Authorization | None) -> AdminGuard | None:
    """Return the check to run before the handlers, or None if authorization is disabled."""
    return None if authorization is None else AdminGuard(authorization)


async def require(call: Call, rule: Rule, resource: Resource) -> None:
    """Authorize a request that names its resource in the body.

    Raises:
        Refused: the caller has no permission.
    """
    guard = guard_of(call.broker.authorization)
    if guard is not None:
        await guard.check_one(call, rule, resource)
