"""The ``rabbitmq`` source consumes a queue, and acknowledges each message once its record is durable."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .rabbitmq_connection import RabbitConfig, RabbitConnection, check, check_name
from .texts import text_of

_WAIT_S = 0.5
_NOT_FOUND = 404
_PREFETCH = 2000


@dataclass(kw_only=True)
class RabbitSourceConfig(RabbitConfig):
    """Settings of the ``rabbitmq`` source."""

    queue_name: str = option("Queue name; created if it does not exist.")
    passive: bool = option("Whether to require that the queue already exists.", default=False)
    durable: bool = option("Whether a queue created by the source is durable.", default=True)
    exclusive: bool = option("Whether to prevent other consumers from consuming the queue.", default=False)
    auto_delete: bool = option(
        "Whether a queue created by the source is deleted when its last consumer disconnects.", default=False
    )
    exchange_name: str = option("Exchange to bind the queue to; empty for no binding.", default="")
    routing_key: str = option("Routing key that binds the queue to the exchange.", default="#")
    prefetch_count: int = option(
        f"Maximum number of unacknowledged messages; 0 for {_PREFETCH}.", default=0, limits=(0, 65_535)
    )
    prefetch_global: bool = option(
        "Whether prefetchCount applies to the channel instead of the consumer.", default=False
    )
    batch_size: int = option("Maximum number of messages per read.", default=1000, limits=(1, 100_000))


class RabbitSource(Source):
    """Reads messages from a RabbitMQ queue."""

    config = RabbitSourceConfig

    def __init__(self) -> None:
        """Create an unconnected source."""
        self._connection: RabbitConnection | None = None
        self._received: deque[tuple[Any, Any, bytes]] = deque()
        self._unsettled: deque[int] = deque()  # delivery tags, in order
        self._settled: set[int] = set()
        self._failed: list[int] = []
        self._generation = 0  # delivery tags are only valid within one channel

    def check(self, config: RabbitSourceConfig) -> None:
        """Validate the configuration."""
        check(config)
        if not config.queue_name:
            raise InvalidConfig("queueName must not be empty")
        for key, text in (("queueName", config.queue_name), ("exchangeName", config.exchange_name)):
            check_name(key, text)

    def not_effectively_once(self, config: RabbitSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "messages that are unacknowledged when an instance is killed are redelivered"

    def open(self, config: RabbitSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        if config.exclusive and context.parallelism > 1:
            raise InvalidConfig("exclusive allows only one instance: set parallelism to 1")
        self._config = config
        self._generation += 1
        self._received, self._unsettled, self._settled, self._failed = deque(), deque(), set(), []
        name = f"{context.name}-{context.instance_id}"
        connection = self._connection = RabbitConnection(config, name)
        connection.connect()
        try:
            connection.ask(
                lambda done: connection.channel.queue_declare(config.queue_name, passive=True, callback=done),
                "Queue.DeclareOk",
            )
        except Retry:
            if connection.refusal != _NOT_FOUND or config.passive:
                raise
            connection.close()  # the server's response closed the channel
            connection = self._connection = RabbitConnection(config, name)
            connection.connect()
            self._declare(connection)
        self._consume(connection)

    def _declare(self, connection: RabbitConnection) -> None:
        config = self._config
        connection.ask(
            lambda done: connection.channel.queue_declare(
                config.queue_name, durable=config.durable, auto_delete=config.auto_delete, callback=done
            ),
            "Queue.DeclareOk",
        )

    def _consume(self, connection: RabbitConnection) -> None:
        config = self._config
        if config.exchange_name:
            connection.ask(
                lambda done: connection.channel.queue_bind(
                    config.queue_name, config.exchange_name, config.routing_key, callback=done
                ),
                "Queue.BindOk",
            )
        connection.ask(
            lambda done: connection.channel.basic_qos(
                prefetch_count=config.prefetch_count or _PREFETCH, global_qos=config.prefetch_global, callback=done
            ),
            "Basic.QosOk",
        )

        def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            with connection.condition:
                self._received.append((method, properties, body))
                connection.condition.notify_all()

        def cancelled(_frame: Any) -> None:
            with connection.condition:
                connection.trouble = connection.trouble or f"queue {config.queue_name!r} was deleted"
                connection.condition.notify_all()

        connection.call(lambda: connection.channel.add_on_cancel_callback(cancelled))
        connection.ask(
            lambda done: connection.channel.basic_consume(
                config.queue_name, take, exclusive=config.exclusive, callback=done
            ),
            "Basic.ConsumeOk",
        )

    def read(self) -> list[Record]:
        """Return the next records, or None if none are available yet."""
        connection = self._connection
        assert connection is not None
        self._acknowledge(connection)
        found: list[tuple[Any, Any, bytes]] = []
        with connection.condition:
            if not self._received:
                connection.condition.wait(_WAIT_S)
            if not self._received:
                connection.raise_if_gone()
            while self._received and len(found) < self._config.batch_size:
                found.append(self._received.popleft())
        self._unsettled.extend(method.delivery_tag for method, _, _ in found)
        return [self._record(*message) for message in found]

    def _record(self, method: Any, properties: Any, body: bytes) -> Record:
        texts = {text_of(name): _property(value) for name, value in (properties.headers or {}).items()}
        key = texts.pop(self._config.key_header, None)
        texts["rabbitmq.exchange"], texts["rabbitmq.routingKey"] = method.exchange, method.routing_key
        if properties.content_type:
            texts["rabbitmq.contentType"] = properties.content_type
        if properties.message_id:
            texts["rabbitmq.messageId"] = properties.message_id
        generation, tag = self._generation, method.delivery_tag
        return Record(
            body,
            key,
            texts,
            event_time_ms=(properties.timestamp or 0) * 1000,
            acknowledge=partial(self._settle, generation, tag),
            fail=partial(self._give_back, generation, tag),
        )

    def _settle(self, generation: int, tag: int) -> None:
        if generation == self._generation:
            self._settled.add(tag)

    def _give_back(self, generation: int, tag: int) -> None:
        if generation == self._generation:
            self._settled.add(tag)
            self._failed.append(tag)

    def _acknowledge(self, connection: RabbitConnection) -> None:
        """Acknowledge all messages up to the first one that is not durable."""
        failed, self._failed = self._failed, []
        for tag in failed:
            connection.call(partial(connection.channel.basic_nack, tag))
        last = 0
        while self._unsettled and self._unsettled[0] in self._settled:
            tag = self._unsettled.popleft()
            self._settled.discard(tag)
            last = last if tag in failed else tag
        if last:
            connection.call(partial(connection.channel.basic_ack, last, multiple=True))

    def close(self) -> None:
        """Close the connector."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if not connection.trouble:
                self._acknowledge(connection)
        finally:
            connection.close()


def _property(value: Any) -> str:
    """Return a header value of any type as a string."""
    if isinstance(value, str | bytes):
        return text_of(value)
    return json.dumps(value, ensure_ascii=False, default=text_of if isinstance(value, bytes) else str)
