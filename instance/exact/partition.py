"""An input partition of an instance: its consumer, and its activations as it is assigned and lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ...api.serde import SerDe
from ...client.config import ConsumerConfig
from ...client.consumers.merged import MergedConsumer
from ...tasks.supervised import race
from ..ports import OrderedInput
from .activation import Activation

if TYPE_CHECKING:
    from .effectively_once import EffectivelyOnce


class InputPartition:
    """A partition of an input, or an unpartitioned topic."""

    def __init__(self, owner: EffectivelyOnce, topic: str, serde: SerDe, producer_name: str) -> None:
        """Create an unopened partition.

        Args:
            owner: settlement of the instance.
            topic: full name of the partition.
            serde: decodes the partition's messages.
            producer_name: name of all producers of the partition's results.
        """
        self.topic = topic
        self._owner = owner
        self._serde = serde
        self._producer_name = producer_name
        self._consumer: OrderedInput | None = None
        self._activation: Activation | None = None
        self._active = asyncio.Event()
        self._over = asyncio.Event()  # one per activation: it remains set even if the partition is regained immediately

    async def open(self, subscription: str, config: ConsumerConfig) -> None:
        """Subscribe to the partition.

        Raises:
            MagnetarError: the broker rejects the subscription.
        """
        config = replace(config, on_active_change=self._change)
        consumer = await self._owner.endpoints.subscribe(self.topic, subscription, config)
        assert not isinstance(consumer, MergedConsumer)
        self._consumer = cast(OrderedInput, consumer)  # a Failover consumer of a single partition

    def _change(self, is_active: bool) -> None:
        if is_active:
            self._active.set()
        else:
            self._active.clear()
            self._over.set()
            if self._activation is not None:
                self._activation.is_over = True

    @property
    def waits_for(self) -> str:
        """Why the assigned partition cannot be processed, or an empty string."""
        return "" if self._activation is None else self._activation.waits_for

    async def run(self) -> None:
        """Process the partition whenever it is assigned to this instance, until cancelled.

        Cancellation: work in progress remains; `close` abandons it.

        Raises:
            MagnetarError: the instance cannot continue.
        """
        assert self._consumer is not None
        while True:
            await self._active.wait()
            over = self._over = asyncio.Event()
            if not self._active.is_set():
                continue  # lost again meanwhile
            confirmed = None if self._activation is None else self._activation.confirmed
            activation = self._activation = Activation(
                self._owner, self._consumer, self._serde, self._producer_name, confirmed
            )
            await race(over.wait(), _serve(activation, over))
            await activation.leave()

    def clear_outbox(self) -> None:
        """Make the state store delete published outputs, unless work in progress does so anyway."""
        if self._activation is not None and not self._activation.is_over:
            self._activation.clear_outbox()

    async def settle(self) -> None:
        """Wait until all work is finished and its input is acknowledged. Cancellation: safe."""
        if self._activation is not None:
            await self._activation.settle()

    async def close(self) -> None:
        """Abandon work in progress, and close producers, lock and consumer."""
        if self._activation is not None:
            await self._activation.close()
        if self._consumer is not None:
            await self._consumer.close()


async def _serve(activation: Activation, over: asyncio.Event) -> None:
    try:
        await activation.serve()
    except Exception:
        if not over.is_set():
            raise
        # Losing the partition caused the error; any other error will recur.


async def open_all(partitions: Sequence[InputPartition], subscription: str, config: ConsumerConfig) -> None:
    """Subscribe to all partitions, or to none if one fails.

    Cancellation: the caller must close the partitions.

    Raises:
        MagnetarError: the broker rejects a subscription.
    """
    opening = (partition.open(subscription, config) for partition in partitions)
    for error in await asyncio.gather(*opening, return_exceptions=True):
        if error is not None:
            await asyncio.gather(*(partition.close() for partition in partitions))
            raise error
