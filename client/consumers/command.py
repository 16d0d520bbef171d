"""What a consumer's settings mean in the protocol."""

from __future__ import annotations

from ...wire.pulsar_api_pb2 import CommandSubscribe, KeyValue
from ..config import ConsumerConfig


def subscribe_command(config: ConsumerConfig, topic: str, subscription: str) -> CommandSubscribe:
    """Return SUBSCRIBE for a durable subscription, without the ids of consumer and request."""
    return CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=config.type,
        consumer_name=config.name or "",
        priority_level=config.priority_level,
        durable=True,
        metadata=[KeyValue(key=key, value=value) for key, value in config.properties.items()],
        read_compacted=config.read_compacted,
        initialPosition=config.initial_position,
        subscription_properties=[
            KeyValue(key=key, value=value) for key, value in config.subscription_properties.items()
        ],
    )
