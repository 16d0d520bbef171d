"""Topics of one test's own: the function sees the names that it was given, the broker such as nobody else uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..client.client import AsyncClient
from ..client.config import ConsumerConfig, ProducerConfig
from ..wire.topic_name import parse_topic_name

_PARTITION = "-partition-"


class OwnTopics:
    """Opens inputs and outputs (`instance.ports.Endpoints`) under names with an ending of the test's own.

    Attributes:
        opened: full names, on the broker, of the topics that were used.
    """

    def __init__(self, client: AsyncClient, ending: str) -> None:
        """Prepare.

        Args:
            client: connects to the broker.
            ending: is appended to each topic's name.
        """
        self.opened: set[str] = set()
        self._client = client
        self._ending = ending

    def name(self, topic: str) -> str:
        """Return the full name of a topic on the broker; one that was returned before is returned as it is."""
        full, mark, partition = parse_topic_name(topic).text.partition(_PARTITION)
        if not full.endswith(self._ending):
            full += self._ending
        self.opened.add(full)
        return full + mark + partition

    async def partitions(self, topic: str) -> Sequence[str]:
        """See `Endpoints`."""
        return await self._client.partitions(self.name(topic))

    async def subscribe(self, topic: str, subscription: str, config: ConsumerConfig) -> Any:
        """See `Endpoints`."""
        return await self._client.subscribe(self.name(topic), subscription, config)

    async def create_producer(self, topic: str, config: ProducerConfig) -> Any:
        """See `Endpoints`."""
        return await self._client.create_producer(self.name(topic), config)
