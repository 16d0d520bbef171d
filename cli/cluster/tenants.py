"""``magnetar tenants``: create, inspect and change tenants."""

from __future__ import annotations

import click

from ..lazy import Group
from ..output import key_value_table, output_option, show_done, show_list, show_record
from ..rest import Admin, segment
from ..settings import current

tenant_argument = click.argument("tenant")
roles_option = click.option("-r", "--admin-roles", help="Admin roles, separated by commas.")
clusters_option = click.option("-c", "--allowed-clusters", help="Allowed clusters (default: all).")


@click.group(cls=Group)
def tenants() -> None:
    """Create, inspect and change tenants."""


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


@tenants.command("list")
@output_option
@click.pass_context
def list_tenants(ctx: click.Context) -> None:
    """List the tenants."""
    with admin(ctx) as rest:
        show_list(ctx, rest.get("/admin/v2/tenants"))


@tenants.command()
@tenant_argument
@output_option
@click.pass_context
def get(ctx: click.Context, tenant: str) -> None:
    """Show a tenant's roles and clusters."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get(f"/admin/v2/tenants/{segment(tenant)}"), key_value_table)


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@tenants.command()
@tenant_argument
@roles_option
@clusters_option
@output_option
@click.pass_context
def create(ctx: click.Context, tenant: str, admin_roles: str | None, allowed_clusters: str | None) -> None:
    """Create a tenant."""
    with admin(ctx) as rest:
        clusters = _split(allowed_clusters) or rest.get("/admin/v2/clusters")
        body = {"adminRoles": _split(admin_roles), "allowedClusters": clusters}
        rest.put(f"/admin/v2/tenants/{segment(tenant)}", body)
    show_done(ctx, f"Created tenant {tenant}")


@tenants.command()
@tenant_argument
@roles_option
@clusters_option
@output_option
@click.pass_context
def update(ctx: click.Context, tenant: str, admin_roles: str | None, allowed_clusters: str | None) -> None:
    """Change a tenant; options that are not given stay unchanged."""
    path = f"/admin/v2/tenants/{segment(tenant)}"
    with admin(ctx) as rest:
        body = rest.get(path)
        if admin_roles is not None:
            body["adminRoles"] = _split(admin_roles)
        if allowed_clusters is not None:
            body["allowedClusters"] = _split(allowed_clusters)
        rest.post(path, body)
    show_done(ctx, f"Updated tenant {tenant}")


@tenants.command()
@tenant_argument
@output_option
@click.pass_context
def delete(ctx: click.Context, tenant: str) -> None:
    """Delete a tenant that has no namespaces."""
    with admin(ctx) as rest:
        rest.delete(f"/admin/v2/tenants/{segment(tenant)}")
    show_done(ctx, f"Deleted tenant {tenant}")
