"""Policies of single topics that this broker does not obey: they read as not set and are refused when set."""

from __future__ import annotations

from ....web.answers import as_json, not_supported, nothing, refusing
from ..routing import TOPIC, Handler, Routes, of_existing
from .lookup import find

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
_NO_CONTENT = (
    "publishRate",
    "maxConsumersPerSubscription",
    "maxSubscriptionsPerTopic",
    "maxMessageSize",
    "subscriptionTypesEnabled",
)
"""Read as 204 when not set; the others as 200 without a body."""


def _refuse(name: str) -> Handler:
    remedy = "leave it unset, or set it on the namespace where that is possible"
    return of_existing(find, refusing(not_supported(f"topic policy {name}", remedy)))


_DONE = of_existing(find, lambda _: None)
_NOT_SET = of_existing(find, lambda _: nothing())
ROUTES: Routes = (
    ("GET", f"{TOPIC}/backlogQuotaMap", of_existing(find, lambda _: as_json({}))),
    *(("GET", f"{TOPIC}/{name}", _DONE) for name in _NO_CONTENT),
    *(("GET", f"{TOPIC}/{name}", _NOT_SET) for name in _NAMES if name not in (*_NO_CONTENT, "backlogQuota")),
    *(("POST", f"{TOPIC}/{name}", _refuse(name)) for name in _NAMES),
    *(("PUT", f"{TOPIC}/{name}", _refuse(name)) for name in ("schemaCompatibilityStrategy", "shadowTopics")),
    *(("DELETE", f"{TOPIC}/{name}", _DONE) for name in _NAMES),
)
