"""Termination of all instances of a stopped function, on every worker.

Every worker that answers confirms the end itself, having read its assignments to the end. An instance of one that does
not answer, and may go on at any time, loses its lock for good: the lock is replaced by a durable subscription of its
name, which no instance of this incarnation of the function gets past (`instance.instance_lock`). With the lock goes its
connection.
"""

from __future__ import annotations

import logging
from typing import Protocol

from ...errors import ConnectionLost
from ...instance.instance_lock import lock_name
from ...wire.functions_pb2 import FunctionMetaData
from .instances import Instances
from .service import FunctionName

_ATTEMPTS = 10
"""The one who lost the lock asks for it again, and may be faster; rarely twice."""

_log = logging.getLogger(__name__)


class Locks(Protocol):
    """Subscriptions of the broker; `broker_admin` implements it."""

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        """Delete a subscription; returns False while it is in use and that is not forced."""

    async def create_subscription(self, topic: str, subscription: str) -> bool:
        """Create a durable subscription; returns False if there is one of that name."""

    async def is_durable(self, topic: str, subscription: str) -> bool:
        """Return whether there is a durable subscription of that name."""


class Termination:
    """Waits for the end of instances, and ends those that nobody answers for."""

    def __init__(self, instances: Instances, admin: Locks, locks_topic: str) -> None:
        self._instances = instances
        self._admin = admin
        self._locks_topic = locks_topic

    async def run(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        """Return when no instance of a function runs whose record says that all are stopped.

        Cancellation: some locks may be taken away; call again.

        Raises:
            RequestRefused: somebody has started it again.
            MagnetarError: the broker does not answer.
        """
        while not await self._instances.settle(name, metadata):
            pass
        silent = await self._instances.not_ended(name)
        if not silent:
            return
        _log.warning("the locks of %s are taken away: %s does not answer", name, ", ".join(sorted(silent)))
        for number in range(metadata.functionDetails.parallelism):
            await self._take_away(lock_name(metadata, number))

    async def _take_away(self, lock: str) -> None:
        for _ in range(_ATTEMPTS):
            if await self._admin.create_subscription(self._locks_topic, lock):
                return
            if await self._admin.is_durable(self._locks_topic, lock):
                return
            await self._admin.delete_subscription(self._locks_topic, lock, is_forced=True)
        raise ConnectionLost(f"the lock {lock} could not be taken away in {_ATTEMPTS} attempts; try again")
