"""Namespace placement: anti-affinity group, bookie affinity group, resource group.

The first two are hints for clusters. They are stored and returned as in Pulsar but have no effect: a single broker
serves all namespaces and stores all their data itself. A resource group limits the namespace; see `resource_groups`.

Source: Pulsar's LocalPolicies and NamespacesBase.
"""

from __future__ import annotations

import json
import logging

from starlette.responses import Response

from ....web.answers import Refused, as_json, as_text, nothing
from ..bodies import as_object, as_string, with_field
from ..call import Call
from ..routing import NAMESPACE, Routes

_ANTI_AFFINITY, _BOOKIE_AFFINITY = "namespaceAntiAffinityGroup", "bookieAffinityGroup"
_BOOKIE_GROUPS = "bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary"
RESOURCE_GROUP = "resource_group_name"
NO_GROUP = "ResourceGroup does not exist"
log = logging.getLogger(__name__)


def _get_anti_affinity(call: Call) -> Response | None:
    group = (call.namespaces.local_policies(call.namespace) or {}).get(_ANTI_AFFINITY)
    return None if group is None else as_text(group)


async def _set_anti_affinity(call: Call) -> None:
    """Store the group. The Java client and curl send plain text, the Go client a JSON string."""
    group = (await call.body(("application/json", "text/plain"))).decode(errors="replace").strip()
    if not call.namespaces.has_namespace(call.namespace):
        return  # Pulsar also returns 204
    if not group:
        raise Refused(412, "antiAffinityGroup can't be empty")
    await call.namespaces.change_local_policies(call.namespace, _ANTI_AFFINITY, group)
    log.info("stored the anti-affinity group of namespace %s: it has no effect on a single broker", call.namespace)


async def _remove_anti_affinity(call: Call) -> None:
    await call.namespaces.change_local_policies(call.require_namespace(), _ANTI_AFFINITY, None)


def _in_anti_affinity_group(call: Call) -> Response:
    parameters, group = call.request.query_params, call.text("group")
    # Authorization uses `tenant`; the Java and Go clients send `property`, which requires a superuser role.
    tenant = parameters.get("tenant") or parameters.get("property")
    tenants = [tenant] if tenant else call.namespaces.tenants()
    found = []
    for namespace in (name for one in tenants for name in call.namespaces.namespaces(one)):
        held = (call.namespaces.local_policies(namespace) or {}).get(_ANTI_AFFINITY)
        if held is not None and _plain(held) == group:
            found.append(namespace)
    return as_json(found)


def _plain(group: str) -> str:
    """Return the group name, unquoted if it is a JSON string."""
    try:
        value = json.loads(group)
    except ValueError:
        return group
    return value if isinstance(value, str) else group


def _get_bookie_affinity(call: Call) -> Response | None:
    policies = call.namespaces.local_policies(call.require_namespace("Namespace not found"))
    if policies is None:
        raise Refused(404, "Namespace local-policies does not exist")
    groups = policies.get(_BOOKIE_AFFINITY)
    return None if groups is None else as_json(groups)


async def _set_bookie_affinity(call: Call) -> None:
    body = as_object(await call.json(), "bookie affinity group")
    namespace = call.require_namespace("Namespace not found")
    groups = None
    if body is not None:
        sent = {field: as_string(body.get(field), field) for field in _BOOKIE_GROUPS}
        groups = {field: group for field, group in sent.items() if group is not None}
    await call.namespaces.change_local_policies(namespace, _BOOKIE_AFFINITY, groups)
    log.info("stored the bookie affinity group of namespace %s: it has no effect without bookies", namespace)


async def _remove_bookie_affinity(call: Call) -> None:
    await call.namespaces.change_local_policies(call.require_namespace(), _BOOKIE_AFFINITY, None)


def _get_resource_group(call: Call) -> Response:
    group = call.policies.get(RESOURCE_GROUP)
    return nothing() if group is None else as_text(group)


async def _set_resource_group(call: Call) -> None:
    namespace, group = call.require_namespace(), call.text("group")
    if call.namespaces.resource_group(group) is None:
        raise Refused(412, NO_GROUP)
    await call.namespaces.change_policies(namespace, lambda policies: policies | {RESOURCE_GROUP: group})


async def _remove_resource_group(call: Call) -> None:
    namespace = call.require_namespace()
    await call.namespaces.change_policies(namespace, lambda policies: with_field(policies, RESOURCE_GROUP, None))


ROUTES: Routes = (
    ("GET", f"{NAMESPACE}/antiAffinity", _get_anti_affinity),
    ("POST", f"{NAMESPACE}/antiAffinity", _set_anti_affinity),
    ("DELETE", f"{NAMESPACE}/antiAffinity", _remove_anti_affinity),
    ("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}", _in_anti_affinity_group),
    ("GET", "/admin/namespaces/{cluster}/antiAffinity/{group}", _in_anti_affinity_group),  # path used by Java's client
    ("GET", f"{NAMESPACE}/persistence/bookieAffinity", _get_bookie_affinity),
    ("POST", f"{NAMESPACE}/persistence/bookieAffinity", _set_bookie_affinity),
    ("DELETE", f"{NAMESPACE}/persistence/bookieAffinity", _remove_bookie_affinity),
    ("GET", f"{NAMESPACE}/resourcegroup", _get_resource_group),
    ("POST", f"{NAMESPACE}/resourcegroup/{{group}}", _set_resource_group),
    ("DELETE", f"{NAMESPACE}/resourcegroup", _remove_resource_group),
)
