"""``magnetar topics``: create, inspect and change topics and the subscriptions on them."""

from __future__ import annotations

from typing import Any

import click

from ...wire.topic_name import TopicName, parse_topic_name
from ..failure import Failure
from ..lazy import Group
from ..output import Table, output_option, show_done, show_list, show_record
from ..rest import Admin, segment
from ..settings import current
from . import details as topic_details
from . import policies as topic_policies
from . import subscription_commands as topic_actions

DOMAINS = ("persistent", "non-persistent")


NOT_HERE = (
    "analyze-backlog clear-all-delayed-messages create-shadow-topic"
    " get-backlog-quotas get-message-id get-message-ttl get-retention"
    " grant-permission offload offload-status permissions remove-backlog-quota remove-message-ttl remove-retention"
    " revoke-permission set-backlog-quota set-dispatch-rate"
    " set-max-consumers set-max-producers set-message-ttl set-publish-rate set-replicated-subscription-status"
    " set-retention set-schema-compatibility-strategy update-properties update-subscription-properties"
)
"""Commands of Pulsar that this version refuses by name."""


@click.group(cls=Group, not_here=NOT_HERE.split())
def topics() -> None:
    """Create, inspect and change topics and their subscriptions.

    TOPIC is complete (persistent://tenant/namespace/topic) or short: topic, tenant/namespace/topic.
    """


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


def path_of(topic: str) -> str:
    """Return the REST path of a topic given in any form."""
    return f"/admin/v2/{parse_topic_name(topic).rest_path}"


partitions_option = click.option("-p", "--partitions", type=int, required=True, help="Number of partitions.")
force_option = click.option("-f", "--force", is_flag=True, help="Disconnect producers and consumers.")
topic_argument = click.argument("topic")


@topics.command()
@topic_argument
@output_option
@click.pass_context
def create(ctx: click.Context, topic: str) -> None:
    """Create a topic without partitions."""
    with admin(ctx) as rest:
        rest.put(path_of(topic))
    show_done(ctx, f"Created {parse_topic_name(topic)}")


@topics.command("create-partitioned-topic")
@topic_argument
@partitions_option
@output_option
@click.pass_context
def create_partitioned_topic(ctx: click.Context, topic: str, partitions: int) -> None:
    """Create a partitioned topic."""
    with admin(ctx) as rest:
        rest.put(f"{path_of(topic)}/partitions", partitions)
    show_done(ctx, f"Created {parse_topic_name(topic)} with {partitions} partitions")


@topics.command("update-partitioned-topic")
@topic_argument
@partitions_option
@output_option
@click.pass_context
def update_partitioned_topic(ctx: click.Context, topic: str, partitions: int) -> None:
    """Raise the number of partitions."""
    with admin(ctx) as rest:
        rest.post(f"{path_of(topic)}/partitions", partitions)
    show_done(ctx, f"{parse_topic_name(topic)} has {partitions} partitions now")


@topics.command("get-partitioned-topic-metadata")
@topic_argument
@output_option
@click.pass_context
def get_partitioned_topic_metadata(ctx: click.Context, topic: str) -> None:
    """Show the number of partitions; 0 for a topic without partitions."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get(f"{path_of(topic)}/partitions"))


@topics.command("create-missed-partitions")
@topic_argument
@output_option
@click.pass_context
def create_missed_partitions(ctx: click.Context, topic: str) -> None:
    """Create the missing partitions of a partitioned topic."""
    with admin(ctx) as rest:
        rest.post(f"{path_of(topic)}/createMissedPartitions")
    show_done(ctx, "Created the missing partitions")


@topics.command()
@topic_argument
@force_option
@output_option
@click.pass_context
def delete(ctx: click.Context, topic: str, force: bool) -> None:
    """Delete a topic without partitions, or one partition, with its subscriptions."""
    with admin(ctx) as rest:
        rest.delete(path_of(topic), force=force)
    show_done(ctx, f"Deleted {parse_topic_name(topic)}")


@topics.command("delete-partitioned-topic")
@topic_argument
@force_option
@output_option
@click.pass_context
def delete_partitioned_topic(ctx: click.Context, topic: str, force: bool) -> None:
    """Delete a partitioned topic with all its partitions."""
    with admin(ctx) as rest:
        rest.delete(f"{path_of(topic)}/partitions", force=force)
    show_done(ctx, f"Deleted {parse_topic_name(topic)}")


def namespace_path(namespace: str) -> str:
    """Return ``tenant/namespace`` as a REST path.

    Raises:
        Failure: the text does not have these two parts.
    """
    parts = namespace.split("/")
    if len(parts) != 2 or not all(parts):
        raise Failure(f"namespace {namespace!r} must be tenant/namespace, such as public/default")
    return f"{segment(parts[0])}/{segment(parts[1])}"


namespace_argument = click.argument("namespace", default="public/default")
domain_option = click.option(
    "-td", "--topic-domain", type=click.Choice(DOMAINS), default="persistent", show_default=True, help="Kind of topic."
)
system_option = click.option("-ist", "--include-system-topic", is_flag=True, help="Show system topics too.")


@topics.command("list")
@namespace_argument
@domain_option
@system_option
@output_option
@click.pass_context
def list_topics(ctx: click.Context, namespace: str, topic_domain: str, include_system_topic: bool) -> None:
    """List the topics of a namespace, partitions one by one."""
    with admin(ctx) as rest:
        path = f"/admin/v2/{topic_domain}/{namespace_path(namespace)}"
        show_list(ctx, rest.get(path, includeSystemTopic=include_system_topic or None))


@topics.command("list-partitioned-topics")
@namespace_argument
@domain_option
@output_option
@click.pass_context
def list_partitioned_topics(ctx: click.Context, namespace: str, topic_domain: str) -> None:
    """List the partitioned topics of a namespace."""
    with admin(ctx) as rest:
        show_list(ctx, rest.get(f"/admin/v2/{topic_domain}/{namespace_path(namespace)}/partitioned"))


def stats_table(stats: dict[str, Any]) -> Table:
    """Return a topic's statistics as tables: the topic, then its subscriptions."""
    rows: list[tuple[object, ...]] = [
        ("topic", "", stats["msgInCounter"], stats["msgOutCounter"], "", len(stats["publishers"]), "")
    ]
    for name, found in sorted(stats["subscriptions"].items()):
        active = found.get("activeConsumerName") or ""
        rows.append(
            (
                name,
                found.get("type", ""),
                "",
                found["msgOutCounter"],
                found["msgBacklog"],
                len(found["consumers"]),
                active,
            )
        )
    columns = ("", "type", "messages in", "messages out", "backlog, entries", "connected", "active consumer")
    return Table(
        columns, rows, f"{stats['storageSize']:,} bytes stored, {stats['backlogSize']:,} of them to be acknowledged"
    )


@topics.command()
@topic_argument
@click.option("-gpb", "--get-precise-backlog", is_flag=True, help="Count the backlog from what is not acknowledged.")
@click.option("-sbs", "--get-subscription-backlog-size", is_flag=True, help="Fill in backlogSize.")
@click.option("-etb", "--get-earliest-time-in-backlog", is_flag=True, help="Find the oldest message of each backlog.")
@output_option
@click.pass_context
def stats(
    ctx: click.Context,
    topic: str,
    get_precise_backlog: bool,
    get_subscription_backlog_size: bool,
    get_earliest_time_in_backlog: bool,
) -> None:
    """Show the counters of a topic, its producers, subscriptions and consumers."""
    with admin(ctx) as rest:
        record = rest.get(
            f"{path_of(topic)}/stats",
            getPreciseBacklog=get_precise_backlog or None,
            subscriptionBacklogSize=get_subscription_backlog_size or None,
            getEarliestTimeInBacklog=get_earliest_time_in_backlog or None,
        )
        show_record(ctx, record, stats_table)


@topics.command("partitioned-stats")
@topic_argument
@click.option("--per-partition", is_flag=True, help="Show every partition too.")
@output_option
@click.pass_context
def partitioned_stats(ctx: click.Context, topic: str, per_partition: bool) -> None:
    """Show the counters of a partitioned topic."""
    with admin(ctx) as rest:
        record = rest.get(f"{path_of(topic)}/partitioned-stats", perPartition=per_partition)
        show_record(ctx, record, None if per_partition else stats_table)


@topics.command("stats-internal")
@topic_argument
@output_option
@click.pass_context
def stats_internal(ctx: click.Context, topic: str) -> None:
    """Show the ledgers and cursors of a topic."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get(f"{path_of(topic)}/internalStats"))


@topics.command("last-message-id")
@topic_argument
@output_option
@click.pass_context
def last_message_id(ctx: click.Context, topic: str) -> None:
    """Show the id of the newest message."""
    with admin(ctx) as rest:
        show_record(ctx, rest.get(f"{path_of(topic)}/lastMessageId"))


@topics.command()
@topic_argument
@output_option
@click.pass_context
def terminate(ctx: click.Context, topic: str) -> None:
    """Terminate a topic: no more messages; show the id of its last one."""
    with admin(ctx) as rest:
        show_record(ctx, rest.post(f"{path_of(topic)}/terminate"))


@topics.command()
@topic_argument
@output_option
@click.pass_context
def unload(ctx: click.Context, topic: str) -> None:
    """Unload a topic; clients reconnect at once."""
    with admin(ctx) as rest:
        rest.put(f"{path_of(topic)}/unload")
    show_done(ctx, f"Unloaded {parse_topic_name(topic)}")


@topics.command()
@topic_argument
@output_option
@click.pass_context
def lookup(ctx: click.Context, topic: str) -> None:
    """Show which broker serves a topic."""
    name: TopicName = parse_topic_name(topic)
    with admin(ctx) as rest:
        record = rest.get(f"/lookup/v2/topic/{name.rest_path}")
    if current(ctx).output == "json":
        show_record(ctx, record)
    else:
        click.echo(record["brokerUrl"])


for _command in (*topic_actions.COMMANDS, *topic_details.COMMANDS, *topic_policies.COMMANDS):
    topics.add_command(_command)
