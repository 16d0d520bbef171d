"""Backlog quotas of a namespace or topic: at most one per type, none larger than the retention policy allows.

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
    """Return the quota type of a request."""
    return call.option("backlogQuotaType", (SIZE, AGE), SIZE)


def with_quota(policies: Policies, kind: str, quota: Mapping[str, Any] | None, *, keeps_empty: bool) -> Policies:
    """Return a copy of the policies with one quota set or removed.

    Args:
        policies: namespace or topic policies.
        kind: quota type.
        quota: the new quota; None removes it.
        keeps_empty: whether to keep an empty map if no quota remains, as for namespaces, or to remove it.
    """
    quotas = with_field(policies.get(FIELD) or {}, kind, quota)
    return with_field(policies, FIELD, quotas if quotas or keeps_empty else None)


def refuse_misfit(quota: Mapping[str, Any] | None, policies: Policies, what: str) -> None:
    """Raise if a quota exceeds the retention policy; ``what`` is "namespace" or "topic"."""
    refusal = f"Backlog Quota exceeds configured retention quota for {what}. Please increase retention quota and retry"
    check_quota_fits(quota, policies.get("retention_policies"), refusal)


def refuse_retention_misfit(retention: Mapping[str, int] | None, policies: Policies, what: str) -> None:
    """Raise if a retention policy is smaller than a quota; ``what`` is "namespace" or "topic"."""
    for quota in (policies.get(FIELD) or {}).values():
        check_quota_fits(quota, retention, f"Retention Quota must exceed configured backlog quota for {what}.")


def shown(quota: Quota) -> dict[str, Any]:
    """Return the effective quota in Pulsar's format."""
    size, age_s = quota.limit_bytes, quota.limit_s
    return {"limit": size, "limitSize": size, "limitTime": age_s, "policy": quota.policy}


def require_quota(quota: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the quota in a request body.

    Raises:
        Refused: the quota is missing.
    """
    if quota is None:
        raise Refused(400, 'missing backlog quota: expected an object such as {"limitSize": 1048576, "policy": …}')
    return quota
