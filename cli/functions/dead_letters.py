"""``magnetar functions dead-letters``: messages that a function has given up, and the way back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from ...errors import ConsumerBusy
from ...wire.printable import summary
from ..failure import Failure, Group
from ..output import Table
from ..rest import Admin, Line, Record, rest_command
from ..settings import current
from .letters import Letters, read, replay
from .target import find_target, target_options

DEFAULT_LIMIT = 100


@click.group("dead-letters", cls=Group)
def dead_letters() -> None:
    """Look at the messages that a function has given up, and send them back.

    They are in the topic of --dead-letter-topic, on a subscription that keeps them until they are replayed.
    """


def _find(rest: Admin, target: dict[str, str | None]) -> Letters:
    """Return where the letters of a function are.

    Raises:
        Failure: there is no such function, or it has no dead-letter topic.
    """
    found = find_target(**target)
    topic = (rest.get(found.path) or {}).get("deadLetterTopic")
    if not topic:
        raise Failure(
            f"function {found.name} has no dead-letter topic; give it one: functions update --name {found.name}"
            " --max-message-retries N --dead-letter-topic TOPIC"
        )
    return Letters(current(click.get_current_context()), topic, f"{found.tenant}/{found.namespace}/{found.name}")


def letters_table(found: list[dict[str, Any]]) -> Table:
    """Return letters, one a row."""
    rows = []
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["publishTime"] / 1000))
        rows.append((one["id"], when, one["topic"], one["messageId"], one["tries"], summary(one["exception"] or "")))
    return Table(("id", "given up at", "topic", "message", "tries", "exception"), rows)


@rest_command(dead_letters, "list")
@target_options
@click.option(
    "--limit", type=click.IntRange(1), default=DEFAULT_LIMIT, show_default=True, help="Show the oldest N at most."
)
def list_letters(rest: Admin, /, limit: int, **target: str | None) -> Record:
    """List the letters of a function that were not replayed, the oldest first."""
    letters = _find(rest, target)
    found = asyncio.run(read(letters, limit))
    return Record(found, letters_table, f"no dead letters of {letters.function}")


@rest_command(dead_letters)
@target_options
@click.argument("letter_id", metavar="ID")
def show(rest: Admin, /, letter_id: str, **target: str | None) -> Record:
    """Show the letter with an ID that `list` names: content, origin, exception and traceback."""
    letters = _find(rest, target)
    for one in asyncio.run(read(letters, 1_000_000)):
        if one["id"] == letter_id:
            return Record(one)
    raise Failure(f"there is no letter {letter_id!r}; `functions dead-letters list` shows those that are there")


@rest_command(dead_letters, "replay", epilog="\b\nmagnetar functions dead-letters replay --name exclamation --dry-run")
@target_options
@click.argument("letter_ids", nargs=-1, metavar="[ID]...")
@click.option("--to", metavar="TOPIC", help="Send them there, instead of to the topics that they came from.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
def replay_letters(
    rest: Admin, /, letter_ids: tuple[str, ...], to: str | None, dry_run: bool, **target: str | None
) -> Line:
    """Send letters back as the messages that they were: those with the given IDs, or all.

    Each leaves the list when its message is stored. If the connection breaks in between, one may be sent twice.
    """
    letters = _find(rest, target)
    try:
        done = asyncio.run(replay(letters, letter_ids, to, is_dry_run=dry_run))
    except ConsumerBusy as error:
        raise Failure(f"somebody else holds the letters alone: {error}") from error
    if done.missing:
        raise Failure(
            f"{len(done.sent)} letters {'would be' if dry_run else 'were'} replayed; there is no letter"
            f" {', '.join(done.missing)}"
        )
    verb = "would be replayed" if dry_run else "replayed"
    text = f"{len(done.sent)} letters {verb}"
    if done.without_topic:
        text += f"; {len(done.without_topic)} do not say where they came from and stay: give --to TOPIC"
    return Line(text, {"replayed": done.sent, "withoutTopic": done.without_topic, "dryRun": dry_run})
