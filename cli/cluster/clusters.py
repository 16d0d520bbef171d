"""``magnetar clusters`` and ``brokers``: the clusters that tenants may use; broker settings, health and version."""

from __future__ import annotations

import click

from ..failure import Group
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import Admin, Call, Line, Names, Subject, as_fields, rest_command, segment

cluster_argument = click.argument("cluster")
url_option = click.option("--url", help="REST address of the cluster.")
broker_url_option = click.option("--broker-url", help="Broker address of the cluster.")


@click.group(cls=Group, not_here=PULSAR_COMMANDS["clusters"])
def clusters() -> None:
    """Create, inspect and change clusters."""


def path_of(cluster: str) -> str:
    """Return the REST path of a cluster."""
    return f"/admin/v2/clusters/{segment(cluster)}"


Subject(lambda: "/admin/v2/clusters").commands(
    clusters, Call("list", "GET", "", "List the clusters.", show=Names, empty="no clusters")
)
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
    """Change a cluster's addresses; omitted options keep their values."""
    body = rest.get(path_of(cluster))
    body |= {"serviceUrl": url} if url else {}
    body |= {"brokerServiceUrl": broker_url} if broker_url else {}
    rest.post(path_of(cluster), body)
    return f"Updated cluster {cluster}"


@click.group(cls=Group, not_here=PULSAR_COMMANDS["brokers"])
def brokers() -> None:
    """Inspect the brokers of the cluster."""


@rest_command(brokers, "list")
@click.argument("cluster", default="")
def list_brokers(rest: Admin, cluster: str) -> Names:
    """List the brokers."""
    return Names(rest.get(f"/admin/v2/brokers/{cluster}".rstrip("/")), "no brokers")


Subject(lambda: "/admin/v2/brokers/configuration").commands(
    brokers,
    Call(
        "list-dynamic-config", "GET", "", "List the settings that can be changed while the broker runs.", show=Names
    ),
    Call("get-all-dynamic-config", "GET", "/values", "Show the settings changed at runtime.", show=as_fields),
    Call("get-runtime-config", "GET", "/runtime", "Show the effective settings.", show=as_fields),
)  # fmt: skip
config_option = click.option(
    "-c", "--config", required=True, metavar="NAME", help="Name of the setting in broker.conf."
)


@rest_command(brokers, "update-dynamic-config")
@config_option
@click.option("-v", "--value", required=True, help="New value.")
def update_dynamic_config(rest: Admin, config: str, value: str) -> str:
    """Change a setting of all brokers while they run; it survives restarts."""
    rest.post(f"/admin/v2/brokers/configuration/{segment(config)}/{segment(value)}")
    return f"Set {config} to {value}"


@rest_command(brokers, "delete-dynamic-config")
@config_option
def delete_dynamic_config(rest: Admin, config: str) -> str:
    """Reset a setting to its value in broker.conf."""
    rest.delete(f"/admin/v2/brokers/configuration/{segment(config)}")
    return f"Reset {config} to the value each broker was started with"


Subject(lambda: "/admin/v2/brokers").commands(
    brokers,
    Call("get-internal-config", "GET", "/internal-configuration", "Show where metadata is stored.", show=as_fields),
    Call(
        "backlog-quota-check", "GET", "/backlog-quota-check", "Check the backlog quotas of all topics now.",
        "Checked the backlog quotas of all topics",
    ),
)  # fmt: skip
Subject(lambda: "/admin/v2/brokers/leaderBroker").commands(
    brokers, Call("leader-broker", "GET", "", "Show the leader broker.")
)


def _add_text(name: str, path: str, summary: str) -> None:
    @rest_command(brokers, name, help=summary)
    def command(rest: Admin) -> Line:
        text = rest.raw("GET", f"/admin/v2/brokers/{path}").text
        return Line(text, text)


_add_text("healthcheck", "health", "Check the broker's health by writing a message and reading it back.")
_add_text("version", "version", "Show the broker's version.")
