"""Steps before a function is deleted: wait until its instances have ended on all workers, remove its subscriptions.

The leader removes the subscriptions immediately before it writes the deletion, while no other change can be decided.
The name cannot be reused until the deletion is written, and afterwards there is nothing left to clean up. A new
function with the same name therefore never loses its subscriptions to a late cleanup and never inherits old cursors. If
the leader dies before it writes the deletion, the function still exists in the stopped state, and the request is
retried.

Rejected alternative: removing the subscriptions after the deletion, when the name may be in use again. Checking the
name and removing the subscription are two steps, so a new function could subscribe between them and lose its messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from ...client.consumers.topic_pattern import TopicPattern
from ...config.batch_source import is_batch, task_topic
from ...errors import ConnectionLost
from ...instance.identity import lock_name
from ...instance.topic_patterns import patterns_of, takes
from ...metadata.functions import fqfn
from ...wire.functions_pb2 import FunctionMetaData
from ...wire.topic_name import parse_topic_name
from ..cluster.broker_admin import BrokerAdmin
from .inputs import inputs_of
from .instances import Instances
from .prerequisites import subscription_of
from .service import FunctionName

_ATTEMPTS = 10
"""Attempts to replace a lock; its previous holder may reacquire it first, but rarely more than once."""

MayConsume = Callable[[FunctionMetaData, str], Awaitable[bool]]
"""Returns whether a function's owner may use its subscription on a topic."""

_log = logging.getLogger(__name__)


async def everybody_may(_: FunctionMetaData, __: str) -> bool:
    """Return True, for use without authorization."""
    return True


class Termination:
    """Waits until all instances of a stopped function have ended, and fences those on unresponsive workers.

    Responsive workers read their assignments to the end and then confirm. An unresponsive worker might resume at any
    time, so its instances permanently lose their locks: each lock is replaced with a durable subscription of the same
    name, which no instance of this incarnation can acquire (`instance.instance_lock`). Losing the lock also closes the
    instance's connection.
    """

    def __init__(self, instances: Instances, admin: BrokerAdmin, locks_topic: str) -> None:
        self._instances = instances
        self._admin = admin
        self._locks_topic = locks_topic

    async def run(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        """Return once no instance of a function with a stopped record is running.

        Cancellation: some locks may have been replaced; call again.

        Raises:
            RequestRefused: the function was restarted meanwhile.
            MagnetarError: the broker did not answer.
        """
        while not await self._instances.settle(name, metadata):
            pass
        silent = await self._instances.not_ended(name)
        if not silent:
            return
        _log.warning("taking over the locks of %s: %s did not answer", name, ", ".join(sorted(silent)))
        for number in range(metadata.functionDetails.parallelism):
            await self._take_away(lock_name(metadata, number))

    async def _take_away(self, lock: str) -> None:
        for _ in range(_ATTEMPTS):
            is_taken = await self._admin.create_subscription(self._locks_topic, lock)
            if is_taken or await self._admin.is_durable(self._locks_topic, lock):
                return
            await self._admin.delete_subscription(self._locks_topic, lock, is_forced=True)
        raise ConnectionLost(f"cannot take over the lock {lock} after {_ATTEMPTS} attempts: retry")


class SubscriptionCleanup:
    """Removes the subscriptions of deleted functions."""

    def __init__(
        self,
        admin: BrokerAdmin,
        functions: Callable[[], Iterable[FunctionMetaData]],
        may_consume: MayConsume = everybody_may,
    ) -> None:
        """Create the cleanup.

        Args:
            admin: removes subscriptions, with the worker's permissions.
            functions: returns all functions, some of which may share a subscription.
            may_consume: returns whether a function's owner may use its subscription on a topic.
        """
        self._admin = admin
        self._functions = functions
        self._may_consume = may_consume

    async def remove(self, metadata: FunctionMetaData) -> None:
        """Remove the subscriptions of a function whose instances have ended, unless it keeps them.

        A subscription that is named after the function belongs to it, so remaining consumers, such as an instance on a
        partitioned machine, are disconnected. A subscription with another name is kept if other consumers use it.

        Cancellation: some subscriptions may have been removed; call again.

        Raises:
            MagnetarError: the broker did not answer or rejected the request.
        """
        source = metadata.functionDetails.source
        if is_batch(metadata.functionDetails):
            await self._admin.delete_topic(task_topic(metadata.functionDetails))
        if not source.cleanupSubscription:
            return
        name, subscription = fqfn(metadata), subscription_of(metadata.functionDetails)
        shared = self._shared_topics(name, subscription)
        patterns = self._shared_patterns(name, subscription)
        inputs = await inputs_of(metadata.functionDetails, self._admin)
        topics = [
            topic
            for topic in inputs
            if parse_topic_name(topic).text not in shared and not any(takes(one, topic) for one in patterns)
        ]
        await asyncio.gather(*(self._remove(topic, subscription, metadata) for topic in topics))

    def _shared_topics(self, name: str, subscription: str) -> set[str]:
        """Return the topics on which another function uses the same subscription."""
        return {
            parse_topic_name(topic).text
            for other in self._functions()
            if fqfn(other) != name and subscription_of(other.functionDetails) == subscription
            for topic, given in other.functionDetails.source.inputSpecs.items()
            if not given.isRegexPattern
        }

    def _shared_patterns(self, name: str, subscription: str) -> list[TopicPattern]:
        """Return the topic patterns on which another function uses the same subscription."""
        return [
            pattern
            for other in self._functions()
            if fqfn(other) != name and subscription_of(other.functionDetails) == subscription
            for pattern in patterns_of(other.functionDetails).values()
        ]

    async def _remove(self, topic: str, subscription: str, metadata: FunctionMetaData) -> None:
        name = fqfn(metadata)
        if not await self._may_consume(metadata, topic):
            _log.warning(
                "kept subscription %s of %s after %s was deleted: the function's role may not consume from the topic",
                subscription,
                topic,
                name,
            )
            return
        if await self._admin.delete_subscription(topic, subscription):
            return
        if subscription != name:
            consumers = await self._admin.subscribers(topic, subscription)
            others = [one for one in consumers if (one.get("metadata") or {}).get("id") != name]
            if others:
                who = others[0].get("consumerName", "")
                _log.warning(
                    "kept subscription %s of %s after %s was deleted: in use by consumer %s",
                    subscription,
                    topic,
                    name,
                    who,
                )
                return
        await self._admin.delete_subscription(topic, subscription, is_forced=True)
