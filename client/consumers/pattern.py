"""Receives from all topics that currently match a pattern.

Design: one task compares the existing topics with the consumed ones, and subscribes to new ones. It polls the list of
topics and, if the broker supports it, also watches it, like Java's client. A deleted topic is dropped when its consumer
fails or the list no longer contains it. If subscribing to a topic fails, the others are not delayed, and the next check
retries it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from ...errors import ClosedError, MagnetarError, TopicNotFound
from ...tasks import within
from ...wire.message_id import MessageId
from ..connections.topic_watch import TopicWatch
from .consumer import Consumer
from .merged import MergedConsumer
from .received import Message, ReceivedEntry
from .topic_pattern import TopicPattern

log = logging.getLogger(__name__)


class PatternConsumer(MergedConsumer):
    """A consumer of all topics that match a pattern, with the methods of `Consumer`."""

    def __init__(
        self,
        pattern: TopicPattern,
        subscription: str,
        consumers: Sequence[Consumer],
        subscribe: Callable[[str], Awaitable[Consumer]],
    ) -> None:
        """Create a consumer from the consumers of existing topics.

        Args:
            pattern: pattern of topic names.
            subscription: subscription name.
            consumers: the initial consumers, already subscribed.
            subscribe: subscribes to another topic, by full name, and returns the consumer.
        """
        super().__init__(pattern.text, subscription, consumers)
        self._pattern = pattern
        self._subscribe = subscribe
        self._watch: TopicWatch | None = None
        self._changed = asyncio.Event()

    def _arrived(self, consumer: Consumer) -> None:
        if isinstance(consumer.failure, TopicNotFound):
            self._remove(consumer)
        else:
            super()._arrived(consumer)

    def _remove(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.topic) is consumer:
            log.info("%s: removed topic %s", self.topic, consumer.topic)
            del self.consumers[consumer.topic]
        consumer.on_arrival = None
        if consumer in self._in_line:
            self._in_line.discard(consumer)
            self._line.remove(consumer)

    def _owner(self, what: Message | ReceivedEntry | MessageId) -> Consumer:
        if not isinstance(what, MessageId) and what.topic not in self.consumers:
            raise ClosedError(f"topic {what.topic} of message {what.message_id} was removed from the consumer")
        return super()._owner(what)

    def keep_matching(
        self, interval_s: float, list_topics: Callable[[], Awaitable[Collection[str]]], watch: TopicWatch | None
    ) -> None:
        """Start tracking the matching topics (called by the client).

        Args:
            interval_s: polling interval; 0 disables polling and watching.
            list_topics: returns the full names of the namespace's topics.
            watch: a watch that has not been started, or None.
        """
        if not interval_s:
            return
        self._watch = watch
        if watch is not None:
            watch.begin()
        self._tasks.keep(lambda: self._follow(interval_s, list_topics), "look for topics", longest_pause_s=interval_s)

    def topics_changed(self) -> None:
        """Schedule a check of the watched topics (called by the watch)."""
        self._changed.set()

    async def _follow(self, interval_s: float, list_topics: Callable[[], Awaitable[Collection[str]]]) -> None:
        while True:
            await within(interval_s, self._changed.wait())
            is_told = self._changed.is_set()
            self._changed.clear()
            try:
                watched = self._watch.topics if is_told and self._watch is not None else None
                await self.take_topics(watched if watched is not None else await list_topics())
            except MagnetarError as error:
                log.warning("%s: cannot list topics, retrying in %s s: %s", self.topic, interval_s, error)

    async def take_topics(self, topics: Collection[str]) -> None:
        """Consume exactly the given topics that match the pattern.

        Cancellation: only some of the changes may have been made.
        """
        wanted = {topic for topic in topics if self._pattern.takes(topic)}
        for topic in sorted(self.consumers.keys() - wanted):
            consumer = self.consumers[topic]
            self._remove(consumer)
            await consumer.close()
        await asyncio.gather(*(self._take_topic(topic) for topic in sorted(wanted - self.consumers.keys())))

    async def _take_topic(self, topic: str) -> None:
        try:
            consumer = await self._subscribe(topic)
        except TopicNotFound:
            return  # the topic was deleted meanwhile
        except MagnetarError as error:
            log.warning("%s: cannot consume topic %s yet: %s", self.topic, topic, error)
            return
        log.info("%s: added new topic %s", self.topic, topic)
        self._add(consumer)

    async def unsubscribe(self) -> None:
        """Delete the subscription of every current topic, and close; see `Consumer.unsubscribe`."""
        await self._end_watch()
        await super().unsubscribe()

    async def close(self) -> None:
        """Close the consumers of all topics; see `Consumer.close`."""
        await self._end_watch()
        await super().close()

    async def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()
