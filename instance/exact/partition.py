"""An input partition of an instance: its consumer, and one tenure after the other as the broker gives and takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ...api.serde import SerDe
from ...client.config import ConsumerConfig
from ...client.consumers.consumer import Consumer
from ...tasks.supervised import race
from .activation import Tenure, Workplace


class InputPartition:
    """One partition, or a topic that has none."""

    def __init__(self, work: Workplace, topic: str, serde: SerDe, producer_name: str) -> None:
        """Prepare.

        Args:
            work: of the instance.
            topic: full name of the partition.
            serde: decodes its messages.
            producer_name: of all producers that send what its entries make.
        """
        self.topic = topic
        self._work = work
        self._serde = serde
        self._producer_name = producer_name
        self._consumer: Consumer | None = None
        self._tenure: Tenure | None = None
        self._active = asyncio.Event()
        self._over = asyncio.Event()  # of the tenure: it stays over, however soon the partition is ours again

    async def open(self, subscription: str, config: ConsumerConfig) -> None:
        """Subscribe.

        Raises:
            MagnetarError: the broker refuses.
        """
        config = replace(config, on_active_change=self._change)
        consumer = await self._work.client.subscribe(self.topic, subscription, config)
        assert isinstance(consumer, Consumer)
        self._consumer = consumer

    def _change(self, is_active: bool) -> None:
        if is_active:
            self._active.set()
        else:
            self._active.clear()
            self._over.set()
            if self._tenure is not None:
                self._tenure.is_over = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is in work."""
        return self._tenure is None or self._tenure.is_idle

    @property
    def waits_for(self) -> str:
        """Why it cannot be processed although it is ours; empty if nothing hinders."""
        return "" if self._tenure is None else self._tenure.waits_for

    async def run(self) -> None:
        """Process the partition whenever it is ours, until cancelled.

        Cancellation: what is under way stays so; `close` gives it up.

        Raises:
            MagnetarError: the instance cannot go on.
        """
        assert self._consumer is not None
        while True:
            await self._active.wait()
            over = self._over = asyncio.Event()
            if not self._active.is_set():
                continue  # lost again before this turn
            confirmed = None if self._tenure is None else self._tenure.confirmed
            tenure = self._tenure = Tenure(self._work, self._consumer, self._serde, self._producer_name, confirmed)
            await race(_wait(over), _serve(tenure, over))
            await tenure.leave()

    def clear_outbox(self) -> None:
        """Have the state store forget what is published, if nothing is in work that would do it on its way."""
        if self._tenure is not None and not self._tenure.is_over:
            self._tenure.clear_outbox()

    async def settle(self) -> None:
        """Wait until nothing is in work, and its input is acknowledged. Cancellation: safe."""
        if self._tenure is not None:
            await self._tenure.settle()

    async def close(self) -> None:
        """Give up what is under way and close producers, lock and consumer."""
        if self._tenure is not None:
            await self._tenure.close()
        if self._consumer is not None:
            await self._consumer.close()


async def _serve(tenure: Tenure, over: asyncio.Event) -> None:
    try:
        await tenure.serve()
    except Exception:
        if not over.is_set():
            raise
        # It failed because the partition was lost; what is wrong beside comes again.


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def open_all(partitions: Sequence[InputPartition], subscription: str, config: ConsumerConfig) -> None:
    """Subscribe to partitions, to all or to none.

    Cancellation: close them.

    Raises:
        MagnetarError: the broker refuses one.
    """
    opening = (partition.open(subscription, config) for partition in partitions)
    for error in await asyncio.gather(*opening, return_exceptions=True):
        if error is not None:
            await asyncio.gather(*(partition.close() for partition in partitions))
            raise error
