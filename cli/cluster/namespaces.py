"""``magnetar namespaces``: create, inspect and change namespaces and their policies."""

from __future__ import annotations

import click

from ..lazy import Group
from ..output import key_value_table
from ..rest import Admin, Names, Record, Setting, rest_command, segment
from ..topics.policies import disable_option, enable_option, on_or_off, parse_bytes, threshold_option, when
from ..topics.subscription_commands import parse_duration
from ..topics.topics import namespace_path

namespace_argument = click.argument("namespace")


@click.group(cls=Group)
def namespaces() -> None:
    """Create, inspect and change namespaces; NAMESPACE is tenant/namespace."""


def path_of(namespace: str) -> str:
    """Return the REST path of a namespace."""
    return f"/admin/v2/namespaces/{namespace_path(namespace)}"


@rest_command(namespaces, "list")
@click.argument("tenant", default="public")
def list_namespaces(rest: Admin, tenant: str) -> Names:
    """List the namespaces of a tenant."""
    return Names(rest.get(f"/admin/v2/namespaces/{segment(tenant)}"))


@rest_command(namespaces, "topics")
@namespace_argument
def topics_of_namespace(rest: Admin, namespace: str) -> Names:
    """List the persistent topics of a namespace."""
    return Names(rest.get(f"/admin/v2/persistent/{namespace_path(namespace)}"))


@rest_command(namespaces)
@namespace_argument
@click.option("-c", "--clusters", help="Replication clusters, separated by commas.")
def create(rest: Admin, namespace: str, clusters: str | None) -> str:
    """Create a namespace."""
    body = {"replication_clusters": clusters.split(",")} if clusters else None
    rest.put(path_of(namespace), body)
    return f"Created namespace {namespace}"


@rest_command(namespaces)
@namespace_argument
@click.option("-f", "--force", is_flag=True, help="Delete the topics of the namespace too.")
def delete(rest: Admin, namespace: str, force: bool) -> str:
    """Delete a namespace."""
    rest.delete(path_of(namespace), force=force or None)
    return f"Deleted namespace {namespace}"


@rest_command(namespaces)
@namespace_argument
def policies(rest: Admin, namespace: str) -> Record:
    """Show all policies of a namespace."""
    return Record(rest.get(path_of(namespace)), key_value_table)


def _add_getter(command_name: str, policy: str) -> None:
    @rest_command(namespaces, command_name, help=f"Show the policy {policy} of a namespace; nothing if it is not set.")
    @namespace_argument
    def getter(rest: Admin, namespace: str) -> Setting:
        return Setting(rest.get(f"{path_of(namespace)}/{policy}"))


_add_getter("get-retention", "retention")
_add_getter("get-message-ttl", "messageTTL")
_add_getter("get-deduplication", "deduplication")
_add_getter("get-compaction-threshold", "compactionThreshold")


@rest_command(namespaces, "set-deduplication")
@namespace_argument
@enable_option
@disable_option
def set_deduplication(rest: Admin, namespace: str, enable: bool, disable: bool) -> str:
    """Set the default for deduplication of the namespace's topics."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{path_of(namespace)}/deduplication", is_on)
    return f"Deduplication in {namespace} is {'on' if is_on else 'off'}"


@rest_command(namespaces, "remove-deduplication")
@namespace_argument
def remove_deduplication(rest: Admin, namespace: str) -> str:
    """Remove the namespace's setting for deduplication; the broker's default applies."""
    rest.delete(f"{path_of(namespace)}/deduplication")
    return f"Deduplication in {namespace} is up to the broker"


@rest_command(namespaces, "set-compaction-threshold")
@namespace_argument
@threshold_option
def set_compaction_threshold(rest: Admin, namespace: str, threshold: str) -> str:
    """Set the default compaction threshold of the namespace's topics."""
    size = parse_bytes(threshold)
    rest.put(f"{path_of(namespace)}/compactionThreshold", size)
    return f"Topics in {namespace} are compacted {when(size)}"


@rest_command(namespaces, "remove-compaction-threshold")
@namespace_argument
def remove_compaction_threshold(rest: Admin, namespace: str) -> str:
    """Remove the namespace's compaction threshold; the broker's default applies."""
    rest.delete(f"{path_of(namespace)}/compactionThreshold")
    return f"The broker says when topics in {namespace} are compacted"


@rest_command(namespaces, "set-retention")
@namespace_argument
@click.option("-t", "--time", "time_", required=True, metavar="DURATION", help="Such as 3h; 0 none, -1 for ever.")
@click.option("-s", "--size", required=True, metavar="SIZE", help="Such as 500M or 10G; 0 none, -1 without limit.")
def set_retention(rest: Admin, namespace: str, time_: str, size: str) -> str:
    """Set how long acknowledged messages are retained."""
    minutes = -1 if time_ == "-1" else -(-parse_duration(time_) // 60)
    body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": parse_megabytes(size)}
    rest.post(f"{path_of(namespace)}/retention", body)
    return f"Set the retention of {namespace}"


@rest_command(namespaces, "remove-retention")
@namespace_argument
def remove_retention(rest: Admin, namespace: str) -> str:
    """Remove the namespace's retention; the broker's default applies."""
    rest.delete(f"{path_of(namespace)}/retention")
    return f"Removed the retention of {namespace}"


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
