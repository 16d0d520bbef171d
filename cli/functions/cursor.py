"""``magnetar functions reset-cursor``: have a function process its input again."""

from __future__ import annotations

import time
from typing import Any

import click

from ..failure import Failure
from ..rest import Admin, rest_command
from .target import find_target, target_options

LATEST_ID = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}


@rest_command(
    None, "reset-cursor", epilog="\b\nmagnetar functions reset-cursor --name exclamation --message-id earliest"
)
@target_options
@click.option("-t", "--time", "back", metavar="DURATION", help="To the first message after that long ago, such as 10m.")
@click.option(
    "-m", "--messageId", "--message-id", "message_id",
    help="Position: latest, earliest, ledger:entry or ledger:entry:partition.",
)  # fmt: skip
@click.option("--topic", help="Only this input topic, of several.")
def reset_cursor(
    rest: Admin, /, back: str | None, message_id: str | None, topic: str | None, **target: str | None
) -> str:
    """Have a function begin again at an earlier or later message of its inputs.

    Its instances stop, the cursors move, and the instances start again. Under EFFECTIVELY_ONCE this is the only way to
    process messages again: `topics reset-cursor` alone brings them back, and they are skipped as done.
    """
    from ..topics.subscription_commands import parse_duration, parse_message_id  # with it come the client's libraries

    if (back is None) == (message_id is None):
        raise Failure("where to? Give either --time, such as 10m, or --message-id, such as earliest")
    body: dict[str, Any] = {} if topic is None else {"topic": topic}
    if back is not None:
        body["timestamp"] = int((time.time() - parse_duration(back)) * 1000)
    else:
        body["messageId"] = parse_message_id(message_id or "") or LATEST_ID
    path = find_target(**target).path
    rest.post(f"{path}/reset-cursor", body)
    return "Reset successfully"
