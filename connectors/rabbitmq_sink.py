"""The ``rabbitmq`` sink publishes each batch in one go, then waits until the server has confirmed every message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .given_again import Confirmed
from .libraries import need
from .rabbitmq_connection import RabbitConfig, RabbitConnection, check, check_name, fault_of_name
from .texts import Template, Unfilled, payload_of

_ROUTING_KEY = "routingKey"
_OTHER_PROPERTIES = 1024  # bytes of a frame reserved for properties other than headers
_TOO_LARGE = 406  # code with which the server closes the channel
_SIZE = re.compile(r"message size (\d+) ")


@dataclass(kw_only=True)
class RabbitSinkConfig(RabbitConfig):
    """Settings of the ``rabbitmq`` sink."""

    exchange_name: str = option(
        "Exchange name; empty for the default exchange, which routes to the queue named by the routing key."
    )
    exchange_type: Literal["direct", "fanout", "topic", "headers"] = option(
        "Exchange type, used when the sink creates the exchange.", default="topic"
    )
    routing_key: str = option(
        "Routing key. The placeholders {key}, {topic}, {message_id} and {properties.name} are replaced by values of "
        "the record. The record property routingKey takes precedence.",
        default="",
    )
    queue_name: str = option(
        "Durable queue to create and bind to the exchange with the routing key. The exchange is then of type direct.",
        default="",
    )
    passive: bool = option("Whether to require that the exchange already exists.", default=False)
    batch_size: int = option("Maximum number of unconfirmed messages.", default=1000, limits=(1, 100_000))


class RabbitSink(Sink):
    """Publishes messages to RabbitMQ, confirmed by the server."""

    config = RabbitSinkConfig

    def __init__(self) -> None:
        """Create an unconnected sink."""
        self._connection: RabbitConnection | None = None
        self._confirmed = Confirmed()
        self._unconfirmed: dict[int, tuple[int, Record]] = {}  # by delivery tag
        self._by_id: dict[str, int] = {}  # index by message ID
        self._returned: dict[int, str] = {}  # by index
        self._tag = 0
        self._rejected = 0

    def check(self, config: RabbitSinkConfig) -> None:
        """Validate the configuration."""
        check(config)
        template = Template(_ROUTING_KEY, config.routing_key)
        check_name("exchangeName", config.exchange_name)
        check_name("queueName", config.queue_name)
        if template.constant is not None:
            check_name(_ROUTING_KEY, template.constant)
        elif config.queue_name:
            raise InvalidConfig("routingKey must not contain placeholders if queueName is set")
        if not config.exchange_name and not config.routing_key and not config.queue_name:
            raise InvalidConfig("routingKey is required for the default exchange: set routingKey to a queue name")

    def not_effectively_once(self, config: RabbitSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "messages that are unconfirmed when an instance is killed are published again"

    def batching(self, config: RabbitSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=config.batch_size, size=8 << 20)

    def open(self, config: RabbitSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._config = config
        self._routing_key = Template(_ROUTING_KEY, config.routing_key)
        self._tag = 0
        connection = self._connection = RabbitConnection(config, f"{context.name}-{context.instance_id}")
        connection.connect()
        self._declare(connection)
        connection.ask(lambda done: connection.channel.confirm_delivery(self._on_confirm, done), "Confirm.SelectOk")
        connection.call(lambda: connection.channel.add_on_return_callback(self._on_return))

    def _declare(self, connection: RabbitConnection) -> None:
        config = self._config
        exchange, queue = config.exchange_name, config.queue_name
        kind = "direct" if queue else config.exchange_type
        if exchange:
            connection.ask(
                lambda done: connection.channel.exchange_declare(
                    exchange, kind, passive=config.passive, durable=True, callback=done
                ),
                "Exchange.DeclareOk",
            )
        if queue:
            connection.ask(
                lambda done: connection.channel.queue_declare(queue, durable=True, callback=done), "Queue.DeclareOk"
            )
            if exchange:
                key = config.routing_key
                connection.ask(
                    lambda done: connection.channel.queue_bind(queue, exchange, key, callback=done), "Queue.BindOk"
                )

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        connection = self._connection
        assert connection is not None
        messages = [
            (index, record, *self._message(index, record)) for index, record in self._confirmed.missing(records)
        ]
        with connection.condition:
            self._returned, self._rejected = {}, 0
            self._by_id = {properties.message_id: index for index, *_, properties in messages}
            for index, record, *_ in messages:
                self._tag += 1
                self._unconfirmed[self._tag] = (index, record)
        exchange = self._config.exchange_name

        def publish() -> None:
            for _, _, key, payload, properties in messages:
                connection.channel.basic_publish(exchange, key, payload, properties, mandatory=True)

        try:
            if messages:
                connection.call(publish)
            self._wait(connection)
        except Retry:
            size = _SIZE.search(connection.trouble) if connection.refusal == _TOO_LARGE else None
            for index, _, _, payload, _ in messages:
                if size is not None and len(payload) == int(size[1]):
                    raise RecordRefused(connection.trouble, index) from None
            raise
        finally:
            with connection.condition:
                self._unconfirmed.clear()
        if self._rejected:
            raise Retry(f"{self._config.host} rejected {self._rejected} messages: a queue is full")
        if self._returned:
            index, cause = min(self._returned.items())
            raise RecordRefused(
                f"message with routing key {self._key_of(records[index])!r} was returned: {cause}", index, index
            )
        self._confirmed.clear()

    def _wait(self, connection: RabbitConnection) -> None:
        """Wait for all confirmations; give up when they stop arriving."""
        while before := len(self._unconfirmed):
            connection.wait(
                lambda before=before: len(self._unconfirmed) < before,  # type: ignore[misc]
                self._config.handshake_timeout / 1000,
                f"confirmation of {before} messages",
            )

    def _on_confirm(self, frame: Any) -> None:
        """Process the server's response; called on the library's thread."""
        connection, method = self._connection, frame.method
        if connection is None:
            return
        is_taken = type(method).__name__ == "Ack"
        with connection.condition:
            tags = [method.delivery_tag]
            if method.multiple:
                tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
            for tag in tags:
                index, record = self._unconfirmed.pop(tag, (-1, None))
                if record is None or index in self._returned:
                    continue
                if is_taken:
                    self._confirmed.add(record)
                else:
                    self._rejected += 1
            connection.condition.notify_all()

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """Process a message returned because no queue matches; called before its confirmation."""
        connection = self._connection
        if connection is None:
            return
        with connection.condition:
            index = self._by_id.get(properties.message_id)
            if index is not None:
                self._returned[index] = f"{method.reply_code} {method.reply_text}"

    def _key_of(self, record: Record) -> str:
        found = record.properties.get(_ROUTING_KEY)
        if found is None and not self._config.exchange_name and not self._config.routing_key:
            return self._config.queue_name
        return self._routing_key.of(record) if found is None else found

    def _message(self, index: int, record: Record) -> tuple[str, bytes, Any]:
        """Return a record's routing key, payload and properties."""
        name = self._config.key_header
        try:
            key, payload = self._key_of(record), payload_of(record.value)
            headers = {name: text for name, text in record.properties.items() if name != _ROUTING_KEY}
            if name and record.key is not None:
                headers[name] = record.key
            for text in headers.values():
                text.encode()
        except (Unfilled, ValueError, TypeError) as error:
            raise RecordRefused(str(error), index) from error
        for text, what in ((key, "routing key"), *((one, "property name") for one in headers)):
            if fault := fault_of_name(text):
                raise RecordRefused(f"{what} {fault}", index)
        size = sum(len(one.encode()) + len(text.encode()) + 6 for one, text in headers.items())
        assert self._connection is not None
        if size > (most := self._connection.frame_max - _OTHER_PROPERTIES):
            raise RecordRefused(f"properties of {size} bytes exceed the server's limit of {most} bytes", index)
        properties = need("rabbitmq", "pika").BasicProperties(
            delivery_mode=2,  # persistent, in durable queues
            headers=headers or None,
            message_id=_id_of(index, record),
            timestamp=record.event_time_ms // 1000 or None,
        )
        return key, payload, properties

    def close(self) -> None:
        """Close the connector."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _id_of(index: int, record: Record) -> str:
    """Return the message ID: the topic and the position in it or, if unknown, the index in the batch."""
    text = f"{record.topic}:{record.message_id}" if record.message_id else f"#{index}"
    return text.encode(errors="replace")[-255:].decode(errors="ignore")
