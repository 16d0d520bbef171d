"""``magnetar namespaces``: create, inspect and change namespaces and their policies."""

from __future__ import annotations

import click

from ...config.sizes import MIB
from ..failure import Group
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import Admin, Call, Names, Setting, Subject, as_fields, rest_command, segment
from ..topics.level_policies import NAMESPACE_POLICIES
from ..topics.permissions import permission_commands
from ..topics.policies import (
    STRATEGIES,
    disable_option,
    enable_option,
    on_or_off,
    parse_bytes,
    threshold_option,
    when,
    whole_megabytes,
)
from ..topics.policy_commands import policy_commands
from ..topics.subscriptions import parse_duration
from ..topics.topics import namespace_path

namespace_argument = click.argument("namespace")
GETTERS = {
    "get-retention": "retention",
    "get-deduplication": "deduplication",
    "get-compaction-threshold": "compactionThreshold",
    "get-schema-compatibility-strategy": "schemaCompatibilityStrategy",
    "get-schema-validation-enforce": "schemaValidationEnforced",
    "get-is-allow-auto-update-schema": "isAllowAutoUpdateSchema",
    "get-encryption-required": "encryptionRequired",
}
"""Commands that show a policy."""


@click.group(cls=Group, not_here=PULSAR_COMMANDS["namespaces"])
def namespaces() -> None:
    """Create, inspect and change namespaces; NAMESPACE is tenant/namespace."""


def path_of(namespace: str) -> str:
    """Return the REST path of a namespace."""
    return f"/admin/v2/namespaces/{namespace_path(namespace)}"


def _getter(name: str, policy: str) -> Call:
    text = f"Show the {policy} policy of a namespace, if set."
    return Call(name, "GET", f"/{policy}", text, show=Setting)


Subject(
    lambda tenant: f"/admin/v2/namespaces/{segment(tenant)}", [click.argument("tenant", default="public")]
).commands(
    namespaces,
    Call("list", "GET", "", "List the namespaces of a tenant.", show=Names, empty="no namespaces in {tenant}"),
)
Subject(lambda namespace: f"/admin/v2/persistent/{namespace_path(namespace)}", [namespace_argument]).commands(
    namespaces,
    Call(
        "topics", "GET", "", "List the persistent topics of a namespace.", show=Names, empty="no topics in {namespace}"
    ),
)
Subject(path_of, [namespace_argument]).commands(
    namespaces,
    Call(
        "delete", "DELETE", "", "Delete a namespace.", "Deleted namespace {namespace}",
        flags=[click.Option(["-f", "--force"], is_flag=True, help="Also delete the topics of the namespace.")],
    ),
    Call("policies", "GET", "", "Show all policies of a namespace.", show=as_fields),
    *(_getter(*names) for names in GETTERS.items()),
    Call(
        "remove-deduplication", "DELETE", "/deduplication",
        "Remove the namespace's deduplication setting; the broker's default applies.",
        "Deduplication in {namespace} now follows the broker's default",
    ),
    Call(
        "remove-compaction-threshold", "DELETE", "/compactionThreshold",
        "Remove the namespace's compaction threshold; the broker's default applies.",
        "Compaction in {namespace} now follows the broker's default",
    ),
    Call(
        "remove-retention", "DELETE", "/retention",
        "Remove the namespace's retention; the broker's default applies.",
        "Removed the retention of {namespace}",
    ),
)  # fmt: skip


for _command in (
    *policy_commands(NAMESPACE_POLICIES, "namespace", path_of),
    *permission_commands("namespace", path_of),
):
    namespaces.add_command(_command)
Subject(path_of, [namespace_argument]).commands(
    namespaces,
    Call(
        "subscription-permission", "GET", "/permissions/subscription", "Show which roles may use which subscriptions.",
        show=as_fields,
    ),
)  # fmt: skip
_subscription_option = click.option(
    "-s", "--subscription", required=True, metavar="NAME", help="Name of the subscription."
)


@rest_command(namespaces, "grant-subscription-permission")
@namespace_argument
@_subscription_option
@click.option("-rs", "--roles", required=True, metavar="ROLE[,ROLE]", help="Roles that may use it.")
def grant_subscription_permission(rest: Admin, namespace: str, subscription: str, roles: str) -> str:
    """Allow roles to use a subscription."""
    path = f"{path_of(namespace)}/permissions/subscription/{segment(subscription)}"
    rest.post(path, [role.strip() for role in roles.split(",")])
    return f"Allowed {roles} to use subscription {subscription} in {namespace}"


@rest_command(namespaces, "revoke-subscription-permission")
@namespace_argument
@_subscription_option
@click.option("-r", "--role", required=True, help="Role that may no longer use it.")
def revoke_subscription_permission(rest: Admin, namespace: str, subscription: str, role: str) -> str:
    """Revoke a role's permission to use a subscription."""
    rest.delete(f"{path_of(namespace)}/permissions/{segment(subscription)}/{segment(role)}")
    return f"{role} may no longer use subscription {subscription} in {namespace}"


@rest_command(namespaces)
@namespace_argument
@click.option("-c", "--clusters", help="Replication clusters, separated by commas.")
def create(rest: Admin, namespace: str, clusters: str | None) -> str:
    """Create a namespace."""
    body = {"replication_clusters": clusters.split(",")} if clusters else None
    rest.put(path_of(namespace), body)
    return f"Created namespace {namespace}"


@rest_command(namespaces, "set-deduplication")
@namespace_argument
@enable_option
@disable_option
def set_deduplication(rest: Admin, namespace: str, enable: bool, disable: bool) -> str:
    """Set the default deduplication setting of the namespace's topics."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{path_of(namespace)}/deduplication", is_on)
    return f"Deduplication in {namespace} is {'on' if is_on else 'off'}"


@rest_command(namespaces, "set-compaction-threshold")
@namespace_argument
@threshold_option
def set_compaction_threshold(rest: Admin, namespace: str, threshold: str) -> str:
    """Set the default compaction threshold of the namespace's topics."""
    size = parse_bytes(threshold)
    rest.put(f"{path_of(namespace)}/compactionThreshold", size)
    return f"Topics in {namespace} are compacted {when(size)}"


@rest_command(namespaces, "set-schema-compatibility-strategy")
@namespace_argument
@click.option(
    "-c",
    "--compatibility",
    required=True,
    type=click.Choice(STRATEGIES),
    help="Compatibility strategy (see docs/broker.md).",
)
def set_schema_strategy(rest: Admin, namespace: str, compatibility: str) -> str:
    """Set the schema compatibility strategy of the namespace's topics."""
    rest.put(f"{path_of(namespace)}/schemaCompatibilityStrategy", compatibility)
    return f"The schema compatibility strategy of {namespace} is {compatibility}"


@rest_command(namespaces, "set-schema-validation-enforce")
@namespace_argument
@enable_option
@disable_option
def set_schema_validation(rest: Admin, namespace: str, enable: bool, disable: bool) -> str:
    """Set whether producers without a schema are rejected on topics with one."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{path_of(namespace)}/schemaValidationEnforced", is_on)
    return f"Schema validation in {namespace} is {'enforced' if is_on else 'not enforced'}"


@rest_command(namespaces, "set-is-allow-auto-update-schema")
@namespace_argument
@enable_option
@disable_option
def set_schema_updates(rest: Admin, namespace: str, enable: bool, disable: bool) -> str:
    """Set whether producers and consumers may register new schemas."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{path_of(namespace)}/isAllowAutoUpdateSchema", is_on)
    return f"New client schemas in {namespace} are {'accepted' if is_on else 'rejected'}"


@rest_command(namespaces, "set-encryption-required")
@namespace_argument
@enable_option
@disable_option
def set_encryption(rest: Admin, namespace: str, enable: bool, disable: bool) -> str:
    """Set whether unencrypted messages are rejected."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{path_of(namespace)}/encryptionRequired", is_on)
    return f"Messages in {namespace} {'must' if is_on else 'need not'} be encrypted"


@rest_command(namespaces, "set-retention")
@namespace_argument
@click.option(
    "-t",
    "--time",
    "time_",
    required=True,
    metavar="DURATION",
    help="Duration such as 3h; 0: no retention, -1: forever.",
)
@click.option(
    "-s", "--size", required=True, metavar="SIZE", help="Size such as 500M or 10G; 0: no retention, -1: unlimited."
)
def set_retention(rest: Admin, namespace: str, time_: str, size: str) -> str:
    """Set how long acknowledged messages are retained."""
    minutes = -1 if time_ == "-1" else -(-parse_duration(time_) // 60)
    body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": parse_megabytes(size)}
    rest.post(f"{path_of(namespace)}/retention", body)
    return f"Set the retention of {namespace}"


def parse_megabytes(text: str) -> int:
    """Parse a size in megabytes; a number without a unit means megabytes, -1 means unlimited.

    Raises:
        click.BadParameter: the value is not a size, or not a whole number of megabytes.
    """
    return whole_megabytes(text, bare_unit=MIB)
