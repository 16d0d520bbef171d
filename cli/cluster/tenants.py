"""``magnetar tenants``: create, inspect and change tenants."""

from __future__ import annotations

import click

from ..lazy import Group
from ..output import key_value_table
from ..rest import Admin, Names, Record, rest_command, segment

tenant_argument = click.argument("tenant")
roles_option = click.option("-r", "--admin-roles", help="Admin roles, separated by commas.")
clusters_option = click.option("-c", "--allowed-clusters", help="Allowed clusters (default: all).")


@click.group(cls=Group)
def tenants() -> None:
    """Create, inspect and change tenants."""


@rest_command(tenants, "list")
def list_tenants(rest: Admin) -> Names:
    """List the tenants."""
    return Names(rest.get("/admin/v2/tenants"))


@rest_command(tenants)
@tenant_argument
def get(rest: Admin, tenant: str) -> Record:
    """Show a tenant's roles and clusters."""
    return Record(rest.get(f"/admin/v2/tenants/{segment(tenant)}"), key_value_table)


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
    rest.put(f"/admin/v2/tenants/{segment(tenant)}", body)
    return f"Created tenant {tenant}"


@rest_command(tenants)
@tenant_argument
@roles_option
@clusters_option
def update(rest: Admin, tenant: str, admin_roles: str | None, allowed_clusters: str | None) -> str:
    """Change a tenant; options that are not given stay unchanged."""
    path = f"/admin/v2/tenants/{segment(tenant)}"
    body = rest.get(path)
    if admin_roles is not None:
        body["adminRoles"] = _split(admin_roles)
    if allowed_clusters is not None:
        body["allowedClusters"] = _split(allowed_clusters)
    rest.post(path, body)
    return f"Updated tenant {tenant}"


@rest_command(tenants)
@tenant_argument
def delete(rest: Admin, tenant: str) -> str:
    """Delete a tenant that has no namespaces."""
    rest.delete(f"/admin/v2/tenants/{segment(tenant)}")
    return f"Deleted tenant {tenant}"
