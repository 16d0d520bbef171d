"""Endpoints that grant, revoke and list permissions of roles on namespaces, topics and subscriptions.

Permissions are stored as `auth_policies` in Pulsar's policies object. They take effect only while
`authorizationEnabled` is on, but can be granted before. A permission on a partitioned topic applies to all its
partitions and is stored once, under the topic name; a permission on a partition applies only to that partition.

Source: Pulsar's NamespacesBase and PersistentTopicsBase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from ...errors import InvalidTopicName
from ...security.authorization.operations import ACTIONS
from ...security.authorization.rules import Resource, Rule, Who
from ...web.answers import Refused, as_json
from ...wire.topic_name import TopicName, parse_topic_name
from ..policies.policies import Policies
from .bodies import as_object, as_text_list
from .call import Call
from .guard import require
from .routing import NAMESPACE, TOPIC, Routes
from .topics.lookup import require_known

_NAMESPACE, _TOPICS, _SUBSCRIPTIONS = "namespace_auth", "destination_auth", "subscription_auth_roles"
_MISSING = "Topic's namespace does not exist"
Grants = dict[str, Any]


def read_actions(body: Any) -> list[str]:
    """Return the actions in a request body without duplicates.

    Raises:
        Refused: 400, an action is unknown.
    """
    actions = as_text_list(body, "actions") or []
    for action in actions:
        if action not in ACTIONS:
            raise Refused(400, f"invalid action {action[:80]!r}: expected one of {', '.join(ACTIONS)}")
    return list(dict.fromkeys(actions))


def read_auth_policies(body: Any) -> Grants:
    """Return the complete permissions of a new namespace.

    Raises:
        Refused: 400, an entry is malformed or an action is unknown.
    """
    given = as_object(body, "auth_policies") or {}
    by_topic = as_object(given.get(_TOPICS), _TOPICS) or {}
    return {
        _NAMESPACE: _by_role(given.get(_NAMESPACE), _NAMESPACE),
        _TOPICS: {topic: _by_role(grants, _TOPICS) for topic, grants in by_topic.items()},
        _SUBSCRIPTIONS: {
            subscription: as_text_list(roles, _SUBSCRIPTIONS) or []
            for subscription, roles in (as_object(given.get(_SUBSCRIPTIONS), _SUBSCRIPTIONS) or {}).items()
        },
    }


def _by_role(body: Any, what: str) -> Grants:
    return {role: read_actions(actions) for role, actions in (as_object(body, what) or {}).items()}


async def _change(call: Call, namespace: str, field: str, change: Callable[[Grants], Grants]) -> None:
    """Change one of a namespace's three permission maps."""

    def changed(policies: Policies) -> Policies:
        grants = policies.get("auth_policies") or {}
        return policies | {"auth_policies": grants | {field: change(grants.get(field) or {})}}

    await call.namespaces.change_policies(namespace, changed)


def _without(grants: Grants, key: str) -> Grants:
    return {other: held for other, held in grants.items() if other != key}


def _shown(call: Call, field: str) -> Response:
    return as_json((call.policies.get("auth_policies") or {}).get(field) or {})


async def _grant(call: Call) -> None:
    actions, role = read_actions(await call.json()), call.text("role")
    namespace = call.require_namespace(_MISSING)
    await _change(call, namespace, _NAMESPACE, lambda grants: grants | {role: actions})


async def _revoke(call: Call) -> None:
    role = call.text("role")
    await _change(call, call.require_namespace(), _NAMESPACE, lambda grants: _without(grants, role))


async def _grant_subscription(call: Call) -> None:
    roles, subscription = as_text_list(await call.json(), "roles") or [], call.subscription
    namespace = call.require_namespace(_MISSING)
    # As in Pulsar, the roles replace the existing ones; an empty list reopens the subscription to all roles.
    wanted = {subscription: list(dict.fromkeys(roles))} if roles else {}
    await _change(call, namespace, _SUBSCRIPTIONS, lambda grants: _without(grants, subscription) | wanted)


async def _revoke_subscription(call: Call) -> None:
    subscription, role = call.subscription, call.text("role")

    def change(grants: Grants) -> Grants:
        roles = [other for other in grants.get(subscription, []) if other != role]
        return grants | {subscription: roles} if roles else _without(grants, subscription)

    await _change(call, call.require_namespace(), _SUBSCRIPTIONS, change)


def _of_topic(call: Call) -> Response:
    """Return the effective permissions on a topic: its own and those of its namespace."""
    name = require_known(call)
    grants = call.namespaces.policies(name.namespace_name).get("auth_policies") or {}
    together: Grants = {role: list(actions) for role, actions in (grants.get(_NAMESPACE) or {}).items()}
    for role, actions in ((grants.get(_TOPICS) or {}).get(str(name)) or {}).items():
        together[role] = list(dict.fromkeys([*together.get(role, []), *actions]))
    return as_json(together)


async def _grant_topic(call: Call) -> None:
    actions = read_actions(await call.json())
    await _keep_topic(call, require_known(call), call.text("role"), actions)


async def _revoke_topic(call: Call) -> None:
    await _keep_topic(call, require_known(call), call.text("role"), None)


async def _keep_topic(call: Call, name: TopicName, role: str, actions: list[str] | None) -> None:
    """Store the permissions of a role on a topic, or remove them."""
    topic = str(name)

    def change(grants: Grants) -> Grants:
        require_known(call)  # rechecked: if the topic was deleted meanwhile, the grant would apply to its successor
        roles = _without(grants.get(topic) or {}, role) | ({} if actions is None else {role: actions})
        return grants | {topic: roles} if roles else _without(grants, topic)

    await _change(call, name.namespace_name, _TOPICS, change)


async def _grant_on_topics(call: Call) -> None:
    await _change_topics(call, grants=True)


async def _revoke_on_topics(call: Call) -> None:
    await _change_topics(call, grants=False)


async def _change_topics(call: Call, *, grants: bool) -> None:
    """Change the permissions on several topics of one namespace in one request."""
    body = await call.json()
    if not isinstance(body, list):
        raise Refused(400, "the request body must be an array of objects with topic, role and actions")
    wanted = [_one_of_many(item) for item in body]
    namespaces = {name.namespace_name for name, _, _ in wanted}
    if len(namespaces) != 1:
        raise Refused(400, "The namespace should be the same")
    (namespace,) = namespaces
    await require(call, Rule(Who.TENANT_ADMIN), Resource.of_namespace(namespace))
    if not call.namespaces.has_namespace(namespace):
        raise Refused(404, _MISSING)

    def change(held: Grants) -> Grants:
        for name, role, actions in wanted:
            topic = str(name)
            roles = _without(held.get(topic) or {}, role) | ({role: actions} if grants else {})
            held = held | {topic: roles} if roles else _without(held, topic)
        return held

    await _change(call, namespace, _TOPICS, change)


def _one_of_many(item: Any) -> tuple[TopicName, str, list[str]]:
    fields = as_object(item, "a permission on a topic") or {}
    topic, role = fields.get("topic"), fields.get("role")
    if not isinstance(topic, str) or not isinstance(role, str) or not role:
        raise Refused(400, "each permission requires a topic and a role")
    try:
        return parse_topic_name(topic), role, read_actions(fields.get("actions"))
    except InvalidTopicName as error:
        raise Refused(412, "Topic name is not valid") from error


ROUTES: Routes = (
    ("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", _grant_on_topics),
    ("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", _revoke_on_topics),
    ("GET", f"{NAMESPACE}/permissions/subscription", lambda call: _shown(call, _SUBSCRIPTIONS)),
    ("POST", f"{NAMESPACE}/permissions/subscription/{{subscription}}", _grant_subscription),
    ("GET", f"{NAMESPACE}/permissions", lambda call: _shown(call, _NAMESPACE)),
    ("POST", f"{NAMESPACE}/permissions/{{role}}", _grant),
    ("DELETE", f"{NAMESPACE}/permissions/{{role}}", _revoke),
    ("DELETE", f"{NAMESPACE}/permissions/{{subscription}}/{{role}}", _revoke_subscription),
    ("GET", f"{TOPIC}/permissions", _of_topic),
    ("POST", f"{TOPIC}/permissions/{{role}}", _grant_topic),
    ("DELETE", f"{TOPIC}/permissions/{{role}}", _revoke_topic),
)
