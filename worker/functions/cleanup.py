"""Removal of the subscriptions of a function that is about to be deleted.

The leader does it while no other change can be decided, right before it writes that the function is gone. Until then
nobody can create a function of that name; from then on nothing of the old one is left to be done. So whoever creates
the function again prepares subscriptions that nobody removes, and finds none that the old one had moved. If the leader
dies in between the function is still there, stopped, and the request is repeated.

Rejected: removing them afterwards, while the name may be in use again. A check whether it is, and the removal, are two
steps; a new function's subscription is made between them now and then, and its messages are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ...metadata.function_table import fqfn
from ...wire.functions_pb2 import FunctionMetaData
from ...wire.topic_name import parse_topic_name

_log = logging.getLogger(__name__)


class Subscriptions(Protocol):
    """Subscriptions of the broker; `broker_admin` implements it."""

    async def subscribers(self, topic: str, subscription: str) -> list[Mapping[str, Any]]:
        """Return the statistics of the consumers of a subscription."""

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        """Delete a subscription; returns False while it is in use and that is not forced."""


class SubscriptionCleanup:
    """Removes subscriptions of functions."""

    def __init__(self, admin: Subscriptions, functions: Callable[[], Iterable[FunctionMetaData]]) -> None:
        """Remove by `admin`; `functions` returns all that there are, some of which may share a subscription."""
        self._admin = admin
        self._functions = functions

    async def remove(self, metadata: FunctionMetaData) -> None:
        """Remove the subscriptions of a function whose instances have ended, unless it keeps them.

        One that has the function's name is its own: whoever still holds it, say an instance on a machine that was cut
        off, is disconnected. One with another name may be somebody else's, too, and then it stays.

        Cancellation: some may be removed; call again.

        Raises:
            MagnetarError: the broker does not answer, or refuses.
        """
        source = metadata.functionDetails.source
        if not source.cleanupSubscription:
            return
        name = fqfn(metadata)
        subscription = source.subscriptionName or name
        shared = self._shared_topics(name, subscription)
        topics = [topic for topic in source.inputSpecs if parse_topic_name(topic).text not in shared]
        await asyncio.gather(*(self._remove(topic, subscription, name) for topic in topics))

    def _shared_topics(self, name: str, subscription: str) -> set[str]:
        """Return the topics on which another function has the same subscription."""
        return {
            parse_topic_name(topic).text
            for other in self._functions()
            if fqfn(other) != name and (other.functionDetails.source.subscriptionName or fqfn(other)) == subscription
            for topic in other.functionDetails.source.inputSpecs
        }

    async def _remove(self, topic: str, subscription: str, name: str) -> None:
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
