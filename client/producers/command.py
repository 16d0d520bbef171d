"""Builds PRODUCER from a ProducerConfig."""

from __future__ import annotations

from ...wire.pulsar_api_pb2 import CommandProducer, KeyValue
from ..config import ProducerConfig
from ..schemas.schema import SchemaInfo


class Creation:
    """Builds the PRODUCER command for the first and every later attempt to create a producer.

    Attributes:
        schema: the schema of its messages, or None.
        topic_epoch: an exclusive producer's epoch, which the broker returned and uses to detect fenced producers.
    """

    __slots__ = ("_config", "_epoch", "_producer_id", "_topic", "schema", "topic_epoch")

    def __init__(self, topic: str, producer_id: int, config: ProducerConfig):
        self._topic = topic
        self._producer_id = producer_id
        self._config = config
        self._epoch = 0  # tells the broker which of two attempts of one producer is the later one
        self.schema: SchemaInfo | None = None
        self.topic_epoch: int | None = None

    def command(self, name: str) -> CommandProducer:
        """Return the next PRODUCER command, without a request id; an empty name lets the broker choose one."""
        config = self._config
        command = CommandProducer(
            topic=self._topic,
            producer_id=self._producer_id,
            encrypted=bool(config.encryption_keys),
            metadata=[KeyValue(key=key, value=value) for key, value in config.properties.items()],
            epoch=self._epoch,
            user_provided_producer_name=config.name is not None,
            producer_access_mode=config.access_mode,
            schema=None if self.schema is None else self.schema.to_proto(),
        )
        if config.initial_subscription_name:
            command.initial_subscription_name = config.initial_subscription_name
        self._epoch += 1
        if name:
            command.producer_name = name
        if self.topic_epoch is not None and config.access_mode != "Shared":
            command.topic_epoch = self.topic_epoch
        return command
