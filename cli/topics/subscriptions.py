"""Subscription commands, in ``topics`` and under shorter names in ``subscriptions``."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import click

from ...errors import ProtocolError
from ...wire.batch import decode_batch
from ...wire.topic_name import parse_topic_name
from ..failure import Failure, Group
from ..output import print_json, wants_table
from ..rest import Admin, Call, Names, Subject, rest_command, segment
from ..settings import current

EARLIEST_ID = {"ledgerId": -1, "entryId": -1}
LATEST_ID = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}

topic_argument = click.argument("topic")
subscription_option = click.option(
    "-s", "--subscription", required=True, metavar="NAME", help="Name of the subscription."
)


def topic_path(topic: str) -> str:
    """Return the REST path of a topic given in any form."""
    return f"/admin/v2/{parse_topic_name(topic).rest_path}"


def subscription_path(topic: str, subscription: str) -> str:
    """Return the REST path of a subscription."""
    return f"{topic_path(topic)}/subscription/{segment(subscription)}"


def parse_message_id(text: str) -> dict[str, Any] | None:
    """Return the JSON of ``latest``, ``earliest`` or ``ledger:entry``; None means latest.

    Raises:
        Failure: the id is invalid.
    """
    if text.lower() == "latest":
        return None
    if text.lower() == "earliest":
        return dict(EARLIEST_ID)
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.lstrip("-").isdigit() for part in parts):
        raise Failure(f"invalid message id {text!r}: expected latest, earliest or ledger:entry, such as 12:0")
    return {"ledgerId": int(parts[0]), "entryId": int(parts[1]), "partitionIndex": int(parts[2]) if parts[2:] else -1}


def parse_place(back: str | None, message_id: str | None) -> int | dict[str, Any]:
    """Return the new position of a cursor from one of two flags: a time in milliseconds, or the JSON of a message id.

    Raises:
        Failure: both flags are given, or neither, or one is invalid.
    """
    if (back is None) == (message_id is None):
        raise Failure("no position specified: use either --time, such as 10m, or --message-id, such as earliest")
    if back is not None:
        return int((time.time() - parse_duration(back)) * 1000)
    return parse_message_id(message_id or "") or LATEST_ID


def parse_duration(text: str) -> int:
    """Parse a duration such as ``90``, ``10m`` or ``2h``, and return seconds.

    Raises:
        Failure: the duration is invalid.
    """
    number, unit = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "s")
    if unit not in UNITS_S or not number.isdigit():
        raise Failure(f"invalid duration {text!r}: expected a number with s, m, h, d, w or y, such as 10m")
    return int(number) * UNITS_S[unit]


@rest_command(None, "create-subscription")
@topic_argument
@subscription_option
@click.option(
    "-m", "--messageId", "--message-id", "message_id", default="latest", show_default=True,
    help="Initial position: latest, earliest or ledger:entry.",
)  # fmt: skip
def create_subscription(rest: Admin, topic: str, subscription: str, message_id: str) -> str:
    """Create a subscription, which retains all messages from its position on."""
    rest.put(subscription_path(topic, subscription), parse_message_id(message_id))
    return f"Created subscription {subscription} at {message_id}"


@rest_command(None)
@topic_argument
@subscription_option
@click.option("-n", "--count", type=click.IntRange(0), required=True, help="Number of messages.")
def skip(rest: Admin, topic: str, subscription: str, count: int) -> str:
    """Skip the next messages of a subscription."""
    rest.post(f"{subscription_path(topic, subscription)}/skip/{count}")
    return f"Skipped {count} messages"


@rest_command(None, "reset-cursor")
@topic_argument
@subscription_option
@click.option(
    "-t",
    "--time",
    "back",
    metavar="DURATION",
    help="Reset to the first message published after this time ago, such as 10m.",
)
@click.option("-m", "--messageId", "--message-id", "message_id", help="Position: latest, earliest or ledger:entry.")
def reset_cursor(rest: Admin, topic: str, subscription: str, back: str | None, message_id: str | None) -> str:
    """Move a subscription to another position; its consumers reconnect."""
    place = parse_place(back, message_id)
    path = f"{subscription_path(topic, subscription)}/resetcursor"
    if isinstance(place, int):
        rest.post(f"{path}/{place}")
    else:
        rest.post(path, place)
    return f"Moved subscription {subscription}"


@rest_command(None, "expire-messages")
@topic_argument
@subscription_option
@click.option(
    "-t", "--expireTime", "--expire-time", "expire_time", required=True, metavar="DURATION",
    help="Age in seconds or with a unit, such as 3600 or 1h.",
)  # fmt: skip
def expire_messages(rest: Admin, topic: str, subscription: str, expire_time: str) -> str:
    """Acknowledge messages older than a given age."""
    rest.post(f"{subscription_path(topic, subscription)}/expireMessages/{parse_duration(expire_time)}")
    return f"Expired the messages of {subscription} older than {expire_time}"


@rest_command(None, "peek-messages")
@topic_argument
@subscription_option
@click.option("-n", "--count", type=click.IntRange(1), default=1, show_default=True, help="Number of messages.")
def peek_messages(rest: Admin, topic: str, subscription: str, count: int) -> None:
    """Show the next messages of a subscription without receiving them."""
    found: list[dict[str, Any]] = []
    position = 1
    while len(found) < count:
        try:
            response = rest.raw("GET", f"{subscription_path(topic, subscription)}/position/{position}")
        except Failure as exc:
            if not found or "Message not found" not in exc.message:
                raise
            break
        found += split_entry(response.content, dict(response.headers))
        position += 1
    print_messages(found[:count])


def print_messages(messages: Sequence[dict[str, Any]]) -> None:
    """Print messages, each under a line with its id, key and properties, or as JSON."""
    ctx = click.get_current_context()
    if current(ctx).output == "json":
        print_json(messages)
        return
    for message in messages:
        head = f"{message['messageId']}  key {message['key']}  properties {message['properties']}"
        click.echo(click.style(head, dim=True) if wants_table(ctx) else head)
        click.echo(message["content"])


def split_entry(body: bytes, headers: dict[str, str]) -> list[dict[str, Any]]:
    """Return the messages of a peeked entry; the broker returns whole batches, which are split here.

    Raises:
        Failure: the batch cannot be read.
    """
    entry_id = headers.get("x-pulsar-message-id", "")
    batched = headers.get("x-pulsar-num-batch-message")
    if batched is None:
        properties = headers.get("x-pulsar-property", "{}")
        key = headers.get("x-pulsar-partition-key")
        return [{"messageId": entry_id, "key": key, "properties": properties, "content": body.decode(errors="replace")}]
    try:
        payloads, metadatas = decode_batch(body, int(batched))
    except ProtocolError as exc:
        raise Failure(f"the batch {entry_id} of {batched} messages cannot be read: {exc}") from exc
    return [
        {
            "messageId": f"{entry_id}:{index}",
            "key": metadata.partition_key if metadata.HasField("partition_key") else None,
            "properties": {pair.key: pair.value for pair in metadata.properties},
            "content": payload.decode(errors="replace"),
        }
        for index, (payload, metadata) in enumerate(zip(payloads, metadatas, strict=True))
    ]


CLEAR_BACKLOG = Call(
    "clear-backlog", "POST", "/skip_all", "Skip all unacknowledged messages of a subscription.",
    "Cleared the backlog of {subscription}",
)  # fmt: skip
COMMANDS: tuple[click.Command, ...] = (
    create_subscription,
    skip,
    reset_cursor,
    expire_messages,
    peek_messages,
    *Subject(topic_path, [topic_argument]).commands(
        None,
        Call(
            "subscriptions", "GET", "/subscriptions", "List the subscriptions of a topic.",
            show=lambda names: Names(sorted(names)), empty="no subscriptions on {topic}",
        ),
    ),
    *Subject(subscription_path, [topic_argument, subscription_option]).commands(
        None,
        Call(
            "unsubscribe", "DELETE", "",
            "Delete a subscription; its unacknowledged messages are no longer retained for it.",
            "Deleted subscription {subscription}",
            flags=[click.Option(["-f", "--force"], is_flag=True, help="Disconnect its consumers.")],
        ),
        CLEAR_BACKLOG,
        CLEAR_BACKLOG._replace(name="skip-all", hidden=True),
    ),
)  # fmt: skip

SHORT_NAMES = {
    "subscriptions": "list",
    "create-subscription": "create",
    "unsubscribe": "delete",
    "skip": "skip",
    "clear-backlog": "clear-backlog",
    "reset-cursor": "seek",
    "expire-messages": "expire",
    "peek-messages": "peek",
}


@click.group(cls=Group)
def subscriptions() -> None:
    """Create, inspect and change subscriptions of a topic."""


for _command in COMMANDS:
    if _command.name in SHORT_NAMES:
        _short = copy.copy(_command)
        _short.name = SHORT_NAMES[_command.name]
        subscriptions.add_command(_short)
