"""``magnetar topics``: create, inspect and change topics and their subscriptions."""

from __future__ import annotations

from typing import Any

import click

from ...wire.topic_name import parse_topic_name
from ..failure import Failure, Group
from ..output import Table
from ..pulsar_commands import COMMANDS as PULSAR_COMMANDS
from ..rest import Admin, Call, Line, Names, Record, Subject, rest_command, segment
from . import policies as topic_policies
from . import subscriptions as topic_actions
from .level_policies import ONLY_TOPICS, TOPIC_POLICIES
from .permissions import permission_commands
from .policy_commands import policy_commands
from .subscriptions import parse_duration, print_messages, split_entry, topic_argument, topic_path

DOMAINS = ("persistent", "non-persistent")


NOT_HERE = (*PULSAR_COMMANDS["topics"], "clear-all-delayed-messages")
"""Commands of Pulsar or of later versions; those that are unsupported here are rejected by name."""


@click.group(cls=Group, not_here=NOT_HERE)
def topics() -> None:
    """Create, inspect and change topics and their subscriptions.

    TOPIC is a full name (persistent://tenant/namespace/topic) or a short one: topic or tenant/namespace/topic.
    """


partitions_option = click.option("-p", "--partitions", type=int, required=True, help="Number of partitions.")


@rest_command(topics, "create-partitioned-topic")
@topic_argument
@partitions_option
def create_partitioned_topic(rest: Admin, topic: str, partitions: int) -> str:
    """Create a partitioned topic."""
    rest.put(f"{topic_path(topic)}/partitions", partitions)
    return f"Created {parse_topic_name(topic)} with {partitions} partitions"


@rest_command(topics, "update-partitioned-topic")
@topic_argument
@partitions_option
def update_partitioned_topic(rest: Admin, topic: str, partitions: int) -> str:
    """Increase the number of partitions."""
    rest.post(f"{topic_path(topic)}/partitions", partitions)
    return f"{parse_topic_name(topic)} now has {partitions} partitions"


def namespace_path(namespace: str) -> str:
    """Return ``tenant/namespace`` as a REST path.

    Raises:
        Failure: the name is invalid.
    """
    parts = namespace.split("/")
    if len(parts) != 2 or not all(parts):
        raise Failure(f"invalid namespace {namespace!r}: expected tenant/namespace, such as public/default")
    return f"{segment(parts[0])}/{segment(parts[1])}"


namespace_argument = click.argument("namespace", default="public/default")
domain_option = click.option(
    "-td", "--topic-domain", type=click.Choice(DOMAINS), default="persistent", show_default=True, help="Type of topic."
)


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
    return Table(columns, rows, f"{stats['storageSize']:,} bytes stored, {stats['backlogSize']:,} bytes unacknowledged")


@rest_command(topics, "partitioned-stats")
@topic_argument
@click.option("--per-partition", is_flag=True, help="Also show each partition.")
def partitioned_stats(rest: Admin, topic: str, per_partition: bool) -> Record:
    """Show the statistics of a partitioned topic."""
    record = rest.get(f"{topic_path(topic)}/partitioned-stats", perPartition=per_partition)
    return Record(record, None if per_partition else stats_table)


@rest_command(topics)
@topic_argument
def lookup(rest: Admin, topic: str) -> Line:
    """Show which broker serves a topic."""
    record = rest.get(f"/lookup/v2/topic/{parse_topic_name(topic).rest_path}")
    return Line(record["brokerUrl"], record)


@rest_command(topics, "bundle-range")
@topic_argument
def bundle_range(rest: Admin, topic: str) -> Line:
    """Show the range of the bundle that a topic belongs to."""
    text = rest.raw("GET", f"{topic_path(topic).replace('/admin/v2', '/lookup/v2/topic')}/bundle").text
    return Line(text, text)


@rest_command(topics, "expire-messages-all-subscriptions")
@topic_argument
@click.option("-t", "--expireTime", "--expire-time", "expire_time", required=True, metavar="DURATION")
def expire_all(rest: Admin, topic: str, expire_time: str) -> str:
    """Acknowledge messages older than a given age on all subscriptions."""
    rest.post(f"{topic_path(topic)}/all_subscription/expireMessages/{parse_duration(expire_time)}")
    return f"Expired the messages older than {expire_time}"


@rest_command(topics, "examine-messages")
@topic_argument
@click.option("-i", "--initialPosition", "--initial-position", "start", default="latest", show_default=True)
@click.option("-m", "--messagePosition", "--message-position", "position", type=click.IntRange(1), default=1)
def examine_messages(rest: Admin, topic: str, start: str, position: int) -> None:
    """Show the n-th message from the start or the end of a topic."""
    if start not in ("earliest", "latest"):
        raise Failure(f"invalid --initialPosition {start!r}: expected earliest or latest")
    path = f"{topic_path(topic)}/examinemessage?initialPosition={start}&messagePosition={position}"
    _show_entry(rest, path)


@rest_command(topics, "get-message-by-id")
@topic_argument
@click.option("-l", "--ledgerId", "--ledger-id", "ledger_id", type=int, required=True)
@click.option("-e", "--entryId", "--entry-id", "entry_id", type=int, required=True)
def get_message_by_id(rest: Admin, topic: str, ledger_id: int, entry_id: int) -> None:
    """Show the messages of one entry."""
    _show_entry(rest, f"{topic_path(topic)}/ledger/{ledger_id}/entry/{entry_id}")


def _show_entry(rest: Admin, path: str) -> None:
    response = rest.raw("GET", path)
    print_messages(split_entry(response.content, dict(response.headers)))


def _switch(*names: str, help: str) -> click.Option:  # noqa: A002  click's name
    return click.Option(names, is_flag=True, help=help)


FORCE = _switch("-f", "--force", help="Disconnect producers and consumers.")
STATS_FLAGS = (
    _switch(
        "-gpb", "--get-precise-backlog", "getPreciseBacklog", help="Compute the exact backlog."
    ),
    _switch("-sbs", "--get-subscription-backlog-size", "subscriptionBacklogSize", help="Include backlogSize."),
    _switch(
        "-etb", "--get-earliest-time-in-backlog", "getEarliestTimeInBacklog",
        help="Include the oldest message of each backlog.",
    ),
)  # fmt: skip
SYSTEM_FLAG = _switch("-ist", "--include-system-topic", "includeSystemTopic", help="Also show system topics.")

Subject(topic_path, [topic_argument], lambda topic: {"topic": parse_topic_name(topic)}).commands(
    topics,
    Call("create", "PUT", "", "Create a non-partitioned topic.", "Created {topic}"),
    Call(
        "get-partitioned-topic-metadata", "GET", "/partitions",
        "Show the number of partitions, 0 for a non-partitioned topic.",
    ),
    Call(
        "create-missed-partitions", "POST", "/createMissedPartitions",
        "Create the missing partitions of a partitioned topic.", "Created the missing partitions",
    ),
    Call(
        "delete", "DELETE", "", "Delete a non-partitioned topic, or a single partition, with its subscriptions.",
        "Deleted {topic}", flags=[FORCE],
    ),
    Call(
        "delete-partitioned-topic", "DELETE", "/partitions", "Delete a partitioned topic with all its partitions.",
        "Deleted {topic}", flags=[FORCE],
    ),
    Call(
        "stats", "GET", "/stats", "Show the statistics of a topic, its producers, subscriptions and consumers.",
        show=lambda stats: Record(stats, stats_table), flags=STATS_FLAGS,
    ),
    Call("stats-internal", "GET", "/internalStats", "Show the ledgers and cursors of a topic."),
    Call("last-message-id", "GET", "/lastMessageId", "Show the id of the newest message."),
    Call("terminate", "POST", "/terminate", "Stop accepting messages permanently; show the last id."),
    Call("unload", "PUT", "/unload", "Unload a topic; clients reconnect immediately.", "Unloaded {topic}"),
    Call("info-internal", "GET", "/internal-info", "Show the stored metadata of a topic."),
    Call("partitioned-stats-internal", "GET", "/partitioned-internalStats", "Show the ledgers of every partition."),
    Call("get-properties", "GET", "/properties", "Show the properties of a topic."),
    Call("partitioned-terminate", "POST", "/terminate/partitions", "Terminate all partitions permanently."),
    Call(
        "truncate", "DELETE", "/truncate", "Delete all messages, regardless of retention.", "Truncated the topic"
    ),
    Call(
        "compact", "PUT", "/compaction", "Compact a topic: keep the last message of each key for compacted reads.",
        "Compacting the topic",
    ),
    Call("compaction-status", "GET", "/compaction", "Show the status of a topic's compaction."),
    Call("trim-topic", "POST", "/trim", "Delete messages outside retention now.", "Trimmed the topic"),
)  # fmt: skip
Subject(
    lambda namespace, topic_domain: f"/admin/v2/{topic_domain}/{namespace_path(namespace)}",
    [namespace_argument, domain_option],
).commands(
    topics,
    Call(
        "list", "GET", "", "List the topics of a namespace, including each partition.", show=Names,
        flags=[SYSTEM_FLAG], empty="no topics in {namespace}"
    ),
    Call(
        "list-partitioned-topics", "GET", "/partitioned", "List the partitioned topics of a namespace.", show=Names,
        empty="no partitioned topics in {namespace}"
    ),
)  # fmt: skip

for _command in (
    *topic_actions.COMMANDS,
    *topic_policies.COMMANDS,
    *policy_commands((*TOPIC_POLICIES, *ONLY_TOPICS), "topic", topic_path),
    *permission_commands("topic", topic_path),
):
    topics.add_command(_command)
