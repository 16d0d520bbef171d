"""What comes before the end of a function: its instances have ended on every worker, and its subscriptions are removed.

The leader removes subscriptions while no other change can be decided, right before it writes that the function is gone.
Until then nobody can create a function of that name; from then on nothing of the old one is left to be done. So whoever
creates the function again prepares subscriptions that nobody removes, and finds none that the old one had moved. If the
leader dies in between the function is still there, stopped, and the request is repeated.

Rejected: removing them afterwards, while the name may be in use again. A check whether it is, and the removal, are two
steps; a new function's subscription is made between them now and then, and its messages are lost.
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
"""The one who lost the lock asks for it again, and may be faster; rarely twice."""

MayConsume = Callable[[FunctionMetaData, str], Awaitable[bool]]
"""Returns whether the owner of a function may use its subscription of a topic."""

_log = logging.getLogger(__name__)


async def everybody_may(_: FunctionMetaData, __: str) -> bool:
    """Return True: nobody asks who deployed a function."""
    return True


class Termination:
    """Waits for the end of all instances of a stopped function, and ends those that nobody answers for.

    Every worker that answers confirms the end itself, having read its assignments to the end. An instance of one that
    does not answer, and may go on at any time, loses its lock for good: the lock is replaced by a durable subscription
    of its name, which no instance of this incarnation of the function gets past (`instance.instance_lock`). With the
    lock goes its connection.
    """

    def __init__(self, instances: Instances, admin: BrokerAdmin, locks_topic: str) -> None:
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
            is_taken = await self._admin.create_subscription(self._locks_topic, lock)
            if is_taken or await self._admin.is_durable(self._locks_topic, lock):
                return
            await self._admin.delete_subscription(self._locks_topic, lock, is_forced=True)
        raise ConnectionLost(f"the lock {lock} could not be taken away in {_ATTEMPTS} attempts; try again")


class SubscriptionCleanup:
    """Removes subscriptions of functions."""

    def __init__(
        self,
        admin: BrokerAdmin,
        functions: Callable[[], Iterable[FunctionMetaData]],
        may_consume: MayConsume = everybody_may,
    ) -> None:
        """Prepare.

        Args:
            admin: removes, with the worker's rights.
            functions: returns all that there are, some of which may share a subscription.
            may_consume: says whether the owner of a function may use its subscription of a topic.
        """
        self._admin = admin
        self._functions = functions
        self._may_consume = may_consume

    async def remove(self, metadata: FunctionMetaData) -> None:
        """Remove the subscriptions of a function whose instances have ended, unless it keeps them.

        One that has the function's name is its own: whoever still holds it, say an instance on a machine that was cut
        off, is disconnected. One with another name may be somebody else's, too, and then it stays.

        Cancellation: some may be removed; call again.

        Raises:
            MagnetarError: the broker does not answer, or refuses.
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
        """Return the topics on which another function has the same subscription."""
        return {
            parse_topic_name(topic).text
            for other in self._functions()
            if fqfn(other) != name and subscription_of(other.functionDetails) == subscription
            for topic, given in other.functionDetails.source.inputSpecs.items()
            if not given.isRegexPattern
        }

    def _shared_patterns(self, name: str, subscription: str) -> list[TopicPattern]:
        """Return the patterns of topics on which another function has the same subscription."""
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
                "subscription %s of %s stays after %s is gone: its role may not consume there",
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
                    "subscription %s of %s stays after %s is gone: consumer %s uses it", subscription, topic, name, who
                )
                return
        await self._admin.delete_subscription(topic, subscription, is_forced=True)
