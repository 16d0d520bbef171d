"""In-memory input topics with subscriptions and locks: the broker features that function instances need.

A subscription hands each message to one consumer at a time and again to another if the first goes; it begins where
whoever makes it says. A lock has one holder until that lets go, dies, or has it taken away.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from magnetar.errors import NotAllowed
from magnetar.instance.identity import lock_name
from magnetar.instance.spec import InstanceSpec
from magnetar.wire.functions_pb2 import EARLIEST, FunctionStatus, MetricsData


@dataclass(eq=False)
class Subscription:
    """Where a subscription stands.

    Attributes:
        waiting: indexes of messages that nobody has, in order.
        held: index and who has it.
        consumers: who is attached.
    """

    waiting: list[int] = field(default_factory=list)
    held: dict[int, SimulatedInstance] = field(default_factory=dict)
    consumers: set[SimulatedInstance] = field(default_factory=set)


class World:
    """All shared state apart from the logs."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        self.locks: dict[str, SimulatedInstance] = {}
        self.fenced: set[str] = set()
        self.done: dict[str, set[int]] = {}
        """By a function's id, which messages its instances have processed."""
        self.changed = asyncio.Event()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def publish(self, topic: str) -> int:
        """Add a message and return its index."""
        index = self.sent.get(topic, 0)
        self.sent[topic] = index + 1
        for (of, _), subscription in self.subscriptions.items():
            if of == topic:
                subscription.waiting.append(index)
        self._wake()
        return index

    def subscribe(self, topic: str, name: str, *, is_earliest: bool) -> Subscription:
        """Return a subscription, created if absent."""
        found = self.subscriptions.get((topic, name))
        if found is None:
            begin = 0 if is_earliest else self.sent.get(topic, 0)
            found = self.subscriptions[topic, name] = Subscription(list(range(begin, self.sent.get(topic, 0))))
        return found

    def detach(self, consumer: SimulatedInstance) -> None:
        """Detach a consumer from all subscriptions; its unacknowledged messages are redelivered."""
        for subscription in self.subscriptions.values():
            if consumer in subscription.consumers:
                subscription.consumers.discard(consumer)
                again = [index for index, holder in subscription.held.items() if holder is consumer]
                for index in again:
                    del subscription.held[index]
                subscription.waiting = sorted(subscription.waiting + again)
        self._wake()

    def unlock(self, holder: SimulatedInstance) -> None:
        """Release a lock if it is held."""
        if self.locks.get(holder.lock) is holder:
            del self.locks[holder.lock]

    def delete(self, topic: str, name: str, *, is_forced: bool) -> bool:
        """Delete a subscription; return False if it is in use and the deletion is not forced."""
        found = self.subscriptions.get((topic, name))
        if found is not None and found.consumers and not is_forced:
            return False
        self.subscriptions.pop((topic, name), None)
        self._wake()
        return True


class SimulatedInstance:
    """One instance: takes its lock, subscribes, processes and acknowledges, with a delay for each step."""

    def __init__(self, world: World, spec: InstanceSpec, chance: random.Random) -> None:
        self.key = spec.key
        self.lock = lock_name(spec.metadata, spec.instance_id)
        self._world = world
        self._chance = chance
        self._metadata = spec.metadata
        self._is_stopping = asyncio.Event()
        self._work = asyncio.create_task(self._run())

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.expovariate(50))

    async def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                await self._pause()
                if self.lock in self._world.fenced:
                    raise NotAllowed(f"the lock {self.lock} is refused")
                if self._world.locks.setdefault(self.lock, self) is not self:
                    continue
                await self._pause()
                await self._consume()
                await self._pause()
        finally:
            self._world.detach(self)
            self._world.unlock(self)

    async def _consume(self) -> None:
        source = self._metadata.functionDetails.source
        (topic,) = source.inputSpecs
        name = source.subscriptionName or self.key.rpartition(":")[0]
        if self._is_stopping.is_set() or self._world.locks.get(self.lock) is not self:
            return
        attached = self._world.subscribe(topic, name, is_earliest=source.subscriptionPosition == EARLIEST)
        attached.consumers.add(self)
        while not self._is_stopping.is_set() and self in attached.consumers:
            if self._world.subscriptions.get((topic, name)) is not attached:
                return
            if not attached.waiting:
                changed = asyncio.ensure_future(self._world.changed.wait())
                stopping = asyncio.ensure_future(self._is_stopping.wait())
                await asyncio.wait((changed, stopping), return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                stopping.cancel()
                continue
            index = attached.waiting.pop(0)
            attached.held[index] = self
            await self._pause()
            self._world.done.setdefault(self._metadata.functionUuid, set()).add(index)
            if self._chance.random() < 0.3:
                await self._pause()
            attached.held.pop(index, None)

    async def status(self) -> FunctionStatus:
        return FunctionStatus(running=not self._work.done())

    async def metrics(self) -> MetricsData:
        return MetricsData()

    async def stop(self, grace_s: float) -> None:
        self._is_stopping.set()
        await asyncio.wait((self._work,), timeout=grace_s)
        self._work.cancel()
        await asyncio.wait((self._work,))

    def kill(self) -> None:
        """Kill the instance, whatever it is doing."""
        self._work.cancel()

    def death(self) -> str:
        return ""

    def leftover(self) -> str:
        return ""

    async def wait(self) -> str:
        try:
            await asyncio.wait((self._work,))
        finally:
            if not self._work.done():
                self._work.cancel()  # the worker is killed
        return "" if self._work.cancelled() else str(self._work.exception() or "")


class SimulatedRuntime:
    """Starts instances, which all die with their worker."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance

    async def warm_up(self) -> None:
        """Nothing to warm up."""

    async def start(self, spec: InstanceSpec) -> SimulatedInstance:
        await asyncio.sleep(self._chance.expovariate(20))
        return SimulatedInstance(self._world, spec, self._chance)

    async def close(self) -> None:
        """Nothing is left."""
