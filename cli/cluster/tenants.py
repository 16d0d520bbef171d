"""``magnetar tenants``: create, inspect and change tenants."""

from __future__ import annotations

import click

from ..failure import Group
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import Admin, Call, Names, Subject, as_fields, rest_command, segment

tenant_argument = click.argument("tenant")
roles_option = click.option("-r", "--admin-roles", help="Admin roles, separated by commas.")
clusters_option = click.option("-c", "--allowed-clusters", help="Allowed clusters (default: all).")


@click.group(cls=Group, not_here=PULSAR_COMMANDS["tenants"])
def tenants() -> None:
    """Create, inspect and change tenants."""


def path_of(tenant: str) -> str:
    """Return the REST path of a tenant."""
    return f"/admin/v2/tenants/{segment(tenant)}"


Subject(lambda: "/admin/v2/tenants").commands(
    tenants, Call("list", "GET", "", "List the tenants.", show=Names, empty="no tenants")
)
Subject(path_of, [tenant_argument]).commands(
    tenants,
    Call("get", "GET", "", "Show a tenant's roles and clusters.", show=as_fields),
    Call("delete", "DELETE", "", "Delete a tenant that has no namespaces.", "Deleted tenant {tenant}"),
)


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@rest_command(tenants)
@tenant_argument
@roles_option
@clusters_option
def create(rest: Admin, tenant: str, admin_roles: str | None, allowed_clusters: str | None) -> str:
    """Create a tenant."""
    clusters = _split(allowed_clusters) or rest.get("/admin/v2/clusters")
    body = {"adminRoles": _split(admin_roles), "allowedClusters": clusters}
    rest.put(path_of(tenant), body)
    return f"Created tenant {tenant}"


@rest_command(tenants)
@tenant_argument
@roles_option
@clusters_option
def update(rest: Admin, tenant: str, admin_roles: str | None, allowed_clusters: str | None) -> str:
    """Change a tenant; omitted options keep their values."""
    body = rest.get(path_of(tenant))
    if admin_roles is not None:
        body["adminRoles"] = _split(admin_roles)
    if allowed_clusters is not None:
        body["allowedClusters"] = _split(allowed_clusters)
    rest.post(path_of(tenant), body)
    return f"Updated tenant {tenant}"
