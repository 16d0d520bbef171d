"""``magnetar clusters``: create, inspect and change the clusters that tenants may use."""

from __future__ import annotations

import click

from ..lazy import Group
from ..output import key_value_table, output_option, show_done, show_list, show_record
from ..rest import Admin, segment
from ..settings import current

cluster_argument = click.argument("cluster")
url_option = click.option("--url", help="REST address of the cluster.")
broker_url_option = click.option("--broker-url", help="Broker address of the cluster.")


@click.group(cls=Group)
def clusters() -> None:
    """Create, inspect and change clusters."""


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


@clusters.command("list")
@output_option
@click.pass_context
def list_clusters(ctx: click.Context) -> None:
    """List the clusters."""
    with admin(ctx) as rest:
        show_list(ctx, rest.get("/admin/v2/clusters"))


@clusters.command()
@cluster_argument
@output_option
@click.pass_context
def get(ctx: click.Context, cluster: str) -> None:
    """Show a cluster's addresses."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get(f"/admin/v2/clusters/{segment(cluster)}"), key_value_table)


@clusters.command()
@cluster_argument
@url_option
@broker_url_option
@output_option
@click.pass_context
def create(ctx: click.Context, cluster: str, url: str | None, broker_url: str | None) -> None:
    """Register a cluster."""
    body = {"serviceUrl": url, "brokerServiceUrl": broker_url}
    with admin(ctx) as rest:
        rest.put(f"/admin/v2/clusters/{segment(cluster)}", {key: value for key, value in body.items() if value})
    show_done(ctx, f"Created cluster {cluster}")


@clusters.command()
@cluster_argument
@url_option
@broker_url_option
@output_option
@click.pass_context
def update(ctx: click.Context, cluster: str, url: str | None, broker_url: str | None) -> None:
    """Change a cluster's addresses; options that are not given stay unchanged."""
    path = f"/admin/v2/clusters/{segment(cluster)}"
    with admin(ctx) as rest:
        body = rest.get(path)
        body |= {"serviceUrl": url} if url else {}
        body |= {"brokerServiceUrl": broker_url} if broker_url else {}
        rest.post(path, body)
    show_done(ctx, f"Updated cluster {cluster}")


@clusters.command()
@cluster_argument
@output_option
@click.pass_context
def delete(ctx: click.Context, cluster: str) -> None:
    """Remove a cluster."""
    with admin(ctx) as rest:
        rest.delete(f"/admin/v2/clusters/{segment(cluster)}")
    show_done(ctx, f"Deleted cluster {cluster}")
