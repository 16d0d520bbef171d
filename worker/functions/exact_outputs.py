"""Preparation of output topics for EFFECTIVELY_ONCE, before a function exists.

The broker drops duplicates only on topics where that is switched on. The worker does so by the topic's policy, which
concerns no other topic, and reads it back: a function whose guarantee would not hold is refused instead.
"""

from __future__ import annotations

import asyncio

from ...client.deduplication import DeduplicationOff, partitions_of, switch_on
from ...errors import RequestRefused
from ...wire.functions_pb2 import EFFECTIVELY_ONCE, FunctionDetails
from .spark_readiness import is_spark


class ExactOutputs:
    """Prepares output topics."""

    def __init__(self, admin_url: str, state_url: str) -> None:
        """Prepare topics of the broker at ``admin_url``; ``state_url`` is empty if there is no state store."""
        self._admin_url = admin_url
        self._has_state_store = bool(state_url)

    async def prepare(self, details: FunctionDetails) -> None:
        """Switch deduplication on for the output topic of a function that needs it.

        Cancellation: the topic may have been created, and deduplication switched on.

        Raises:
            RequestRefused: that is not possible, or the function would need a state store and there is none.
            ConnectionLost: the broker does not answer; ask again.
        """
        topic = details.sink.topic
        if not topic or (details.processingGuarantees != EFFECTIVELY_ONCE and not is_spark(details)):
            return
        if not self._has_state_store and (count := await asyncio.to_thread(partitions_of, self._admin_url, topic)):
            raise RequestRefused(
                400,
                f"output topic {topic} has {count} partitions, and EFFECTIVELY_ONCE commits outputs for several through"
                " the state store; set stateStorageServiceUrl in the worker's configuration, or use an output topic"
                " without partitions",
            )
        try:
            await asyncio.to_thread(switch_on, self._admin_url, topic)
        except DeduplicationOff as exc:
            why = "outputs of a Spark function are there exactly once: " if is_spark(details) else ""
            raise RequestRefused(400, f"{why}{exc}") from exc
