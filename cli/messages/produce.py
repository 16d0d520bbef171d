"""``magnetar produce``: send messages to a topic, with the flags of Pulsar's client."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..failure import Failure
from ..output import output_option, show_done
from ..settings import Settings, current
from .connecting import connected
from .encryption import producer_encryption


def not_yet(*names: str, takes_value: bool = True) -> Callable[..., Any]:
    """Declare a Pulsar flag that this version rejects by name."""

    def refuse(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value:
            raise Failure(f"{names[-1]} is not supported by this version: remove it")

    return click.option(*names, is_flag=not takes_value, hidden=True, expose_value=False, callback=refuse)


def read_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse ``("k=v", …)`` as a dictionary; each pair is split at its first ``=``.

    Raises:
        Failure: a pair has no ``=``.
    """
    for pair in pairs:
        if "=" not in pair:
            raise Failure(f"invalid property {pair!r}: expected key=value, with one -p for each property")
    return dict(tuple(pair.split("=", 1)) for pair in pairs)  # type: ignore[misc]


def read_payloads(messages: tuple[str, ...], files: tuple[str, ...], separator: str | None) -> list[bytes]:
    """Return the payloads to send in each repetition; the file ``-`` is standard input.

    Args:
        messages: values of -m; each is one payload unless a separator is given.
        files: files whose contents are one payload each.
        separator: regular expression that splits `messages`; None or empty for no splitting.

    Raises:
        Failure: there is nothing to send, a file is unreadable or named twice, or the separator is invalid.
    """
    if files.count("-") > 1:
        raise Failure("--files - is given twice, but standard input can only be read once")
    try:
        found = [
            part.encode(errors="surrogateescape")
            for text in messages
            for part in (re.split(separator, text) if separator else [text])
        ]
    except re.error as exc:
        raise Failure(f"invalid regular expression --separator {separator!r}: {exc}") from exc
    for name in files:
        try:
            found.append(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
        except OSError as exc:
            raise Failure(f"--files {name} cannot be read: {exc.strerror}") from exc
    if not found:
        raise Failure("nothing to send: use -m TEXT, -f FILE or --lines FILE")
    return found


@click.command()
@click.argument("topic")
@click.option("-m", "--messages", multiple=True, help="Message to send; repeatable.")
@click.option(
    "-f",
    "--files",
    multiple=True,
    metavar="FILE",
    help="File to send as one message, - for standard input; repeatable.",
)
@click.option(
    "--lines",
    metavar="FILE",
    help="File to send line by line, - for standard input; lines end with LF or CR LF.",
)
@click.option(
    "-s", "--separator", help="Regular expression that splits each -m into several messages (default: no splitting)."
)
@click.option(
    "-n",
    "--num-produce",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of times to send all messages.",
)
@click.option("-r", "--rate", type=float, default=0, help="Messages per second (default: as fast as possible).")
@click.option("-k", "--key", help="Key of the messages.")
@click.option("-p", "--properties", multiple=True, metavar="KEY=VALUE", help="Property of the messages; repeatable.")
@click.option("-db", "--disable-batching", is_flag=True, help="Send each message as a separate entry.")
@click.option("-vs", "--value-schema", default="bytes", help="Schema of the values: bytes or string.")
@not_yet("-c", "--chunking", takes_value=False)
@not_yet("-kvk", "--key-value-key")
@not_yet("-kvkf", "--key-value-key-file")
@not_yet("-ks", "--key-schema")
@not_yet("-kvet", "--key-value-encoding-type")
@click.option(
    "-ekn", "--encryption-key-name", multiple=True, metavar="NAME", help="Name of the key to encrypt with; repeatable."
)
@click.option(
    "-ekv",
    "--encryption-key-value",
    metavar="URI",
    help="Public key: file:///path/of/key.pem or data:application/x-pem-file;base64,…",
)
@not_yet("-dr", "--disable-replication", takes_value=False)
@output_option
@click.pass_context
def produce(ctx: click.Context, /, topic: str, **flags: Any) -> None:
    """Send messages to TOPIC."""
    if flags["value_schema"] not in ("bytes", "string"):
        raise Failure(f"--value-schema {flags['value_schema']} is not supported by this version: use bytes or string")
    options = {"key": flags["key"], "properties": read_properties(flags["properties"]) or None}
    settings = {"batching": not flags["disable_batching"], **producer_encryption(flags)}
    if flags["lines"] is not None:
        _refuse_beside_lines(ctx)
        from .send_lines import send_lines

        work = send_lines(current(ctx), topic, flags["lines"], options, flags["rate"], settings)
        show_done(ctx, f"{asyncio.run(work)} messages successfully produced")
        return
    payloads = read_payloads(flags["messages"], flags["files"], flags["separator"])

    def stream() -> Iterator[bytes]:
        for _ in range(flags["num_produce"]):
            yield from payloads

    sent = asyncio.run(send_all(current(ctx), topic, stream(), options, flags["rate"], settings))
    show_done(ctx, f"{sent} messages successfully produced")


def _refuse_beside_lines(ctx: click.Context) -> None:
    """Raise Failure if a flag is given that applies to -m and -f only."""
    for name in ("messages", "files", "separator", "num_produce"):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            flag = "--" + name.replace("_", "-")
            raise Failure(f"{flag} cannot be combined with --lines, which sends each line of a file once")


async def send_all(
    cluster: Settings,
    topic: str,
    payloads: Iterator[bytes],
    options: dict[str, Any],
    rate: float,
    settings: dict[str, Any],
) -> int:
    """Send payloads, at most 1,000 at a time, and return the number of receipts.

    ``options`` apply to the messages, ``settings`` to the producer.

    Cancellation: safe; sent messages stay sent.
    """
    from ...client.config import ProducerConfig

    loop = asyncio.get_running_loop()
    sent = 0
    async with connected(cluster) as client:
        producer = await client.create_producer(topic, ProducerConfig(**settings))
        started_s = loop.time()
        receipts: list[asyncio.Future[Any]] = []
        for payload in payloads:
            if rate > 0:
                await asyncio.sleep(max(0.0, started_s + sent / rate - loop.time()))
            await producer.ready()
            receipts.append(producer.send_nowait(payload, **options))
            sent += 1
            if len(receipts) == 1000:
                await asyncio.gather(*receipts)
                receipts.clear()
        await asyncio.gather(*receipts)  # not flush(), as all failures must be retrieved
        await producer.close()
    return sent
