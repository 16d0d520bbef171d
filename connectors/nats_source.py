"""The ``nats`` source reads with a durable pull consumer, and acknowledges messages once their records are durable."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .nats_connection import NatsConfig, NatsConnection, check, fault_of_subject, properties_of

_WAIT_S = 0.5
_NAME = re.compile(r"[^A-Za-z0-9_-]")
_QUIET_READS = 20  # empty reads after which the connection is checked
_PLAIN_PARTS = 9  # parts of an acknowledgement subject without domain and account
_PENDING_BYTES_MAX = 256 << 20


@dataclass(kw_only=True)
class NatsSourceConfig(NatsConfig):
    """Settings of the ``nats`` source."""

    subject: str = option(
        "Subject to read, optionally with the wildcards * and >. The record property nats.subject "
        "contains the message's subject."
    )
    stream: str = option("Stream name; empty to find the stream by subject.", default="")
    durable: str = option(
        "Name of the consumer or, in mode core, of the queue group. It is created if it does not exist, and shared by "
        "all instances. If empty, the name is derived from the source name.",
        default="",
    )
    deliver_policy: Literal["all", "new", "last"] = option(
        "Where a consumer created by the source starts. all: at the first message; new: at the next new message; last: "
        "at the last message.",
        default="all",
    )
    ack_wait_seconds: float = option(
        "Seconds after which unacknowledged messages are redelivered. Applies only when the source creates the "
        "consumer.",
        default=30.0,
        limits=(1, 86_400),
    )
    max_ack_pending: int = option(
        "Maximum number of unacknowledged messages of all instances. Applies only when the source creates the "
        "consumer.",
        default=20_000,
        limits=(1, 1_000_000),
    )
    batch_size: int = option("Maximum number of messages per read.", default=500, limits=(1, 10_000))


class NatsSource(Source):
    """Reads messages from a JetStream stream, or from core NATS."""

    config = NatsSourceConfig

    def __init__(self) -> None:
        """Create an unconnected source."""
        self._connection: NatsConnection | None = None
        self._on_the_way: set[int] = set()  # sequence numbers received since opening, not acknowledged yet
        self._settled: list[tuple[int, str]] = []  # durable; kept when reopened, as numbers remain valid
        # Acknowledged by the last read. The server may not have received these acknowledgements, or may already be
        # redelivering the messages.
        self._acknowledged: list[tuple[int, str]] = []
        self._stream_made: Any = None
        self._quiet = 0

    def check(self, config: NatsSourceConfig) -> None:
        """Validate the configuration."""
        check(config)
        if fault := fault_of_subject(config.subject, wildcards=True):
            raise InvalidConfig(f"invalid subject: {fault}")
        if config.durable and _NAME.search(config.durable):
            raise InvalidConfig(f"invalid durable {config.durable!r}: must contain only letters, digits, - and _")
        if config.stream and config.mode == "core":
            raise InvalidConfig("stream requires mode jetstream")

    def not_effectively_once(self, config: NatsSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.mode == "core":
            return "in mode core, messages that arrive while the source is disconnected are lost"
        return "messages that are unacknowledged when an instance is killed are redelivered"

    async def open(self, config: NatsSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config, self._log = config, context.logger
        self._quiet = 0
        connection = self._connection = NatsConnection(config)
        await connection.connect(f"{context.name}-{context.instance_id}")
        durable = config.durable or _NAME.sub("_", context.name)
        if config.mode == "core":
            self._log.warning("mode core: messages that arrive while this source is disconnected or too slow are lost")
            self._subscription = await connection.client.subscribe(config.subject, queue=durable)
            await connection.flush()
        else:
            await self._consume(connection, durable)

    async def _consume(self, connection: NatsConnection, durable: str) -> None:
        from nats.errors import Error
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
        from nats.js.errors import NotFoundError

        config = self._config
        js = connection.client.jetstream(timeout=config.timeout_ms / 1000)
        try:
            try:
                stream = config.stream or await js.find_stream_name_by_subject(config.subject)
                made = (await js.stream_info(stream)).created
            except NotFoundError as error:
                what = f"stream {config.stream!r}" if config.stream else f"stream for subject {config.subject!r}"
                raise Retry(f"{config.url}: no {what}") from error
            if made != self._stream_made:  # recreated stream: numbers identify other messages
                self._settled.clear()
                self._acknowledged.clear()
                self._stream_made = made
            # Messages received before reopening may never be reported as durable, so they must be redelivered.
            self._settled, self._acknowledged = [*self._acknowledged, *self._settled], []
            self._on_the_way = {number for number, _ in self._settled}
            try:
                found = (await js.consumer_info(stream, durable)).config
                if found.deliver_subject or found.ack_policy != AckPolicy.EXPLICIT:
                    raise InvalidConfig(
                        f"durable: consumer {durable!r} of stream {stream!r} is not a pull consumer with explicit "
                        f"acknowledgement"
                    )
            except NotFoundError:
                wanted = ConsumerConfig(
                    durable_name=durable,
                    filter_subject=config.subject,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=config.ack_wait_seconds,
                    max_ack_pending=config.max_ack_pending,
                    deliver_policy=DeliverPolicy(config.deliver_policy),
                )
                await js.add_consumer(stream, wanted)
            self._subscription = await js.pull_subscribe_bind(durable, stream, pending_bytes_limit=_PENDING_BYTES_MAX)
        except (Error, OSError, TimeoutError) as error:
            raise connection.away(error) from error

    async def read(self) -> list[Record]:
        """Return the next records, or None if none are available yet."""
        connection = self._connection
        assert connection is not None
        connection.raise_if_lost()
        await self._acknowledge(connection)
        messages = await (self._receive() if self._config.mode == "core" else self._fetch(connection))
        if messages:
            self._quiet = 0
        else:
            self._quiet += 1
            connection.raise_if_lost()
            if self._quiet % _QUIET_READS == 0:
                await connection.flush()  # the library's reader may have stopped silently
        if self._config.mode == "core":
            return [self._record(message, 0, None, None) for message in messages]
        records = []
        for message in messages:
            number, time_ms = _place_of(message.reply)
            if number not in self._on_the_way:  # otherwise redelivered after a timeout
                self._on_the_way.add(number)
                settle = partial(self._settle, number, message.reply)
                records.append(self._record(message, time_ms, settle, partial(self._on_the_way.discard, number)))
        return records

    async def _fetch(self, connection: NatsConnection) -> list[Any]:
        from nats.errors import Error

        try:
            found: list[Any] = await self._subscription.fetch(self._config.batch_size, timeout=_WAIT_S)
        except TimeoutError:
            return []
        except (Error, OSError) as error:
            raise connection.away(error) from error
        return found

    async def _receive(self) -> list[Any]:
        found: list[Any] = []
        with suppress(TimeoutError):
            found.append(await self._subscription.next_msg(timeout=_WAIT_S))
            while self._subscription.pending_msgs and len(found) < self._config.batch_size:
                found.append(await self._subscription.next_msg(timeout=_WAIT_S))
        return found

    def _record(self, message: Any, time_ms: int, settle: Any, fail: Any) -> Record:
        properties = properties_of(message.headers)
        key = properties.pop(self._config.key_header, None)
        properties["nats.subject"] = message.subject
        return Record(message.data, key, properties, event_time_ms=time_ms, acknowledge=settle, fail=fail)

    def _settle(self, number: int, reply: str) -> None:
        self._settled.append((number, reply))

    async def _acknowledge(self, connection: NatsConnection) -> None:
        from nats.errors import Error

        settled = self._settled
        try:
            for _, reply in settled:
                await connection.client.publish(reply, b"+ACK")
        except (Error, OSError) as error:
            raise connection.away(error) from error
        self._settled = []
        self._on_the_way.difference_update(number for number, _ in self._acknowledged)
        self._acknowledged = settled

    async def close(self) -> None:
        """Close the connector."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if connection.client.is_connected and self._settled:
                await self._acknowledge(connection)
                await connection.flush()
        finally:
            await connection.close()


def _place_of(reply: str) -> tuple[int, int]:
    """Return a message's stream sequence number and time in milliseconds, from its acknowledgement subject."""
    # $JS.ACK.[domain.account.]stream.consumer.delivered.number.consumer's number.nanoseconds.pending[.token]
    parts = reply.split(".")
    at = 5 if len(parts) == _PLAIN_PARTS else 7
    return int(parts[at]), int(parts[at + 2]) // 1_000_000
