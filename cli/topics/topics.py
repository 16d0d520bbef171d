"""``magnetar topics``: create, inspect and change topics and the subscriptions on them."""

from __future__ import annotations

from typing import Any

import click

from ...wire.topic_name import parse_topic_name
from ..failure import Failure
from ..lazy import Group
from ..output import Table
from ..rest import Admin, Line, Names, Record, rest_command, segment
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


def path_of(topic: str) -> str:
    """Return the REST path of a topic given in any form."""
    return f"/admin/v2/{parse_topic_name(topic).rest_path}"


partitions_option = click.option("-p", "--partitions", type=int, required=True, help="Number of partitions.")
force_option = click.option("-f", "--force", is_flag=True, help="Disconnect producers and consumers.")
topic_argument = click.argument("topic")


@rest_command(topics)
@topic_argument
def create(rest: Admin, topic: str) -> str:
    """Create a topic without partitions."""
    rest.put(path_of(topic))
    return f"Created {parse_topic_name(topic)}"


@rest_command(topics, "create-partitioned-topic")
@topic_argument
@partitions_option
def create_partitioned_topic(rest: Admin, topic: str, partitions: int) -> str:
    """Create a partitioned topic."""
    rest.put(f"{path_of(topic)}/partitions", partitions)
    return f"Created {parse_topic_name(topic)} with {partitions} partitions"


@rest_command(topics, "update-partitioned-topic")
@topic_argument
@partitions_option
def update_partitioned_topic(rest: Admin, topic: str, partitions: int) -> str:
    """Raise the number of partitions."""
    rest.post(f"{path_of(topic)}/partitions", partitions)
    return f"{parse_topic_name(topic)} has {partitions} partitions now"


@rest_command(topics, "get-partitioned-topic-metadata")
@topic_argument
def get_partitioned_topic_metadata(rest: Admin, topic: str) -> Record:
    """Show the number of partitions; 0 for a topic without partitions."""
    return Record(rest.get(f"{path_of(topic)}/partitions"))


@rest_command(topics, "create-missed-partitions")
@topic_argument
def create_missed_partitions(rest: Admin, topic: str) -> str:
    """Create the missing partitions of a partitioned topic."""
    rest.post(f"{path_of(topic)}/createMissedPartitions")
    return "Created the missing partitions"


@rest_command(topics)
@topic_argument
@force_option
def delete(rest: Admin, topic: str, force: bool) -> str:
    """Delete a topic without partitions, or one partition, with its subscriptions."""
    rest.delete(path_of(topic), force=force)
    return f"Deleted {parse_topic_name(topic)}"


@rest_command(topics, "delete-partitioned-topic")
@topic_argument
@force_option
def delete_partitioned_topic(rest: Admin, topic: str, force: bool) -> str:
    """Delete a partitioned topic with all its partitions."""
    rest.delete(f"{path_of(topic)}/partitions", force=force)
    return f"Deleted {parse_topic_name(topic)}"


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


@rest_command(topics, "list")
@namespace_argument
@domain_option
@system_option
def list_topics(rest: Admin, namespace: str, topic_domain: str, include_system_topic: bool) -> Names:
    """List the topics of a namespace, partitions one by one."""
    path = f"/admin/v2/{topic_domain}/{namespace_path(namespace)}"
    return Names(rest.get(path, includeSystemTopic=include_system_topic or None))


@rest_command(topics, "list-partitioned-topics")
@namespace_argument
@domain_option
def list_partitioned_topics(rest: Admin, namespace: str, topic_domain: str) -> Names:
    """List the partitioned topics of a namespace."""
    return Names(rest.get(f"/admin/v2/{topic_domain}/{namespace_path(namespace)}/partitioned"))


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


@rest_command(topics)
@topic_argument
@click.option("-gpb", "--get-precise-backlog", is_flag=True, help="Count the backlog from what is not acknowledged.")
@click.option("-sbs", "--get-subscription-backlog-size", is_flag=True, help="Fill in backlogSize.")
@click.option("-etb", "--get-earliest-time-in-backlog", is_flag=True, help="Find the oldest message of each backlog.")
def stats(
    rest: Admin,
    topic: str,
    get_precise_backlog: bool,
    get_subscription_backlog_size: bool,
    get_earliest_time_in_backlog: bool,
) -> Record:
    """Show the counters of a topic, its producers, subscriptions and consumers."""
    record = rest.get(
        f"{path_of(topic)}/stats",
        getPreciseBacklog=get_precise_backlog or None,
        subscriptionBacklogSize=get_subscription_backlog_size or None,
        getEarliestTimeInBacklog=get_earliest_time_in_backlog or None,
    )
    return Record(record, stats_table)


@rest_command(topics, "partitioned-stats")
@topic_argument
@click.option("--per-partition", is_flag=True, help="Show every partition too.")
def partitioned_stats(rest: Admin, topic: str, per_partition: bool) -> Record:
    """Show the counters of a partitioned topic."""
    record = rest.get(f"{path_of(topic)}/partitioned-stats", perPartition=per_partition)
    return Record(record, None if per_partition else stats_table)


@rest_command(topics, "stats-internal")
@topic_argument
def stats_internal(rest: Admin, topic: str) -> Record:
    """Show the ledgers and cursors of a topic."""
    return Record(rest.get(f"{path_of(topic)}/internalStats"))


@rest_command(topics, "last-message-id")
@topic_argument
def last_message_id(rest: Admin, topic: str) -> Record:
    """Show the id of the newest message."""
    return Record(rest.get(f"{path_of(topic)}/lastMessageId"))


@rest_command(topics)
@topic_argument
def terminate(rest: Admin, topic: str) -> Record:
    """Terminate a topic: no more messages; show the id of its last one."""
    return Record(rest.post(f"{path_of(topic)}/terminate"))


@rest_command(topics)
@topic_argument
def unload(rest: Admin, topic: str) -> str:
    """Unload a topic; clients reconnect at once."""
    rest.put(f"{path_of(topic)}/unload")
    return f"Unloaded {parse_topic_name(topic)}"


@rest_command(topics)
@topic_argument
def lookup(rest: Admin, topic: str) -> Line:
    """Show which broker serves a topic."""
    record = rest.get(f"/lookup/v2/topic/{parse_topic_name(topic).rest_path}")
    return Line(record["brokerUrl"], record)


for _command in (*topic_actions.COMMANDS, *topic_details.COMMANDS, *topic_policies.COMMANDS):
    topics.add_command(_command)
