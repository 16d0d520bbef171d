"""``magnetar brokers``: health and version of the broker."""

from __future__ import annotations

import click

from ..lazy import Group
from ..output import output_option, print_json, show_list, show_record
from ..rest import Admin
from ..settings import current


@click.group(cls=Group)
def brokers() -> None:
    """Inspect the brokers of the cluster."""


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


@brokers.command("list")
@click.argument("cluster", default="")
@output_option
@click.pass_context
def list_brokers(ctx: click.Context, cluster: str) -> None:
    """List the brokers."""
    with admin(ctx) as rest:
        show_list(ctx, rest.get(f"/admin/v2/brokers/{cluster}".rstrip("/")))


@brokers.command("leader-broker")
@output_option
@click.pass_context
def leader_broker(ctx: click.Context) -> None:
    """Show the leader broker."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get("/admin/v2/brokers/leaderBroker"))


def _add_text(name: str, path: str, summary: str) -> None:
    @brokers.command(name, help=summary)
    @output_option
    @click.pass_context
    def command(ctx: click.Context) -> None:
        with admin(ctx) as rest:
            text = rest.raw("GET", f"/admin/v2/brokers/{path}").text
        if current(ctx).output == "json":
            print_json(text)
        else:
            click.echo(text)


_add_text("healthcheck", "health", "Write a message to a topic of the broker's own and read it back.")
_add_text("version", "version", "Show the broker's version.")
