"""Making sure of a function's subscriptions before the function exists.

With Apache Pulsar a new subscription begins where the topic ends at the moment when the first instance has started:
what is published between the answer to `create` and that moment is never processed. Here the subscription is there
before `create` is answered, so everything published afterwards is.
"""

from __future__ import annotations

import asyncio
import logging

from ..client.client import AsyncClient
from ..client.config import ConsumerConfig
from ..errors import MagnetarError
from ..wire.functions_pb2 import EARLIEST, FAILOVER, FunctionDetails

TIMEOUT_S = 5.0
_log = logging.getLogger(__name__)


class InputSubscriptions:
    """Opens subscriptions and leaves them to the instances."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def prepare(self, details: FunctionDetails) -> None:
        """Create the subscriptions of a function where absent.

        A topic that cannot be subscribed to is no reason to refuse the function: its instances try on, and say why in
        their status.
        """
        source = details.source
        name = source.subscriptionName or f"{details.tenant}/{details.namespace}/{details.name}"
        config = ConsumerConfig(
            type="Failover" if source.subscriptionType == FAILOVER else "Shared",
            initial_position="Earliest" if source.subscriptionPosition == EARLIEST else "Latest",
            receiver_queue_size=0,
        )
        await asyncio.gather(*(self._open_and_close(topic, name, config) for topic in source.inputSpecs))

    async def _open_and_close(self, topic: str, name: str, config: ConsumerConfig) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                consumer = await self._client.subscribe(topic, name, config)
                await consumer.close()
        except (MagnetarError, TimeoutError) as exc:
            _log.warning("subscription %s of %s could not be prepared: %s", name, topic, exc or type(exc).__name__)
