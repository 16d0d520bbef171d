"""Creation of a function's subscriptions, before the function exists.

With Apache Pulsar a new subscription begins where the topic ends at the moment when the first instance has started:
what is published between the answer to `create` and that moment is never processed. Here the subscription is there
before `create` is answered, so everything published afterwards is.
"""

from __future__ import annotations

import asyncio
import logging

from ...client.client import AsyncClient
from ...client.config import ConsumerConfig
from ...errors import ConnectionLost, MagnetarError, OperationTimeout, UnknownBrokerError
from ...wire.functions_pb2 import EARLIEST, FAILOVER, FunctionDetails
from ..cluster.broker_admin import BrokerAdmin

TIMEOUT_S = 5.0
_log = logging.getLogger(__name__)


class InputSubscriptions:
    """Opens subscriptions and leaves them to the instances."""

    def __init__(self, client: AsyncClient, admin: BrokerAdmin) -> None:
        self._client = client
        self._admin = admin

    async def prepare(self, details: FunctionDetails) -> None:
        """Create the subscriptions of a function where absent.

        A topic that the broker does not let us subscribe to is no reason to refuse the function: its instances try on,
        and say why in their status.

        Raises:
            ConnectionLost: the broker does not answer; ask again.
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
                return
        except (ConnectionLost, OperationTimeout, TimeoutError):
            pass  # or it is there, and its only consumer keeps us out
        except MagnetarError as exc:
            _log.warning("subscription %s of %s could not be prepared: %s", name, topic, exc)
            return
        try:
            is_earliest = config.initial_position == "Earliest"
            await self._admin.create_subscription(topic, name, is_earliest=is_earliest)
        except UnknownBrokerError as exc:
            _log.warning("subscription %s of %s could not be prepared: %s", name, topic, exc)
