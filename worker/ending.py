"""Making sure that nothing of a stopped function runs any more, on any worker.

Every worker that answers says so itself, having read its assignments to the end. An instance of one that does not
answer is cut off from the broker: its lock is taken from it, and with the lock its connection.
"""

from __future__ import annotations

import logging

from ..metadata.functions_state import fqfn
from ..wire.functions_pb2 import FunctionMetaData
from .broker_admin import BrokerAdmin
from .functions import FunctionName
from .instances import Instances

_log = logging.getLogger(__name__)


class Ending:
    """Waits for the end of instances, and ends those that nobody answers for."""

    def __init__(self, instances: Instances, admin: BrokerAdmin, locks_topic: str) -> None:
        self._instances = instances
        self._admin = admin
        self._locks_topic = locks_topic

    async def run(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        """Return when no instance of a function runs whose record says that all are stopped.

        Cancellation: safe; call again.

        Raises:
            RequestRefused: somebody has started it again.
            MagnetarError: the broker does not answer.
        """
        while not await self._instances.settle(name, metadata):
            pass
        silent = await self._instances.not_ended(name)
        if silent:
            await self._evict(fqfn(metadata), sorted(silent))

    async def _evict(self, name: str, silent: list[str]) -> None:
        stats = await self._admin.topic_stats(self._locks_topic)
        for lock, held in stats.get("subscriptions", {}).items():
            function, _, number = lock.rpartition(":")
            if function == name and number.isdigit() and held.get("consumers"):
                _log.warning("the lock of %s is taken from its instance: %s does not answer", lock, ", ".join(silent))
                await self._admin.delete_subscription(self._locks_topic, lock, is_forced=True)
