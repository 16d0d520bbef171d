"""``magnetar clusters`` and ``brokers``: the clusters that tenants may use, health and version of the broker."""

from __future__ import annotations

import click

from ..failure import Group
from ..rest import Admin, Call, Line, Names, Subject, as_fields, rest_command, segment

cluster_argument = click.argument("cluster")
url_option = click.option("--url", help="REST address of the cluster.")
broker_url_option = click.option("--broker-url", help="Broker address of the cluster.")


@click.group(cls=Group)
def clusters() -> None:
    """Create, inspect and change clusters."""


def path_of(cluster: str) -> str:
    """Return the REST path of a cluster."""
    return f"/admin/v2/clusters/{segment(cluster)}"


Subject(lambda: "/admin/v2/clusters").commands(clusters, Call("list", "GET", "", "List the clusters.", show=Names))
Subject(path_of, [cluster_argument]).commands(
    clusters,
    Call("get", "GET", "", "Show a cluster's addresses.", show=as_fields),
    Call("delete", "DELETE", "", "Remove a cluster.", "Deleted cluster {cluster}"),
)


@rest_command(clusters)
@cluster_argument
@url_option
@broker_url_option
def create(rest: Admin, cluster: str, url: str | None, broker_url: str | None) -> str:
    """Register a cluster."""
    body = {"serviceUrl": url, "brokerServiceUrl": broker_url}
    rest.put(path_of(cluster), {key: value for key, value in body.items() if value})
    return f"Created cluster {cluster}"


@rest_command(clusters)
@cluster_argument
@url_option
@broker_url_option
def update(rest: Admin, cluster: str, url: str | None, broker_url: str | None) -> str:
    """Change a cluster's addresses; options that are not given stay unchanged."""
    body = rest.get(path_of(cluster))
    body |= {"serviceUrl": url} if url else {}
    body |= {"brokerServiceUrl": broker_url} if broker_url else {}
    rest.post(path_of(cluster), body)
    return f"Updated cluster {cluster}"


@click.group(cls=Group)
def brokers() -> None:
    """Inspect the brokers of the cluster."""


@rest_command(brokers, "list")
@click.argument("cluster", default="")
def list_brokers(rest: Admin, cluster: str) -> Names:
    """List the brokers."""
    return Names(rest.get(f"/admin/v2/brokers/{cluster}".rstrip("/")))


Subject(lambda: "/admin/v2/brokers/leaderBroker").commands(
    brokers, Call("leader-broker", "GET", "", "Show the leader broker.")
)


def _add_text(name: str, path: str, summary: str) -> None:
    @rest_command(brokers, name, help=summary)
    def command(rest: Admin) -> Line:
        text = rest.raw("GET", f"/admin/v2/brokers/{path}").text
        return Line(text, text)


_add_text("healthcheck", "health", "Write a message to a topic of the broker's own and read it back.")
_add_text("version", "version", "Show the broker's version.")
