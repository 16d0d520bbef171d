"""The ``nats`` sink publishes each batch without waiting between messages, then waits for all confirmations.

Each message has an ID derived from its position in the topic (``Nats-Msg-Id``), so the stream drops duplicates within
its duplicate window, two minutes by default.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .given_again import Confirmed
from .nats_connection import NatsConfig, NatsConnection, check, fault_of_subject, headers_of
from .texts import Template, Unfilled, payload_of

_TOO_LARGE = 10054  # JetStream error code: message size exceeds maximum allowed
_NO_STREAM = -1  # internal code: no responder for the subject
_WAIT_S = 0.5
_HEADER_LINE = 12  # bytes of "NATS/1.0" and of the final empty line
_SEPARATORS = 4  # bytes of a header's ": " and line ending


@dataclass(kw_only=True)
class NatsSinkConfig(NatsConfig):
    """Settings of the ``nats`` sink."""

    subject: str = option(
        "Target subject. The placeholders {key}, {topic}, {message_id} and {properties.name} are replaced by values of "
        "the record."
    )
    stream: str = option("Stream that must receive the messages; empty for any stream.", default="")
    batch_size: int = option("Maximum number of unconfirmed messages.", default=1000, limits=(1, 100_000))


class NatsSink(Sink):
    """Publishes messages to NATS, confirmed by JetStream."""

    config = NatsSinkConfig

    def __init__(self) -> None:
        """Create an unconnected sink."""
        self._connection: NatsConnection | None = None
        self._confirmed = Confirmed()
        self._number = 0
        self._unconfirmed: dict[int, tuple[int, Record]] = {}
        self._refused: dict[int, tuple[int, str]] = {}  # by index: JetStream error code and message
        self._progress = asyncio.Event()

    def check(self, config: NatsSinkConfig) -> None:
        """Validate the configuration."""
        check(config)
        template = Template("subject", config.subject)
        if template.constant is not None and (fault := fault_of_subject(template.constant, wildcards=False)):
            raise InvalidConfig(f"invalid subject: {fault}")
        if config.stream and config.mode == "core":
            raise InvalidConfig("stream requires mode jetstream")

    def not_effectively_once(self, config: NatsSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.mode == "core":
            return "in mode core, messages sent before an instance was killed may be published again"
        return (
            "the stream drops republished messages only within its duplicate window, and an instance may be down for "
            "longer"
        )

    def batching(self, config: NatsSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=config.batch_size, size=8 << 20)

    async def open(self, config: NatsSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._config = config
        self._subject = Template("subject", config.subject)
        connection = self._connection = NatsConnection(config)
        await connection.connect(f"{context.name}-{context.instance_id}")
        # The library's bulk publishing never returns if the server rejects a message.
        self._inbox = connection.client.new_inbox()
        await connection.client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        connection = self._connection
        assert connection is not None
        connection.raise_if_lost()
        from nats.errors import Error

        unsent = [(index, record, *self._message(index, record)) for index, record in self._confirmed.missing(records)]
        connection.trouble = ""
        self._unconfirmed, self._refused = {}, {}
        try:
            for index, record, subject, payload, headers in unsent:
                reply = ""
                if self._config.mode == "jetstream":
                    self._number += 1  # never reused, so late responses are ignored
                    self._unconfirmed[self._number] = (index, record)
                    reply = f"{self._inbox}.{self._number}"
                await connection.client.publish(subject, payload, reply, headers or None)
        except (Error, OSError) as error:
            raise connection.away(error) from error
        if self._config.mode == "core":
            await connection.flush()
            if connection.trouble:
                raise Retry(f"{self._config.url}: {connection.trouble}")
        else:
            await self._confirm(connection)
            if self._refused:
                index, answer = min(self._refused.items())
                await self._raise(index, records[index], answer)
        self._confirmed.clear()

    async def _on_answer(self, message: Any) -> None:
        """Process the server's response to one message."""
        index, record = self._unconfirmed.pop(int(message.subject.rpartition(".")[2]), (-1, None))
        if record is None:
            return
        self._progress.set()
        if (message.headers or {}).get("Status") == "503":
            self._refused[index] = (_NO_STREAM, "")
            return
        try:
            answer = json.loads(message.data)
            error = answer.get("error")
        except (ValueError, AttributeError):
            error = {"description": f"unexpected response, not from JetStream: {message.data[:100]!r}"}
        if error:
            self._refused[index] = (error.get("err_code", 0), error.get("description", str(error)))
        else:
            self._confirmed.add(record)

    async def _confirm(self, connection: NatsConnection) -> None:
        """Wait until every message has a response."""
        timeout_s = self._config.timeout_ms / 1000
        deadline = time.monotonic() + timeout_s
        while self._unconfirmed:
            self._progress.clear()
            try:
                async with asyncio.timeout(_WAIT_S):
                    await self._progress.wait()
            except TimeoutError:
                connection.raise_if_lost()
                if time.monotonic() > deadline:
                    cause = f": {connection.trouble}" if connection.trouble else ""
                    count = len(self._unconfirmed)
                    raise Retry(f"{self._config.url}: {count} messages were not confirmed{cause}") from None
            else:
                deadline = time.monotonic() + timeout_s

    async def _raise(self, index: int, record: Record, answer: tuple[int, str]) -> None:
        """Raise the error for a response that is not a confirmation."""
        connection = self._connection
        assert connection is not None
        code, description = answer
        subject = self._subject.of(record)
        if code == _TOO_LARGE:
            raise RecordRefused(f"message to subject {subject!r} was rejected: {description}", index, index)
        if code != _NO_STREAM:
            raise Retry(f"{self._config.url}: message to subject {subject!r} was rejected: {description}")
        # If all records have the same subject, no record is the cause. Also, a server that has just started may not
        # know its streams yet.
        if self._subject.constant is None:
            from nats.errors import Error
            from nats.js.errors import NotFoundError

            try:
                js = connection.client.jetstream(timeout=self._config.timeout_ms / 1000)
                await js.find_stream_name_by_subject(subject)
            except NotFoundError as error:
                raise RecordRefused(f"no stream for subject {subject!r}", index, index) from error
            except (Error, OSError) as error:
                raise connection.away(error) from error
        raise Retry(f"{self._config.url}: no stream for subject {subject!r}")

    def _message(self, index: int, record: Record) -> tuple[str, bytes, dict[str, str]]:
        """Return a record's subject, payload and headers."""
        config = self._config
        try:
            subject, payload = self._subject.of(record), payload_of(record.value)
            headers = headers_of(record.properties)
            if config.key_header and record.key is not None:
                headers |= headers_of({config.key_header: record.key})
            if config.mode == "jetstream" and record.message_id:
                headers["Nats-Msg-Id"] = f"{record.topic}:{record.message_id}"
            if config.stream:
                headers["Nats-Expected-Stream"] = config.stream
            size = len(payload) + _HEADER_LINE
            for name, value in headers.items():
                size += len(name.encode()) + len(value.encode()) + _SEPARATORS
        except (Unfilled, ValueError, TypeError) as error:
            raise RecordRefused(str(error), index) from error
        if fault := fault_of_subject(subject, wildcards=False):
            raise RecordRefused(f"invalid subject: {fault}", index)
        assert self._connection is not None
        if size > (most := self._connection.client.max_payload):
            raise RecordRefused(
                f"message of {size} bytes, with headers, exceeds the server's limit of {most} bytes", index
            )
        return subject, payload, headers

    async def idle(self) -> None:
        """Respond to the server's pings while no records arrive."""
        await asyncio.sleep(0)
        if self._connection is not None:
            self._connection.raise_if_lost()

    async def close(self) -> None:
        """Close the connector."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
