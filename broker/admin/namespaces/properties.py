"""Namespace policies that are maps: properties by name, and backlog quotas by type."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from ....web.answers import as_json, as_text, nothing
from ...policies.policies import Policies
from ..backlog_quotas import FIELD as QUOTAS
from ..backlog_quotas import kind_of, refuse_misfit, require_quota, with_quota
from ..bodies import as_text_map, with_field
from ..call import Call
from ..policy_bodies import read_backlog_quota
from ..routing import NAMESPACE, Routes


async def _add_properties(call: Call) -> None:
    added = as_text_map(await call.json(), "properties") or {}
    await _change_properties(call, lambda held: held | added)


async def _set_property(call: Call) -> None:
    one = {call.text("key"): call.text("value")}
    await _change_properties(call, lambda held: held | one)


async def _remove_property(call: Call) -> Response:
    key = call.text("key")
    answer = _property(call)
    await _change_properties(call, lambda held: with_field(held, key, None))
    return answer


def _property(call: Call) -> Response:
    value = call.policies["properties"].get(call.text("key"))
    return nothing() if value is None else as_text(value)


async def _change_properties(call: Call, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    namespace = call.require_namespace()
    await call.namespaces.change_policies(namespace, lambda p: p | {"properties": change(p["properties"])})


async def _set_backlog_quota(call: Call) -> None:
    kind, body = kind_of(call), await call.json()
    namespace = call.require_namespace()
    quota = require_quota(read_backlog_quota(body, namespace))

    def change(policies: Policies) -> Policies:
        refuse_misfit(quota, policies, "namespace")
        return with_quota(policies, kind, quota, keeps_empty=True)

    await call.namespaces.change_policies(namespace, change)


async def _remove_backlog_quota(call: Call) -> None:
    kind, namespace = kind_of(call), call.require_namespace()
    await call.namespaces.change_policies(
        namespace, lambda policies: with_quota(policies, kind, None, keeps_empty=True)
    )


ROUTES: Routes = (
    ("GET", f"{NAMESPACE}/backlogQuotaMap", lambda call: as_json(call.policies.get(QUOTAS) or {})),
    ("POST", f"{NAMESPACE}/backlogQuota", _set_backlog_quota),
    ("DELETE", f"{NAMESPACE}/backlogQuota", _remove_backlog_quota),
    ("GET", f"{NAMESPACE}/properties", lambda call: as_json(call.policies["properties"])),
    ("PUT", f"{NAMESPACE}/properties", _add_properties),
    ("DELETE", f"{NAMESPACE}/properties", lambda call: _change_properties(call, lambda _: {})),
    ("GET", f"{NAMESPACE}/property/{{key}}", _property),
    ("PUT", f"{NAMESPACE}/property/{{key}}/{{value}}", _set_property),
    ("DELETE", f"{NAMESPACE}/property/{{key}}", _remove_property),
)
