"""``/admin/v2/tenants``."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...web.answers import Refused, as_json
from ..topics.limits import TOO_MANY_TENANTS
from .bodies import as_object, as_text_list
from .call import Call
from .routing import Routes


def _get(call: Call) -> Response:
    info = call.namespaces.tenant(call.text("tenant"))
    if info is None:
        raise Refused(404, "Tenant does not exist")
    return as_json(info)


async def _create(call: Call) -> None:
    tenant = call.new_tenant
    info = await _read(call)
    if call.namespaces.tenant(tenant) is not None:
        raise Refused(409, "Tenant already exist")
    if 0 < call.broker.config.max_tenants <= len(call.namespaces.tenants()):
        raise Refused(412, TOO_MANY_TENANTS)
    await call.namespaces.create_tenant(tenant, info)


async def _update(call: Call) -> None:
    tenant = call.tenant
    info = await _read(call)
    if call.namespaces.tenant(tenant) is None:
        raise Refused(404, f"Tenant {tenant} not found")
    await call.namespaces.change_tenant(tenant, info)


async def _delete(call: Call) -> None:
    tenant = call.text("tenant")
    if call.flag("force"):
        raise Refused(405, "Broker doesn't allow forced deletion of tenants")
    if call.namespaces.tenant(tenant) is None:
        raise Refused(404, "Tenant doesn't exist")
    if call.namespaces.namespaces(tenant):
        raise Refused(409, "The tenant still has active namespaces")
    await call.namespaces.delete_tenant(tenant)


async def _read(call: Call) -> dict[str, Any]:
    """Return the TenantInfo in the body, validated as in Pulsar."""
    body = as_object(await call.json(), "tenant information")
    if body is None:
        raise Refused(412, "TenantInfo is null")
    roles = as_text_list(body.get("adminRoles"), "adminRoles")
    clusters = as_text_list(body.get("allowedClusters"), "allowedClusters")
    if clusters is None:
        raise Refused(412, "Clusters cannot be null")
    if not clusters or not all(cluster.strip() for cluster in clusters):
        raise Refused(412, "Clusters cannot be empty or blank")
    if any(call.namespaces.cluster(cluster) is None for cluster in clusters):
        raise Refused(412, "Clusters do not exist")
    if any(role != role.strip() for role in roles or ()):
        raise Refused(412, "AdminRoles contains whitespace in the beginning or end.")
    info: dict[str, Any] = {"allowedClusters": sorted(set(clusters))}
    return info if roles is None else {"adminRoles": sorted(set(roles)), **info}


ROUTES: Routes = (
    ("GET", "/admin/v2/tenants", lambda call: as_json(call.namespaces.tenants())),
    ("GET", "/admin/v2/tenants/{tenant}", _get),
    ("PUT", "/admin/v2/tenants/{tenant}", _create),
    ("POST", "/admin/v2/tenants/{tenant}", _update),
    ("DELETE", "/admin/v2/tenants/{tenant}", _delete),
)
