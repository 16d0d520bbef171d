"""Commands of ``topics`` about messages, internals and all subscriptions."""

from __future__ import annotations

from typing import NamedTuple

import click

from ..failure import Failure
from ..rest import Admin, Line, Record, rest_command
from .subscription_commands import parse_duration, print_messages, split_entry, topic_argument, topic_path


class Call(NamedTuple):
    """A command that makes one REST call.

    Attributes:
        name: of the command.
        method: of the request.
        path: after the topic's.
        done: what to say when there is no answer to show.
        help: one line.
    """

    name: str
    method: str
    path: str
    done: str
    help: str


CALLS = (
    Call("info-internal", "GET", "internal-info", "", "Show what is stored about a topic."),
    Call("partitioned-stats-internal", "GET", "partitioned-internalStats", "", "Show the ledgers of every partition."),
    Call("get-properties", "GET", "properties", "", "Show the properties of a topic."),
    Call("partitioned-terminate", "POST", "terminate/partitions", "", "Close all partitions for new messages."),
    Call("truncate", "DELETE", "truncate", "Truncated the topic", "Drop all messages, whatever the retention says."),
    Call(
        "compact",
        "PUT",
        "compaction",
        "Compacting the topic",
        "Keep the last message of each key for compacted reading.",
    ),
    Call("compaction-status", "GET", "compaction", "", "Show whether a topic is being compacted, or how that ended."),
    Call("trim-topic", "POST", "trim", "Trimmed the topic", "Delete now what retention does not keep."),
)


def _command(call: Call) -> click.Command:
    @rest_command(None, call.name, help=call.help)
    @topic_argument
    def command(rest: Admin, topic: str) -> str | Record:
        response = rest.call(call.method, f"{topic_path(topic)}/{call.path}")
        return call.done or Record(response)

    return command


@rest_command(None, "bundle-range")
@topic_argument
def bundle_range(rest: Admin, topic: str) -> Line:
    """Show the range of the bundle that a topic belongs to."""
    text = rest.raw("GET", f"{topic_path(topic).replace('/admin/v2', '/lookup/v2/topic')}/bundle").text
    return Line(text, text)


@rest_command(None, "expire-messages-all-subscriptions")
@topic_argument
@click.option("-t", "--expireTime", "--expire-time", "expire_time", required=True, metavar="DURATION")
def expire_all(rest: Admin, topic: str, expire_time: str) -> str:
    """Acknowledge what is older than a given age, for every subscription."""
    rest.post(f"{topic_path(topic)}/all_subscription/expireMessages/{parse_duration(expire_time)}")
    return f"Expired the messages older than {expire_time}"


@rest_command(None, "examine-messages")
@topic_argument
@click.option("-i", "--initialPosition", "--initial-position", "start", default="latest", show_default=True)
@click.option("-m", "--messagePosition", "--message-position", "position", type=click.IntRange(1), default=1)
def examine_messages(rest: Admin, topic: str, start: str, position: int) -> None:
    """Show a message, counted from the earliest or the latest."""
    if start not in ("earliest", "latest"):
        raise Failure(f"--initialPosition {start!r} must be earliest or latest")
    path = f"{topic_path(topic)}/examinemessage?initialPosition={start}&messagePosition={position}"
    _show_entry(rest, path)


@rest_command(None, "get-message-by-id")
@topic_argument
@click.option("-l", "--ledgerId", "--ledger-id", "ledger_id", type=int, required=True)
@click.option("-e", "--entryId", "--entry-id", "entry_id", type=int, required=True)
def get_message_by_id(rest: Admin, topic: str, ledger_id: int, entry_id: int) -> None:
    """Show the messages of one entry."""
    _show_entry(rest, f"{topic_path(topic)}/ledger/{ledger_id}/entry/{entry_id}")


def _show_entry(rest: Admin, path: str) -> None:
    response = rest.raw("GET", path)
    print_messages(split_entry(response.content, dict(response.headers)))


COMMANDS: tuple[click.Command, ...] = (
    *(_command(call) for call in CALLS),
    bundle_range,
    expire_all,
    examine_messages,
    get_message_by_id,
)
