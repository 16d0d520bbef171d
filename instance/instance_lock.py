"""Lock an instance number, so that a cluster runs only one instance with that number.

An instance does nothing on a connection before it holds its lock there (`client/lock.py` describes the guarantees). So
a successor on another worker waits until the previous instance has closed everything, or until the broker has dropped
its connection. An instance that was frozen until its successor ran sends nothing when it resumes.

The lock belongs to one incarnation of the function, by its id, so it can be revoked permanently: if the locks topic has
a durable subscription with the lock's name, brokers reject the lock, which is a non-durable subscription.
"""

from __future__ import annotations

import asyncio

from ..client.client import AsyncClient
from ..client.config import Guard
from ..tasks import race
from .identity import lock_name
from .spec import InstanceSpec


class InstanceLock:
    """An instance's lock, which has no effect if the spec has no locks topic.

    Attributes:
        guard: guard for every producer and consumer of the instance.
    """

    def __init__(self, spec: InstanceSpec, client: AsyncClient) -> None:
        """Create the lock without requesting it."""
        self._topic = spec.locks_topic
        name = lock_name(spec.metadata, spec.instance_id)
        self._lock = client.create_lock(spec.locks_topic, name, spec.worker_id) if spec.locks_topic else None
        self.guard: Guard | None = self._lock.cover if self._lock is not None else None

    async def acquire(self, ended: asyncio.Future[str]) -> None:
        """Wait for the lock, or until the instance ends.

        Cancellation: the request for the lock remains pending until `close`.

        Raises:
            MagnetarError: the broker permanently rejects the request.
        """
        if self._lock is None:
            return
        await race(self._lock.acquire(), asyncio.wait((ended,)))

    async def wait_failed(self) -> None:
        """Wait forever, or raise if the lock is permanently rejected. Cancellation: safe."""
        if self._lock is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._lock.wait_failed()

    def trouble(self) -> str:
        """Return what the instance is waiting for, or an empty string (from any thread)."""
        waits_for = "" if self._lock is None else self._lock.waits_for
        return f"waiting for the instance's lock: {waits_for}" if waits_for else ""

    async def close(self) -> None:
        """Release the lock for a successor; must be called last."""
        if self._lock is not None:
            await self._lock.close()
