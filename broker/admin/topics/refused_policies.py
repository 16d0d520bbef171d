"""Policies of single topics that this broker does not obey: they read as not set and are refused when set."""

from __future__ import annotations

from starlette.responses import Response

from ....web.answers import as_json, done, not_supported, nothing
from ..call import Call
from ..routing import Handler, Routes
from .lookup import exists, load

_T = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_NAMES = (
    "messageTTL",
    "retention",
    "backlogQuota",
    "persistence",
    "delayedDelivery",
    "dispatchRate",
    "subscriptionDispatchRate",
    "replicatorDispatchRate",
    "publishRate",
    "subscribeRate",
    "deduplicationSnapshotInterval",
    "inactiveTopicPolicies",
    "maxProducers",
    "maxConsumers",
    "maxUnackedMessagesOnConsumer",
    "maxUnackedMessagesOnSubscription",
    "maxConsumersPerSubscription",
    "maxSubscriptionsPerTopic",
    "maxMessageSize",
    "replication",
    "schemaCompatibilityStrategy",
    "schemaValidationEnforced",
    "autoSubscriptionCreation",
    "offloadPolicies",
    "subscriptionTypesEnabled",
    "entryFilters",
    "shadowTopics",
    "dispatcherPauseOnAckStatePersistent",
)
_NO_CONTENT = frozenset(
    (
        "publishRate",
        "maxConsumersPerSubscription",
        "maxSubscriptionsPerTopic",
        "maxMessageSize",
        "subscriptionTypesEnabled",
    )
)
"""Read as 204 when not set; the others as 200 without a body."""


async def _require(call: Call) -> None:
    name = call.topic
    if not call.namespaces.partitions(name) and not exists(call, name):
        await load(call, name)  # says what is missing


async def _quota_map(call: Call) -> Response:
    await _require(call)
    return as_json({})


def _read(name: str) -> Handler:
    async def read(call: Call) -> Response:
        await _require(call)
        return done() if name in _NO_CONTENT else nothing()

    return read


def _refuse(name: str) -> Handler:
    async def refuse(call: Call) -> Response:
        await _require(call)
        raise not_supported(f"topic policy {name}", "leave it unset, or set it on the namespace where that is possible")

    return refuse


async def _remove(call: Call) -> None:
    await _require(call)


ROUTES: Routes = (
    ("GET", f"{_T}/backlogQuotaMap", _quota_map),
    *(("GET", f"{_T}/{name}", _read(name)) for name in _NAMES if name != "backlogQuota"),
    *(("POST", f"{_T}/{name}", _refuse(name)) for name in _NAMES),
    *(("PUT", f"{_T}/{name}", _refuse(name)) for name in ("schemaCompatibilityStrategy", "shadowTopics")),
    *(("DELETE", f"{_T}/{name}", _remove) for name in _NAMES),
)
