"""``magnetar clusters``: create, inspect and change the clusters that tenants may use."""

from __future__ import annotations

import click

from ..lazy import Group
from ..output import key_value_table
from ..rest import Admin, Names, Record, rest_command, segment

cluster_argument = click.argument("cluster")
url_option = click.option("--url", help="REST address of the cluster.")
broker_url_option = click.option("--broker-url", help="Broker address of the cluster.")


@click.group(cls=Group)
def clusters() -> None:
    """Create, inspect and change clusters."""


@rest_command(clusters, "list")
def list_clusters(rest: Admin) -> Names:
    """List the clusters."""
    return Names(rest.get("/admin/v2/clusters"))


@rest_command(clusters)
@cluster_argument
def get(rest: Admin, cluster: str) -> Record:
    """Show a cluster's addresses."""
    return Record(rest.get(f"/admin/v2/clusters/{segment(cluster)}"), key_value_table)


@rest_command(clusters)
@cluster_argument
@url_option
@broker_url_option
def create(rest: Admin, cluster: str, url: str | None, broker_url: str | None) -> str:
    """Register a cluster."""
    body = {"serviceUrl": url, "brokerServiceUrl": broker_url}
    rest.put(f"/admin/v2/clusters/{segment(cluster)}", {key: value for key, value in body.items() if value})
    return f"Created cluster {cluster}"


@rest_command(clusters)
@cluster_argument
@url_option
@broker_url_option
def update(rest: Admin, cluster: str, url: str | None, broker_url: str | None) -> str:
    """Change a cluster's addresses; options that are not given stay unchanged."""
    path = f"/admin/v2/clusters/{segment(cluster)}"
    body = rest.get(path)
    body |= {"serviceUrl": url} if url else {}
    body |= {"brokerServiceUrl": broker_url} if broker_url else {}
    rest.post(path, body)
    return f"Updated cluster {cluster}"


@rest_command(clusters)
@cluster_argument
def delete(rest: Admin, cluster: str) -> str:
    """Remove a cluster."""
    rest.delete(f"/admin/v2/clusters/{segment(cluster)}")
    return f"Deleted cluster {cluster}"
