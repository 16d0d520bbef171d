"""Builds SUBSCRIBE from a ConsumerConfig."""

from __future__ import annotations

from ...wire.message_id import MessageId, to_data
from ...wire.pulsar_api_pb2 import CommandSubscribe, KeyValue
from ..config import ConsumerConfig


def subscribe_command(
    config: ConsumerConfig, topic: str, subscription: str, start: MessageId | None = None
) -> CommandSubscribe:
    """Return SUBSCRIBE without the ids of consumer and request.

    Args:
        config: of the consumer.
        topic: full name.
        subscription: name.
        start: where a non-durable subscription begins; None makes it durable.
    """
    return CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=config.type,
        consumer_name=config.name or "",
        priority_level=config.priority_level,
        durable=start is None,
        start_message_id=None if start is None else to_data(start),
        metadata=[KeyValue(key=key, value=value) for key, value in config.properties.items()],
        read_compacted=config.read_compacted,
        initialPosition=config.initial_position,
        subscription_properties=[
            KeyValue(key=key, value=value) for key, value in config.subscription_properties.items()
        ],
    )
