"""``magnetar namespaces``: create, inspect and change namespaces and their policies."""

from __future__ import annotations

from typing import Any

import click

from ..lazy import Group
from ..output import key_value_table, output_option, show_done, show_list, show_record
from ..rest import Admin, segment
from ..settings import current
from ..topics.policies import disable_option, enable_option, on_or_off, parse_bytes, threshold_option, when
from ..topics.subscription_commands import parse_duration
from ..topics.topics import namespace_path

namespace_argument = click.argument("namespace")


@click.group(cls=Group)
def namespaces() -> None:
    """Create, inspect and change namespaces; NAMESPACE is tenant/namespace."""


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


def path_of(namespace: str) -> str:
    """Return the REST path of a namespace."""
    return f"/admin/v2/namespaces/{namespace_path(namespace)}"


@namespaces.command("list")
@click.argument("tenant", default="public")
@output_option
@click.pass_context
def list_namespaces(ctx: click.Context, tenant: str) -> None:
    """List the namespaces of a tenant."""
    with admin(ctx) as rest:
        show_list(ctx, rest.get(f"/admin/v2/namespaces/{segment(tenant)}"))


@namespaces.command("topics")
@namespace_argument
@output_option
@click.pass_context
def topics_of_namespace(ctx: click.Context, namespace: str) -> None:
    """List the persistent topics of a namespace."""
    with admin(ctx) as rest:
        show_list(ctx, rest.get(f"/admin/v2/persistent/{namespace_path(namespace)}"))


@namespaces.command()
@namespace_argument
@click.option("-c", "--clusters", help="Replication clusters, separated by commas.")
@output_option
@click.pass_context
def create(ctx: click.Context, namespace: str, clusters: str | None) -> None:
    """Create a namespace."""
    body = {"replication_clusters": clusters.split(",")} if clusters else None
    with admin(ctx) as rest:
        rest.put(path_of(namespace), body)
    show_done(ctx, f"Created namespace {namespace}")


@namespaces.command()
@namespace_argument
@click.option("-f", "--force", is_flag=True, help="Delete the topics of the namespace too.")
@output_option
@click.pass_context
def delete(ctx: click.Context, namespace: str, force: bool) -> None:
    """Delete a namespace."""
    with admin(ctx) as rest:
        rest.delete(path_of(namespace), force=force or None)
    show_done(ctx, f"Deleted namespace {namespace}")


@namespaces.command()
@namespace_argument
@output_option
@click.pass_context
def policies(ctx: click.Context, namespace: str) -> None:
    """Show all policies of a namespace."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get(path_of(namespace)), key_value_table)


def _add_getter(command_name: str, policy: str) -> None:
    @namespaces.command(command_name, help=f"Show the policy {policy} of a namespace; nothing if it is not set.")
    @namespace_argument
    @output_option
    @click.pass_context
    def getter(ctx: click.Context, namespace: str) -> None:
        with admin(ctx) as rest:
            value: Any = rest.get(f"{path_of(namespace)}/{policy}")
        if value is not None or current(ctx).output == "json":
            show_record(ctx, value)


_add_getter("get-retention", "retention")
_add_getter("get-message-ttl", "messageTTL")
_add_getter("get-deduplication", "deduplication")
_add_getter("get-compaction-threshold", "compactionThreshold")


@namespaces.command("set-deduplication")
@namespace_argument
@enable_option
@disable_option
@output_option
@click.pass_context
def set_deduplication(ctx: click.Context, namespace: str, enable: bool, disable: bool) -> None:
    """Set the default for deduplication of the namespace's topics."""
    is_on = on_or_off(enable, disable)
    with admin(ctx) as rest:
        rest.post(f"{path_of(namespace)}/deduplication", is_on)
    show_done(ctx, f"Deduplication in {namespace} is {'on' if is_on else 'off'}")


@namespaces.command("remove-deduplication")
@namespace_argument
@output_option
@click.pass_context
def remove_deduplication(ctx: click.Context, namespace: str) -> None:
    """Remove the namespace's setting for deduplication; the broker's default applies."""
    with admin(ctx) as rest:
        rest.delete(f"{path_of(namespace)}/deduplication")
    show_done(ctx, f"Deduplication in {namespace} is up to the broker")


@namespaces.command("set-compaction-threshold")
@namespace_argument
@threshold_option
@output_option
@click.pass_context
def set_compaction_threshold(ctx: click.Context, namespace: str, threshold: str) -> None:
    """Set the default compaction threshold of the namespace's topics."""
    size = parse_bytes(threshold)
    with admin(ctx) as rest:
        rest.put(f"{path_of(namespace)}/compactionThreshold", size)
    show_done(ctx, f"Topics in {namespace} are compacted {when(size)}")


@namespaces.command("remove-compaction-threshold")
@namespace_argument
@output_option
@click.pass_context
def remove_compaction_threshold(ctx: click.Context, namespace: str) -> None:
    """Remove the namespace's compaction threshold; the broker's default applies."""
    with admin(ctx) as rest:
        rest.delete(f"{path_of(namespace)}/compactionThreshold")
    show_done(ctx, f"The broker says when topics in {namespace} are compacted")


@namespaces.command("set-retention")
@namespace_argument
@click.option("-t", "--time", "time_", required=True, metavar="DURATION", help="Such as 3h; 0 none, -1 for ever.")
@click.option("-s", "--size", required=True, metavar="SIZE", help="Such as 500M or 10G; 0 none, -1 without limit.")
@output_option
@click.pass_context
def set_retention(ctx: click.Context, namespace: str, time_: str, size: str) -> None:
    """Set how long acknowledged messages are retained."""
    minutes = -1 if time_ == "-1" else -(-parse_duration(time_) // 60)
    body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": parse_megabytes(size)}
    with admin(ctx) as rest:
        rest.post(f"{path_of(namespace)}/retention", body)
    show_done(ctx, f"Set the retention of {namespace}")


@namespaces.command("remove-retention")
@namespace_argument
@output_option
@click.pass_context
def remove_retention(ctx: click.Context, namespace: str) -> None:
    """Remove the namespace's retention; the broker's default applies."""
    with admin(ctx) as rest:
        rest.delete(f"{path_of(namespace)}/retention")
    show_done(ctx, f"Removed the retention of {namespace}")


def parse_megabytes(text: str) -> int:
    """Return the whole megabytes of a text such as ``500M`` or ``10G``; a bare number counts megabytes.

    Raises:
        click.BadParameter: no such text.
    """
    factors = {"m": 1, "g": 1024, "t": 1024 * 1024}
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "m")
    if unit not in factors or not number.lstrip("-").isdigit():
        raise click.BadParameter(f"size {text!r} must be a number with M, G or T, such as 500M, or -1")
    return int(number) * factors[unit]
