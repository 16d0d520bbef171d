"""The ``dead-letters`` commands of functions and sinks: list, show and replay failed messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from ...errors import ConsumerBusy, CryptoError
from ...wire.printable import summary
from ...wire.topic_name import parse_topic_name
from ..failure import Failure, Group
from ..messages.encryption import private_key_option
from ..output import Table
from ..rest import Admin, Line, Record, rest_command
from ..settings import current
from .letters import Letters, Replayed, read, replay
from .target import find_target, target_options

DEFAULT_LIMIT = 100
_ALL = 1_000_000


class Writer(NamedTuple):
    """The kind of component these commands act on, functions or sinks.

    Attributes:
        kind: ``function`` or ``sink``.
        options: adds the flags for the name of a function or sink to a command.
        full_name: returns ``tenant/namespace/name`` from the flags; raises Failure.
        topics: returns its dead-letter topics; raises Failure if there are none, or the component does not exist.
    """

    kind: str
    options: Callable[[Callable[..., Any]], Callable[..., Any]]
    full_name: Callable[..., str]
    topics: Callable[..., Sequence[str]]


def dead_letter_commands(writer: Writer) -> click.Group:
    """Return the commands ``list``, ``show`` and ``replay``."""
    group = Group(
        "dead-letters",
        help=f"""Inspect and replay messages that a {writer.kind} failed to process.

        They are in its dead-letter topic, on a subscription that retains them until they are replayed.""",
    )

    def find(rest: Admin, target: dict[str, str | None], private_key: str | None = None) -> list[Letters]:
        """Return the topics with dead letters; missing topics are skipped, not created."""
        cluster, name = current(click.get_current_context()), writer.full_name(**target)
        topics = [topic for topic in writer.topics(rest, **target) if _exists(rest, topic)]
        return [Letters(cluster, topic, name, private_key) for topic in topics]

    async def read_all(found: Sequence[Letters], limit: int) -> list[dict[str, Any]]:
        read_ones: list[dict[str, Any]] = []
        for letters in found:
            if len(read_ones) < limit:
                try:
                    read_ones += await read(letters, limit - len(read_ones))
                except CryptoError as error:
                    raise Failure(
                        f"{error}: add --encryption-key-value with the URI of the dead letters' private key"
                    ) from error
        return read_ones

    @rest_command(group, "list", help=f"List the dead letters of a {writer.kind} that were not replayed, oldest first.")
    @writer.options
    @private_key_option
    @click.option(
        "--limit", type=click.IntRange(1), default=DEFAULT_LIMIT, show_default=True, help="Show at most the oldest N."
    )
    def list_letters(rest: Admin, /, limit: int, private_key: str | None, **target: str | None) -> Record:
        found = asyncio.run(read_all(find(rest, target, private_key), limit))
        return Record(found, letters_table, f"no dead letters of {writer.full_name(**target)}")

    @rest_command(group)
    @writer.options
    @private_key_option
    @click.argument("letter_id", metavar="ID")
    def show(rest: Admin, /, letter_id: str, private_key: str | None, **target: str | None) -> Record:
        """Show a letter by its ID from `list`: content, origin, exception and traceback."""
        for one in asyncio.run(read_all(find(rest, target, private_key), _ALL)):
            if one["id"] == letter_id:
                return Record(one)
        raise Failure(
            f"dead letter {letter_id!r} does not exist: run `{writer.kind}s dead-letters list` to list the ids"
        )

    example = f"\b\nmagnetar {writer.kind}s dead-letters replay --name {_EXAMPLES[writer.kind]} --dry-run"

    @rest_command(group, "replay", epilog=example)
    @writer.options
    @click.argument("letter_ids", nargs=-1, metavar="[ID]...")
    @click.option("--to", metavar="TOPIC", help="Send them to this topic instead of their original topics.")
    @click.option("--dry-run", is_flag=True, help="Show what would be sent without sending it.")
    def replay_letters(
        rest: Admin, /, letter_ids: tuple[str, ...], to: str | None, dry_run: bool, **target: str | None
    ) -> Line:
        """Replay letters with the given IDs, or all, to their original topics.

        A letter is removed from the list once its message is stored. If the connection breaks, one may be sent twice.
        Encrypted letters are not replayed, because they would be sent unencrypted.
        """
        done = asyncio.run(_replay_all(find(rest, target), letter_ids, to, is_dry_run=dry_run))
        verb = "would be replayed" if dry_run else "replayed"
        if done.missing:
            were = "would be" if dry_run else "were"
            missing = ", ".join(done.missing)
            raise Failure(f"{len(done.sent)} letters {were} replayed; these do not exist: {missing}")
        text = f"{len(done.sent)} letters {verb}"
        if done.without_topic:
            text += f"; {len(done.without_topic)} without an original topic remain: replay them with --to TOPIC"
        return Line(text, {"replayed": done.sent, "withoutTopic": done.without_topic, "dryRun": dry_run})

    return group


_EXAMPLES = {"function": "exclamation", "sink": "archive"}


async def _replay_all(found: Sequence[Letters], ids: Sequence[str], to: str | None, *, is_dry_run: bool) -> Replayed:
    """Replay letters of several topics; raise Failure if another consumer holds them."""
    whole = Replayed(missing=sorted(set(ids)))
    for letters in found:
        if ids and not whole.missing:
            break
        try:
            done = await replay(letters, whole.missing, to, is_dry_run=is_dry_run)
        except ConsumerBusy as error:
            raise Failure(f"another consumer has exclusive access to the dead letters: {error}") from error
        except CryptoError as error:
            raise Failure(
                f"{error}: encrypted letters cannot be replayed, as they would be sent unencrypted: read them with"
                " `dead-letters show --encryption-key-value URI`, and send them with `produce --encryption-key-name"
                " NAME`"
            ) from error
        whole.sent += done.sent
        whole.without_topic += done.without_topic
        whole.missing = done.missing
    return whole


def _exists(rest: Admin, topic: str) -> bool:
    try:
        rest.get(f"/admin/v2/{parse_topic_name(topic).rest_path}/subscriptions")
    except Failure as failure:
        if failure.status == 404:
            return False
        raise
    return True


def _function_topics(rest: Admin, **target: str | None) -> Sequence[str]:
    found = find_target(**target)
    topic = (rest.get(found.path) or {}).get("deadLetterTopic")
    if not topic:
        raise Failure(
            f"function {found.name} has no dead-letter topic: set one with `functions update --name {found.name}"
            " --max-message-retries N --dead-letter-topic TOPIC`"
        )
    return (topic,)


def _function_name(**target: str | None) -> str:
    found = find_target(**target)
    return f"{found.tenant}/{found.namespace}/{found.name}"


def letters_table(found: list[dict[str, Any]]) -> Table:
    """Return a table of letters, one per row."""
    rows = []
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["publishTime"] / 1000))
        rows.append((one["id"], when, one["topic"], one["messageId"], one["tries"], summary(one["exception"] or "")))
    return Table(("id", "failed at", "topic", "message", "tries", "exception"), rows)


dead_letters = dead_letter_commands(Writer("function", target_options, _function_name, _function_topics))
