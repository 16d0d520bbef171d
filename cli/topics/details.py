"""Commands of ``topics`` about messages, internals and all subscriptions."""

from __future__ import annotations

from typing import NamedTuple

import click

from ..failure import Failure
from ..output import output_option, print_json, show_done, show_record
from ..rest import Admin
from ..settings import current
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


def admin(ctx: click.Context) -> Admin:
    """Return the REST connection of a call."""
    return Admin(current(ctx).admin_url)


def _command(call: Call) -> click.Command:
    @click.command(call.name, help=call.help)
    @topic_argument
    @output_option
    @click.pass_context
    def command(ctx: click.Context, topic: str) -> None:
        with admin(ctx) as rest:
            answer = rest.call(call.method, f"{topic_path(topic)}/{call.path}")
        if call.done:
            show_done(ctx, call.done)
        else:
            show_record(ctx, answer)

    return command


@click.command("bundle-range")
@topic_argument
@click.pass_context
def bundle_range(ctx: click.Context, topic: str) -> None:
    """Show the range of the bundle that a topic belongs to."""
    with admin(ctx) as rest:
        click.echo(rest.raw("GET", f"{topic_path(topic).replace('/admin/v2', '/lookup/v2/topic')}/bundle").text)


@click.command("expire-messages-all-subscriptions")
@topic_argument
@click.option("-t", "--expireTime", "--expire-time", "expire_time", required=True, metavar="DURATION")
@output_option
@click.pass_context
def expire_all(ctx: click.Context, topic: str, expire_time: str) -> None:
    """Acknowledge what is older than a given age, for every subscription."""
    with admin(ctx) as rest:
        rest.post(f"{topic_path(topic)}/all_subscription/expireMessages/{parse_duration(expire_time)}")
    show_done(ctx, f"Expired the messages older than {expire_time}")


@click.command("examine-messages")
@topic_argument
@click.option("-i", "--initialPosition", "--initial-position", "start", default="latest", show_default=True)
@click.option("-m", "--messagePosition", "--message-position", "position", type=click.IntRange(1), default=1)
@output_option
@click.pass_context
def examine_messages(ctx: click.Context, topic: str, start: str, position: int) -> None:
    """Show a message, counted from the earliest or the latest."""
    if start not in ("earliest", "latest"):
        raise Failure(f"--initialPosition {start!r} must be earliest or latest")
    path = f"{topic_path(topic)}/examinemessage?initialPosition={start}&messagePosition={position}"
    _show_entry(ctx, path)


@click.command("get-message-by-id")
@topic_argument
@click.option("-l", "--ledgerId", "--ledger-id", "ledger_id", type=int, required=True)
@click.option("-e", "--entryId", "--entry-id", "entry_id", type=int, required=True)
@output_option
@click.pass_context
def get_message_by_id(ctx: click.Context, topic: str, ledger_id: int, entry_id: int) -> None:
    """Show the messages of one entry."""
    _show_entry(ctx, f"{topic_path(topic)}/ledger/{ledger_id}/entry/{entry_id}")


def _show_entry(ctx: click.Context, path: str) -> None:
    with admin(ctx) as rest:
        response = rest.raw("GET", path)
    found = split_entry(response.content, dict(response.headers))
    if current(ctx).output == "json":
        print_json(found)
    else:
        print_messages(ctx, found)


COMMANDS: tuple[click.Command, ...] = (
    *(_command(call) for call in CALLS),
    bundle_range,
    expire_all,
    examine_messages,
    get_message_by_id,
)
