"""What a producer's settings mean in the protocol."""

from __future__ import annotations

from ...wire.pulsar_api_pb2 import CommandProducer, KeyValue
from ..config import ProducerConfig


def producer_command(config: ProducerConfig, topic: str, name: str) -> CommandProducer:
    """Return PRODUCER without the ids of producer and request and the epochs; no name lets the broker choose one."""
    command = CommandProducer(
        topic=topic,
        encrypted=False,
        metadata=[KeyValue(key=key, value=value) for key, value in config.properties.items()],
        user_provided_producer_name=config.name is not None,
        producer_access_mode=config.access_mode,
    )
    if name:
        command.producer_name = name
    return command
