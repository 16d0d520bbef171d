"""Topic policies that are maps: backlog quotas by type, and dispatch rates by subscription."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ....web.answers import as_json, nothing
from ....wire.topic_name import TopicName
from ...policies.effective import AGE, SIZE
from ...policies.policies import Policies
from ..backlog_quotas import FIELD as QUOTAS
from ..backlog_quotas import kind_of, refuse_misfit, shown, with_quota
from ..bodies import with_field
from ..call import Call
from ..policy_bodies import read_backlog_quota, read_dispatch_rate
from ..routing import TOPIC, Routes
from .applied_policies import applied_dispatch_rate
from .policy import topic_of


def _get_backlog_quotas(call: Call) -> Response:
    name = topic_of(call)
    quotas = call.namespaces.topic_policies(name).get(QUOTAS) or {}
    if call.flag("applied"):
        policies = call.namespaces.effective(name)
        quotas = {SIZE: shown(policies.size_quota), AGE: shown(policies.age_quota)}
    return as_json(quotas)


async def _set_backlog_quota(call: Call) -> None:
    kind, body = kind_of(call), await call.json()
    name = topic_of(call)
    quota = read_backlog_quota(body, name.namespace_name)

    def change(policies: Policies) -> Policies:
        refuse_misfit(quota, policies, "topic")
        return with_quota(policies, kind, quota, keeps_empty=False)

    await call.namespaces.change_topic_policies(name, change)


async def _remove_backlog_quota(call: Call) -> None:
    kind, name = kind_of(call), topic_of(call)
    await call.namespaces.change_topic_policies(
        name, lambda policies: with_quota(policies, kind, None, keeps_empty=False)
    )


def _subscription_rates(call: Call, name: TopicName) -> dict[str, Any]:
    return dict(call.namespaces.topic_policies(name).get("subscriptionRates") or {})


async def _get_subscription_rate(call: Call) -> Response:
    name = topic_of(call)
    rate = _subscription_rates(call, name).get(call.subscription)
    if rate is None and call.flag("applied"):
        rate = applied_dispatch_rate("subscriptionDispatchRate", "subscription_rate")(call, name)
    return nothing() if rate is None else as_json(rate)


async def _set_subscription_rate(call: Call) -> None:
    rate = read_dispatch_rate(await call.json())
    await _keep_subscription_rate(call, rate)


async def _remove_subscription_rate(call: Call) -> None:
    await _keep_subscription_rate(call, None)


async def _keep_subscription_rate(call: Call, rate: dict[str, Any] | None) -> None:
    subscription = call.subscription if rate is None else call.new_subscription

    def change(policies: dict[str, Any]) -> dict[str, Any]:
        rates = with_field(policies.get("subscriptionRates") or {}, subscription, rate)
        return with_field(policies, "subscriptionRates", rates or None)

    await call.namespaces.change_topic_policies(topic_of(call), change)


ROUTES: Routes = (
    ("GET", f"{TOPIC}/backlogQuotaMap", _get_backlog_quotas),
    ("POST", f"{TOPIC}/backlogQuota", _set_backlog_quota),
    ("DELETE", f"{TOPIC}/backlogQuota", _remove_backlog_quota),
    ("GET", f"{TOPIC}/{{subscription}}/dispatchRate", _get_subscription_rate),
    ("POST", f"{TOPIC}/{{subscription}}/dispatchRate", _set_subscription_rate),
    ("DELETE", f"{TOPIC}/{{subscription}}/dispatchRate", _remove_subscription_rate),
)
