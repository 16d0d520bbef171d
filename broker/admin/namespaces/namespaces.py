"""``/admin/v2/namespaces``: namespaces, their topics and bundles. `policies` has the endpoints for their policies."""

from __future__ import annotations

from starlette.responses import Response

from ....security.authorization.operations import NamespaceOperation
from ....security.authorization.rules import Resource, Rule, Who
from ....web.answers import Refused, as_json, not_supported
from ....wire.topic_name import DOMAINS, TopicName
from ...policies.policies import topic_hash
from ...storage.cursors.names import is_internal
from ..bodies import as_object
from ..call import Call
from ..guard import require
from ..routing import NAMESPACE, Routes
from ..topics.lookup import check_bundle, is_system_topic, topics_in_bundle, topics_of
from . import schema_policies
from .policies import new_policies

_CLEARING = Rule(Who.NAMESPACE, NamespaceOperation.CLEAR_BACKLOG)
_MODES = {"PERSISTENT": DOMAINS[:1], "NON_PERSISTENT": DOMAINS[1:], "ALL": DOMAINS}


def _list(call: Call) -> Response:
    tenant = call.tenant
    if call.namespaces.tenant(tenant) is None:
        raise Refused(404, "Tenant not found")
    return as_json(call.namespaces.namespaces(tenant))


async def _create(call: Call) -> None:
    namespace = call.new_namespace
    policies = new_policies(call.namespaces, namespace, as_object(await call.json(), "policies"))
    if call.namespaces.tenant(call.tenant) is None:
        raise Refused(404, "Tenant does not exist")
    if call.namespaces.has_namespace(namespace):
        raise Refused(409, "Namespace already exists")
    if 0 < call.broker.config.max_namespaces_per_tenant <= len(call.namespaces.namespaces(call.tenant)):
        raise Refused(412, f"Exceed the maximum number of namespace in tenant :{call.tenant}")
    await call.namespaces.create_namespace(namespace, policies)


async def _delete(call: Call) -> None:
    namespace = call.namespace
    if not call.namespaces.has_namespace(namespace):
        raise Refused(404, f"Namespace {namespace} does not exist.")
    if call.flag("force"):
        raise Refused(405, "Broker doesn't allow forced deletion of namespaces")
    while True:  # others may create topics while system topics are deleted
        topics = topics_of(call, namespace, DOMAINS, include_system=True)
        if any(not is_system_topic(topic) for topic in topics) or any(
            call.namespaces.partitioned_topics(namespace, domain) for domain in DOMAINS
        ):
            raise Refused(409, "Cannot delete non empty namespace")
        if not topics:
            break
        for topic in topics:
            await call.broker.delete_topic(topic, force=True)
    await call.namespaces.delete_namespace(namespace, call.broker.schemas.forget_namespace)


def _topics(call: Call) -> Response:
    namespace = call.require_namespace()
    mode = call.option("mode", tuple(_MODES), "PERSISTENT")
    topics = topics_of(call, namespace, _MODES[mode], call.flag("includeSystemTopic"))
    return as_json([str(topic) for topic in topics])


def _topic_hash_positions(call: Call) -> Response:
    namespace = call.require_namespace()
    bundle = _bundle(call)
    wanted = call.request.query_params.getlist("topics")
    topics = map(str, _targets(call))
    positions = {topic: topic_hash(topic) for topic in topics if not wanted or topic in wanted}
    return as_json({"namespace": namespace, "bundle": bundle, "topicHashPositions": positions})


async def _unload(call: Call) -> None:
    namespace = call.require_namespace("Namespace not found")
    for topic in topics_of(call, namespace, DOMAINS, include_system=True):
        await call.broker.unload_topic(topic)


async def _unload_bundle(call: Call) -> None:
    call.require_namespace("Namespace not found")
    for topic in _targets(call):
        await call.broker.unload_topic(topic)


def _split(call: Call) -> Response:
    call.require_namespace("Namespace not found")
    _bundle(call)
    raise not_supported("splitting bundles", "one broker serves all bundles")


def _delete_bundle(call: Call) -> Response:
    call.require_namespace()
    raise Refused(412, f"Failed to find ownership for ServiceUnit:{call.namespace}/{_bundle(call)}")


def _bundle(call: Call) -> str:
    return check_bundle(call, call.namespace, call.text("bundle"))


def _targets(call: Call) -> list[TopicName]:
    """Return the topics of the bundle in the path, if any, or of the namespace; empty if the namespace is missing."""
    if "bundle" in call.request.path_params:
        return topics_in_bundle(call, call.namespace, call.text("bundle"))
    return topics_of(call, call.namespace, DOMAINS[:1], include_system=False)


async def _clear_backlog(call: Call) -> None:
    topics = [await call.broker.topic(name, create=False) for name in _targets(call)]
    only = call.own_subscription if "subscription" in call.request.path_params else None
    found = [
        subscription
        for topic in topics
        for subscription in topic.subscriptions.values()
        if only in (None, subscription.name) and not is_internal(subscription.name)
    ]
    for name in sorted({subscription.name for subscription in found}):  # all are checked before the first is cleared
        await require(call, _CLEARING, Resource.of_namespace(call.namespace, name))
    for subscription in found:
        await subscription.skip_all()
    if only is not None and topics and not found:
        raise Refused(404, f"Subscription {only} not found on any topic of {call.namespace}")


async def _unsubscribe(call: Call) -> None:
    topics = _targets(call)
    subscription = call.own_subscription
    loaded = [await call.broker.topic(name, create=False) for name in topics]
    having = [topic for topic in loaded if subscription in topic.subscriptions]
    if any(topic.subscriptions[subscription].consumers for topic in having):
        raise Refused(412, "Subscription has active connected consumers")
    for topic in having:
        await topic.delete_subscription(subscription, force=False)


ROUTES: Routes = (
    ("GET", "/admin/v2/namespaces/{tenant}", _list),
    ("GET", NAMESPACE, lambda call: as_json(schema_policies.shown(call))),
    ("PUT", NAMESPACE, _create),
    ("DELETE", NAMESPACE, _delete),
    ("GET", f"{NAMESPACE}/topics", _topics),
    ("GET", f"{NAMESPACE}/bundles", lambda call: as_json(call.policies["bundles"])),
    ("PUT", f"{NAMESPACE}/unload", _unload),
    ("POST", f"{NAMESPACE}/clearBacklog", _clear_backlog),
    ("POST", f"{NAMESPACE}/clearBacklog/{{subscription}}", _clear_backlog),
    ("POST", f"{NAMESPACE}/unsubscribe/{{subscription}}", _unsubscribe),
    # The bundle in the path matches any string, so these must be last.
    ("GET", f"{NAMESPACE}/{{bundle}}/topicHashPositions", _topic_hash_positions),
    ("PUT", f"{NAMESPACE}/{{bundle}}/unload", _unload_bundle),
    ("PUT", f"{NAMESPACE}/{{bundle}}/split", _split),
    ("POST", f"{NAMESPACE}/{{bundle}}/clearBacklog", _clear_backlog),
    ("POST", f"{NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}", _clear_backlog),
    ("POST", f"{NAMESPACE}/{{bundle}}/unsubscribe/{{subscription}}", _unsubscribe),
    ("DELETE", f"{NAMESPACE}/{{bundle}}", _delete_bundle),
)
