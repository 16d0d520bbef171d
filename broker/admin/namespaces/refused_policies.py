"""The policies of a namespace that this broker does not obey, refused by name.

Every policy that Pulsar has can be read: these read as not set. They may be set to what they mean anyway (off, none),
and are refused otherwise: nothing is accepted and then ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, no_authorization, not_supported, nothing, refusal, refusing
from ...policies.policies import Policies
from ..call import Call
from ..routing import NAMESPACE, Handler, Routes, of_existing

_LATER = "leave it unset"


@dataclass(frozen=True)
class _Unsupported:
    """A policy that this broker does not obey.

    Attributes:
        name: last part of its path.
        unset: what reading it answers; None is 200 without a body.
        verb: of setting it.
        is_removable: whether Pulsar has a DELETE for it; without, the word is taken for a bundle there.
        field: name in the policies object, "" if it is kept elsewhere.
        is_zero_unset: whether 0 means the same as not setting it; for what the broker limits anyway it does not.
    """

    name: str
    unset: Any = None
    verb: str = "POST"
    is_removable: bool = True
    field: str = ""
    is_zero_unset: bool = True


_UNSUPPORTED = (
    _Unsupported("messageTTL", field="message_ttl_in_seconds"),
    _Unsupported("subscriptionExpirationTime", field="subscription_expiration_time_minutes"),
    _Unsupported("deduplicationSnapshotInterval", is_removable=False, field="deduplicationSnapshotIntervalSeconds"),
    _Unsupported("dispatchRate", field="topicDispatchRate"),
    _Unsupported("subscriptionDispatchRate", field="subscriptionDispatchRate"),
    _Unsupported("replicatorDispatchRate", field="replicatorDispatchRate"),
    _Unsupported("publishRate", field="publishMaxMessageRate"),
    _Unsupported("subscribeRate", field="clusterSubscribeRate"),
    _Unsupported("persistence", field="persistence"),
    _Unsupported("subscriptionAuthMode", "None", is_removable=False, field="subscription_auth_mode"),
    _Unsupported("encryptionRequired", False, is_removable=False, field="encryption_required"),
    _Unsupported("delayedDelivery", field="delayed_delivery_policies"),
    _Unsupported("inactiveTopicPolicies", field="inactive_topic_policies"),
    _Unsupported("maxProducersPerTopic", field="max_producers_per_topic"),
    _Unsupported("maxConsumersPerTopic", field="max_consumers_per_topic"),
    _Unsupported("maxConsumersPerSubscription", field="max_consumers_per_subscription"),
    _Unsupported("maxUnackedMessagesPerConsumer", field="max_unacked_messages_per_consumer", is_zero_unset=False),
    _Unsupported(
        "maxUnackedMessagesPerSubscription", field="max_unacked_messages_per_subscription", is_zero_unset=False
    ),
    _Unsupported("maxSubscriptionsPerTopic", field="max_subscriptions_per_topic"),
    _Unsupported("maxTopicsPerNamespace", 0, field="max_topics_per_namespace"),
    _Unsupported("offloadThreshold", -1, "PUT", is_removable=False, field="offload_threshold"),
    _Unsupported("offloadThresholdInSeconds", -1, "PUT", is_removable=False, field="offload_threshold_in_seconds"),
    _Unsupported("offloadDeletionLagMs", verb="PUT", field="offload_deletion_lag_ms"),
    _Unsupported("offloadPolicies", is_removable=False, field="offload_policies"),
    _Unsupported(
        "schemaCompatibilityStrategy", "UNDEFINED", "PUT", is_removable=False, field="schema_compatibility_strategy"
    ),
    _Unsupported("isAllowAutoUpdateSchema", True, is_removable=False, field="is_allow_auto_update_schema"),
    _Unsupported("schemaValidationEnforced", False, is_removable=False, field="schema_validation_enforced"),
    _Unsupported("subscriptionTypesEnabled", [], field="subscription_types_enabled"),
    _Unsupported("entryFilters", field="entryFilters"),
    _Unsupported("dispatcherPauseOnAckStatePersistent", False, field="dispatcherPauseOnAckStatePersistentEnabled"),
    _Unsupported("backlogQuota", field="backlog_quota_map"),
)
_OTHER_UNSUPPORTED_FIELDS = {
    "clusterDispatchRate": "dispatchRate",
    "schema_auto_update_compatibility_strategy": "schemaAutoUpdateCompatibilityStrategy",
    "resource_group_name": "resourcegroup",
    "latency_stats_sample_rate": "latency_stats_sample_rate",
    "migrated": "migration",
    "deleted": "deleted",
}


def refuse_unsupported(policies: Policies, wanted: Mapping[str, Any]) -> None:
    """Refuse what a request for a new namespace asks for beyond ``policies``, the defaults.

    What is empty, off or the default asks for nothing; clients send whole objects full of these.

    Raises:
        Refused: 501 for a policy of Pulsar's, 400 for an unknown field.
    """
    named = {policy.field: policy.name for policy in _UNSUPPORTED} | _OTHER_UNSUPPORTED_FIELDS
    limited = {policy.field for policy in _UNSUPPORTED if not policy.is_zero_unset}
    for field, value in wanted.items():
        asks_for_something = value and value != -1 and value != policies.get(field)
        if asks_for_something or (value == 0 and field in limited):
            if field not in named:
                raise Refused(400, f"unknown field {field} in the policies")
            raise not_supported(f"namespace policy {named[field]} ({field})", _LATER)


def _refuse_setting(policy: _Unsupported) -> Handler:
    async def refuse(call: Call) -> None:
        value = await call.json() if policy.name != "dispatcherPauseOnAckStatePersistent" else True
        call.require_namespace()
        is_off = policy.unset is None and not value and policy.is_zero_unset
        if value is not None and value != policy.unset and not is_off:
            raise not_supported(f"namespace policy {policy.name}", _LATER)

    return refuse


def _of_namespace(answer: Callable[[Call], Response | None], absent: str = "Namespace does not exist") -> Handler:
    return of_existing(lambda call: call.require_namespace(absent), answer)


def _refuse(name: str) -> Handler:
    return _of_namespace(refusing(not_supported(f"namespace policy {name}", _LATER)))


def _no_bundle(call: Call) -> Response:
    return refusal(Refused(412, f"Invalid bundle range: {call.request.scope['path'].rsplit('/', 1)[1]}"))


def _show_unset(policy: _Unsupported) -> Handler:
    absent = (
        "Namespace policies does not exist"
        if policy.name in ("replicatorDispatchRate", "dispatcherPauseOnAckStatePersistent")
        else "Namespace does not exist"
    )
    return _of_namespace(lambda _: nothing() if policy.unset is None else as_json(policy.unset), absent)


def _unsupported_routes() -> Iterator[tuple[str, str, Handler]]:
    for policy in _UNSUPPORTED:
        path = f"{NAMESPACE}/{policy.name}"
        if policy.name != "backlogQuota":  # read as backlogQuotaMap
            yield "GET", path, _show_unset(policy)
        yield policy.verb, path, _refuse_setting(policy)
        yield "DELETE", path, _DONE if policy.is_removable else _NO_BUNDLE


_DONE = _of_namespace(lambda _: None)
_NO_MAP = _of_namespace(lambda _: as_json({}))
_NO_BUNDLE = _of_namespace(_no_bundle)
_NO_PERMISSION = _of_namespace(refusing(no_authorization()), "Topic's namespace does not exist")
_NO_LOCAL_POLICIES = refusing(Refused(404, "Namespace local-policies does not exist"))
ROUTES: Routes = (
    ("GET", f"{NAMESPACE}/permissions/subscription", _NO_MAP),
    ("POST", f"{NAMESPACE}/permissions/subscription/{{subscription}}", _NO_PERMISSION),
    ("GET", f"{NAMESPACE}/permissions", _NO_MAP),
    ("POST", f"{NAMESPACE}/permissions/{{role}}", _NO_PERMISSION),
    ("DELETE", f"{NAMESPACE}/permissions/{{role}}", _DONE),
    ("DELETE", f"{NAMESPACE}/permissions/{{subscription}}/{{role}}", _DONE),
    ("GET", f"{NAMESPACE}/backlogQuotaMap", _NO_MAP),
    ("GET", f"{NAMESPACE}/antiAffinity", lambda _: None),  # of an absent namespace too
    ("POST", f"{NAMESPACE}/antiAffinity", _refuse("antiAffinity")),
    ("DELETE", f"{NAMESPACE}/antiAffinity", _DONE),
    ("GET", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy", _DONE),
    ("PUT", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy", _refuse("schemaAutoUpdateCompatibilityStrategy")),
    ("DELETE", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy", _NO_BUNDLE),
    ("GET", f"{NAMESPACE}/persistence/bookieAffinity", _of_namespace(_NO_LOCAL_POLICIES, "Namespace not found")),
    ("POST", f"{NAMESPACE}/persistence/bookieAffinity", _refuse("persistence/bookieAffinity")),
    ("DELETE", f"{NAMESPACE}/persistence/bookieAffinity", _DONE),
    ("GET", f"{NAMESPACE}/resourcegroup", _of_namespace(lambda _: nothing())),
    ("POST", f"{NAMESPACE}/resourcegroup/{{group}}", _refuse("resourcegroup")),
    ("DELETE", f"{NAMESPACE}/resourcegroup", _DONE),
    ("DELETE", f"{NAMESPACE}/removeOffloadPolicies", _DONE),
    ("POST", f"{NAMESPACE}/migration", _refuse("migration")),
    ("DELETE", f"{NAMESPACE}/replication", _NO_BUNDLE),
    ("DELETE", f"{NAMESPACE}/allowedClusters", _NO_BUNDLE),
    *_unsupported_routes(),
)
