"""Receives from all topics whose names a pattern takes, whichever they are at the moment.

Design: one task compares the topics that there are with those that are consumed, and subscribes to what is new. It
knows the topics from a watch where the broker offers one, and else asks for them now and then; it also asks now and
then while it watches, as Java's client does. A topic that was deleted is left when its consumer learns of it, or when
the list says so. A topic that refuses does not keep the others waiting; it is asked again the next time.
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
    """A consumer of all topics that a pattern takes; with the methods of `Consumer`."""

    def __init__(
        self,
        pattern: TopicPattern,
        subscription: str,
        consumers: Sequence[Consumer],
        subscribe: Callable[[str], Awaitable[Consumer]],
    ) -> None:
        """Take the consumers of the topics that there are.

        Args:
            pattern: which topics.
            subscription: name.
            consumers: subscribed, with which it begins.
            subscribe: returns a consumer of one more topic, given by its full name.
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
            log.info("%s: topic %s is gone", self.topic, consumer.topic)
            del self.consumers[consumer.topic]
        consumer.on_arrival = None
        if consumer in self._in_line:
            self._in_line.discard(consumer)
            self._line.remove(consumer)

    def _owner(self, what: Message | ReceivedEntry | MessageId) -> Consumer:
        if not isinstance(what, MessageId) and what.topic not in self.consumers:
            raise ClosedError(f"topic {what.topic} is gone, and with it message {what.message_id}")
        return super()._owner(what)

    def keep_matching(
        self, interval_s: float, list_topics: Callable[[], Awaitable[Collection[str]]], watch: TopicWatch | None
    ) -> None:
        """Follow the topics from now on (called by the client).

        Args:
            interval_s: how often topics are asked for; 0 never does, and does not watch.
            list_topics: returns the full names of the topics of the namespace.
            watch: not begun, or None.
        """
        if not interval_s:
            return
        self._watch = watch
        if watch is not None:
            watch.begin()
        self._tasks.keep(lambda: self._follow(interval_s, list_topics), "look for topics", longest_pause_s=interval_s)

    def topics_changed(self) -> None:
        """Look at the watch soon (called by it)."""
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
                log.warning("%s: cannot look for topics, next try in %s s: %s", self.topic, interval_s, error)

    async def take_topics(self, topics: Collection[str]) -> None:
        """Consume these topics, as far as the pattern takes them, and no others.

        Cancellation: some of them may be consumed.
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
            return  # it has gone meanwhile
        except MagnetarError as error:
            log.warning("%s: topic %s is not consumed for now: %s", self.topic, topic, error)
            return
        log.info("%s: new topic %s", self.topic, topic)
        self._add(consumer)

    async def unsubscribe(self) -> None:
        """Delete the subscription of every topic that there is now, and close; as `Consumer.unsubscribe`."""
        await self._end_watch()
        await super().unsubscribe()

    async def close(self) -> None:
        """Close the consumers of all topics; as `Consumer.close`."""
        await self._end_watch()
        await super().close()

    async def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()
