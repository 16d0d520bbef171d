"""The ``pulsar`` source reads messages from another cluster, Apache Pulsar or Magnetar.

The instances share a subscription in the other cluster. A message is acknowledged once its record is durable here. If
the source or the other cluster fails before that, the message is redelivered. Keys, properties and event times are
preserved.

EFFECTIVELY_ONCE requires one non-partitioned topic, or one partition. The position is the last message read. The
subscription delivers all messages after the last acknowledged one, which is never after the stored position. Messages
up to the position are therefore duplicates, and are skipped. Messages must not expire in the other cluster (message
TTL), because later messages would be mistaken for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..api.connector import Record, Source, SourceContext
from ..api.connector_config import option
from ..client.blocking import Client, Consumer
from ..client.config import ConsumerConfig
from ..client.consumers.received import Message
from ..errors import InvalidConfig, MagnetarError
from ..wire.topic_name import parse_topic_name
from .pulsar_cluster import PulsarClusterConfig, away, check_cluster, check_key, connected, decrypting

READ_MAX = 1000
_WAIT_MS = 300
_AWAY_S = 1.0
"""How long the client may be disconnected before the source reports it, in seconds."""


@dataclass
class PulsarSourceConfig(PulsarClusterConfig):
    """Settings of the ``pulsar`` source."""

    topics: list[str] = option("Topics in the other cluster.", aliases=("topic", "topicName"))
    subscription_name: str = option(
        "Subscription in the other cluster; empty for the source name, tenant/namespace/name.", default=""
    )
    subscription_type: Literal["Exclusive", "Failover", "Shared", "Key_Shared"] = option(
        "How instances share the messages. Failover preserves the order of each partition.", default="Failover"
    )
    subscription_position: Literal["Earliest", "Latest"] = option(
        "Where a new subscription starts.", default="Earliest"
    )  # fmt: skip
    receiver_queue_size: int = option("Maximum number of prefetched messages.", default=1000, limits=(1, 100_000))
    crypto_private_key: str = option(
        "Private key for decrypting messages, as file:///path on the workers; empty for no decryption.", default=""
    )
    crypto_failure_action: Literal["FAIL", "DISCARD", "CONSUME"] = option(
        "Action for messages that cannot be decrypted. FAIL: the messages are redelivered, and an ordered subscription "
        "stops; DISCARD: the messages are dropped; CONSUME: the messages are delivered encrypted.",
        default="FAIL",
    )


class PulsarSource(Source):
    """Reads messages from another cluster, Apache Pulsar or Magnetar, through a subscription."""

    config = PulsarSourceConfig

    def __init__(self) -> None:
        """Create an unconnected source."""
        self._client: Client | None = None
        self._consumer: Consumer | None = None

    def check(self, config: PulsarSourceConfig) -> None:
        """Validate the configuration."""
        check_cluster(config, config.topics, "topics")
        check_key("cryptoPrivateKey", config.crypto_private_key)

    def not_effectively_once(self, config: PulsarSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if len(config.topics) > 1:
            return "the order of messages from several topics varies: set only one topic in topics"
        if config.subscription_type not in ("Exclusive", "Failover"):
            return f"subscriptionType {config.subscription_type} does not preserve order: use Failover"
        return ""

    def open(self, config: PulsarSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config = config
        self._away_since_s: float | None = None
        name = config.subscription_name or context.name
        settings = ConsumerConfig(
            type=config.subscription_type,
            name=f"{context.name}-{context.instance_id}",
            initial_position=config.subscription_position,
            receiver_queue_size=config.receiver_queue_size,
            **decrypting(
                config.crypto_private_key,
                config.crypto_failure_action,
                is_ordered=config.subscription_type in ("Exclusive", "Failover"),
            ),
        )
        self._is_exact = context.is_exact
        self._behind: tuple[int, ...] = tuple(context.position or ())

        def subscribe(client: Client) -> Consumer:
            if context.is_exact:
                self._check_exact(client, context)
            return client.subscribe(config.topics, name, settings)

        self._client, self._consumer = connected(config, subscribe)

    def _check_exact(self, client: Client, context: SourceContext) -> None:
        (topic,) = self._config.topics
        parts = client.get_topic_partitions(topic)
        if parts != [parse_topic_name(topic).text]:
            raise InvalidConfig(
                f"topic {topic!r} has {len(parts)} partitions, whose order varies: for EFFECTIVELY_ONCE create a "
                f"source for each partition"
            )
        if context.parallelism > 1:
            raise InvalidConfig("EFFECTIVELY_ONCE allows only one reader per topic: set parallelism to 1")

    def read(self) -> Sequence[Record] | None:
        """Return the next records, or None if none are available yet."""
        consumer = self._consumer
        assert consumer is not None
        try:
            messages = consumer.batch_receive(READ_MAX, _WAIT_MS)
        except MagnetarError as error:
            raise away(self._config, error) from error
        if not messages:
            self._look_after(consumer)
            return None
        if self._is_exact:
            messages = [message for message in messages if _place(message) > self._behind]
            if not messages:
                return None
            self._behind = _place(messages[-1])
        records = [
            Record(message.data, message.key, message.properties, message.event_time_ms, partition=message.topic)
            for message in messages
        ]
        records[-1].acknowledge = partial(self._durable, consumer, messages)
        return records

    def _look_after(self, consumer: Consumer) -> None:
        """Raise if the source has been disconnected for too long."""
        now_s = time.monotonic()
        if consumer.is_connected:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = now_s
        elif now_s - self._away_since_s > _AWAY_S:
            raise away(self._config, "connection to the broker lost")

    def _durable(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        if consumer is not self._consumer:
            return  # read before the source was reopened, so redelivered
        try:
            if self._is_exact:
                consumer.acknowledge_cumulative(messages[-1])
            else:
                consumer.acknowledge_all(messages)
        except MagnetarError as error:
            raise away(self._config, error) from error

    def snapshot(self) -> list[int] | None:
        """Return the current position."""
        return list(self._behind) or None

    def close(self) -> None:
        """Close the connector."""
        client, self._client, self._consumer = self._client, None, None
        if client is not None:
            client.close()


def _place(message: Message) -> tuple[int, ...]:
    """Return a tuple that increases from message to message within a topic."""
    ledger_id, entry_id, _, index, _ = message.message_id
    return ledger_id, entry_id, index
