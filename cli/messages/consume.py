"""``magnetar consume``: receive and print messages of a topic, with the flags of Pulsar's client."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from ...errors import ConsumerBusy
from ..failure import Failure
from ..output import output_option
from ..settings import Settings, current
from .busy import who_is_there
from .connecting import connected
from .encryption import consumer_encryption
from .produce import not_yet

if TYPE_CHECKING:
    from ...client.consumers.received import Message

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
REPORT_EVERY = 1000


@click.command()
@click.argument("topic")
@click.option(
    "-s", "--subscription-name", required=True, help="Name of the subscription; created if it does not exist."
)
@click.option("-t", "--subscription-type", type=click.Choice(TYPES), default="Exclusive", show_default=True)
@click.option(
    "-m", "--subscription-mode", type=click.Choice(("Durable", "NonDurable")), default="Durable", show_default=True,
    help="Durable keeps the subscription when the command ends; NonDurable is not supported yet.",
)  # fmt: skip
@click.option(
    "-p", "--subscription-position", type=click.Choice(("Latest", "Earliest")), default="Latest", show_default=True,
    help="Start position of a new subscription.",
)  # fmt: skip
@click.option(
    "-n",
    "--num-messages",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Number of messages to consume (0: unlimited).",
)
@click.option(
    "-q", "--queue-size", type=click.IntRange(0), default=0, help="Number of messages to prefetch (default: 1000)."
)
@click.option("-r", "--rate", type=float, default=0, help="Messages per second (default: as fast as possible).")
@click.option("--hex", "as_hex", is_flag=True, help="Print contents in hexadecimal.")
@click.option("--hide-content", is_flag=True, help="Count messages instead of printing them.")
@click.option("-mp", "--print-metadata", is_flag=True, help="Print message id, producer, sequence id and redeliveries.")
@click.option("-st", "--schema-type", default="bytes", help="Schema type; only bytes is supported yet.")
@not_yet("--regex", takes_value=False)
@not_yet("-mc", "--max_chunked_msg")
@not_yet("-ac", "--auto_ack_chunk_q_full", takes_value=False)
@click.option(
    "-ekv",
    "--encryption-key-value",
    metavar="URI",
    help="Private key of encrypted messages: file:///path/of/key.pem or data:application/x-pem-file;base64,…",
)
@click.option(
    "-ca",
    "--crypto-failure-action",
    type=click.Choice(("FAIL", "DISCARD", "CONSUME")),
    default="FAIL",
    show_default=True,
    help="Action for messages that cannot be decrypted: leave them unacknowledged, discard them, or print them"
    " encrypted.",
)
@not_yet("-pm", "--pool-messages")
@not_yet("-rs", "--replicated", takes_value=False)
@not_yet("-stp", "--start-timestamp")
@not_yet("-etp", "--end-timestamp")
@output_option
@click.pass_context
def consume(ctx: click.Context, /, topic: str, **flags: Any) -> None:
    """Receive, print and acknowledge messages from TOPIC."""
    if flags["schema_type"] != "bytes":
        raise Failure(f"--schema-type {flags['schema_type']} is not supported by this version: use bytes")
    if flags["subscription_mode"] != "Durable":
        raise Failure("--subscription-mode NonDurable is not supported by this version: use Durable")
    settings = current(ctx)
    printer = Printer(
        form="json" if settings.output == "json" else "count" if flags["hide_content"] else "text",
        as_hex=flags["as_hex"],
        with_metadata=flags["print_metadata"],
    )
    interrupted: KeyboardInterrupt | None = None
    try:
        with withheld_shown():
            asyncio.run(receive(settings, topic, flags, printer))
    except ConsumerBusy as exc:
        raise who_is_there(settings, topic, flags["subscription_name"], exc) from exc
    except KeyboardInterrupt as exc:  # the usual way to stop `-n 0`
        interrupted = exc
    click.echo(f"{printer.count} messages successfully consumed", err=True)
    if interrupted is not None:
        raise interrupted


class _Shown(logging.Handler):
    """Prints log records as lines to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"magnetar: {record.getMessage()}", err=True)


@contextmanager
def withheld_shown() -> Iterator[None]:
    """Show why the consumer withholds messages, as the command would otherwise seem to hang."""
    logger, handler = logging.getLogger("magnetar.client.consumers"), _Shown(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def receive(settings: Settings, topic: str, flags: dict[str, Any], printer: Printer) -> None:
    """Receive, print and acknowledge the number of messages given by the flags.

    Cancellation: safe; the last printed message may be redelivered.
    """
    from ...client.config import ConsumerConfig

    config = ConsumerConfig(
        type=flags["subscription_type"],
        initial_position=flags["subscription_position"],
        receiver_queue_size=flags["queue_size"] or ConsumerConfig().receiver_queue_size,
        **consumer_encryption(flags),
    )
    wanted, rate = flags["num_messages"], flags["rate"]
    loop = asyncio.get_running_loop()
    async with connected(settings) as client:
        consumer = await client.subscribe(topic, flags["subscription_name"], config)
        started_s = loop.time()
        while wanted == 0 or printer.count < wanted:
            message = await consumer.receive()
            printer.show(message)
            consumer.ack(message)
            if rate > 0:
                await asyncio.sleep(max(0.0, started_s + printer.count / rate - loop.time()))
        await consumer.close()


@dataclass(kw_only=True)
class Printer:
    """Prints messages and counts them.

    Attributes:
        form: output format; ``count`` prints no messages.
        as_hex: print contents in hexadecimal.
        with_metadata: also print message metadata.
        count: number of messages shown so far.
    """

    form: Literal["text", "json", "count"]
    as_hex: bool
    with_metadata: bool
    count: int = 0

    def show(self, message: Message) -> None:
        """Print one message."""
        self.count += 1
        if self.form == "count":
            if self.count % REPORT_EVERY == 0:
                click.echo(f"Received {self.count} messages")
            return
        content = message.data.hex(" ") if self.as_hex else message.data.decode(errors="replace")
        if self.form == "json":
            click.echo(json.dumps({**self._fields(message), "content": content}, ensure_ascii=False))
            return
        properties = ", ".join(f"{key}={value}" for key, value in message.properties.items())
        line = (
            f"publishTime:[{message.publish_time_ms}], eventTime:[{message.event_time_ms}],"
            f" key:[{message.key if message.key is not None else 'null'}], properties:[{properties}], content:{content}"
        )
        if self.with_metadata:
            line += (
                f", message-id:[{message.message_id}], producer-name:[{message.producer_name}],"
                f" sequence-id:[{message.sequence_id}], redelivery-count:[{message.redelivery_count}]"
            )
        click.echo("----- got message -----")
        click.echo(line)

    def _fields(self, message: Message) -> dict[str, Any]:
        return {
            "messageId": str(message.message_id),
            "topic": message.topic,
            "publishTime": message.publish_time_ms,
            "eventTime": message.event_time_ms,
            "key": message.key,
            "properties": dict(message.properties),
            "producerName": message.producer_name,
            "sequenceId": message.sequence_id,
            "redeliveryCount": message.redelivery_count,
        }
