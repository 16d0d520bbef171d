"""``magnetar brokers``: health and version of the broker."""

from __future__ import annotations

import click

from ..failure import Group
from ..rest import Admin, Call, Line, Names, Subject, rest_command


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
