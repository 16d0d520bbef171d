"""Backlog quotas of a namespace or a topic: at most one of each type, beside the retention that they have to fit into.

Source: Pulsar's NamespacesBase and PersistentTopicsBase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...web.answers import Refused
from ..policies.effective import AGE, SIZE, Quota
from ..policies.policies import Policies
from .bodies import with_field
from .call import Call
from .policy_bodies import check_quota_fits

FIELD = "backlog_quota_map"


def kind_of(call: Call) -> str:
    """Return the type of quota that a request names."""
    return call.option("backlogQuotaType", (SIZE, AGE), SIZE)


def with_quota(policies: Policies, kind: str, quota: Mapping[str, Any] | None, *, keeps_empty: bool) -> Policies:
    """Return policies with one quota set, or removed.

    Args:
        policies: of a namespace or a topic.
        kind: of the quota.
        quota: None removes it.
        keeps_empty: whether no quotas at all are an empty map, as namespaces have it; else no map.
    """
    quotas = with_field(policies.get(FIELD) or {}, kind, quota)
    return with_field(policies, FIELD, quotas if quotas or keeps_empty else None)


def refuse_misfit(quota: Mapping[str, Any] | None, policies: Policies, what: str) -> None:
    """Refuse a quota that is larger than what retention keeps; ``what`` is "namespace" or "topic"."""
    refusal = f"Backlog Quota exceeds configured retention quota for {what}. Please increase retention quota and retry"
    check_quota_fits(quota, policies.get("retention_policies"), refusal)


def refuse_retention_misfit(retention: Mapping[str, int] | None, policies: Policies, what: str) -> None:
    """Refuse a retention that keeps less than a quota counts; ``what`` is "namespace" or "topic"."""
    for quota in (policies.get(FIELD) or {}).values():
        check_quota_fits(quota, retention, f"Retention Quota must exceed configured backlog quota for {what}.")


def shown(quota: Quota) -> dict[str, Any]:
    """Return the quota in force as Pulsar shows it."""
    size, age_s = quota.limit_bytes, quota.limit_s
    return {"limit": size, "limitSize": size, "limitTime": age_s, "policy": quota.policy}


def require_quota(quota: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a quota that a request must give.

    Raises:
        Refused: it says nothing.
    """
    if quota is None:
        raise Refused(400, 'a backlog quota is expected, such as {"limitSize": 1048576, "policy": …}')
    return quota
