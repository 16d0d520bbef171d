"""A consumer with interceptors or statistics. Consumers with neither use another class."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from ...errors import InvalidConfig, MagnetarError
from ...wire.message_id import MessageId
from ...wire.topic_name import TopicName
from ..config import ConsumerConfig
from ..connections.attachment import Attachment
from ..interceptors import ConsumerInterceptor
from ..statistics import ConsumerCounts, ConsumerStatistics
from .consumer import Consumer
from .received import EntryKey, Message, ReceivedEntry, given_id
from .tracked import Services, TrackedConsumer

log = logging.getLogger(__name__)


def make_consumer(
    topic: TopicName,
    subscription: str,
    consumer_id: int,
    config: ConsumerConfig,
    attachment: Attachment,
    services: Services,
) -> Consumer:
    """Return an unsubscribed consumer of the class that the settings require."""
    if config.interceptors or services.counts:
        return ObservedConsumer(topic, subscription, consumer_id, config, attachment, services)
    if config.dead_letter_policy is not None or config.unacked_messages_timeout_ms:
        return TrackedConsumer(topic, subscription, consumer_id, config, attachment, services)
    return Consumer(topic, subscription, consumer_id, config, attachment)


class ObservedConsumer(TrackedConsumer):
    """A consumer with interceptors, statistics, or both.

    Attributes:
        counts: the counters.
    """

    def __init__(
        self,
        topic: TopicName,
        subscription: str,
        consumer_id: int,
        config: ConsumerConfig,
        attachment: Attachment,
        services: Services,
    ):
        super().__init__(topic, subscription, consumer_id, config, attachment, services)
        self._interceptors: Sequence[ConsumerInterceptor] = tuple(config.interceptors)
        self.counts = ConsumerCounts()

    def statistics(self) -> ConsumerStatistics:
        """Return the consumer's statistics."""
        return self.counts.statistics(self.queued_messages)

    def poll(self) -> Message | None:
        """Return the next message if one is queued; see `Consumer.poll`."""
        message = super().poll()
        if message is None:
            return None
        self.counts.received.add(1, len(message.data))
        for interceptor in self._interceptors:
            try:
                message = interceptor.before_consume(self, message)
            except Exception:
                log.exception("%s: before_consume of %r raised", self.topic, interceptor)
        return message

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry if one is queued; see `Consumer.poll_entry`.

        Raises:
            InvalidConfig: the consumer has interceptors, which require messages.
        """
        if self._interceptors:
            raise InvalidConfig(
                f"consumer of {self.topic} has interceptors, which do not support entries: receive messages instead"
            )
        entry = super().poll_entry()
        if entry is not None:
            self.counts.received.add(entry.permits, entry.body_bytes)
        return entry

    def ack(self, message: Message | MessageId) -> asyncio.Future[None]:
        """Acknowledge one message; see `Consumer.ack`."""
        done = super().ack(message)
        self.counts.acknowledged += 1
        self._tell_later("on_acknowledge", given_id(message), done)
        return done

    def ack_entry(self, entry: ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge a whole entry; see `Consumer.ack_entry`."""
        done = super().ack_entry(entry)
        self.counts.acknowledged += 1
        self._tell_later("on_acknowledge", given_id(entry), done)
        return done

    def ack_entries(self, entries: Sequence[ReceivedEntry | MessageId]) -> asyncio.Future[None]:
        """Acknowledge whole entries in one frame; see `Consumer.ack_entries`."""
        done = super().ack_entries(entries)
        self.counts.acknowledged += len(entries)
        for entry in entries:
            self._tell_later("on_acknowledge", given_id(entry), done)
        return done

    def ack_cumulative(self, message: Message | ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to a message; see `Consumer.ack_cumulative`."""
        done = super().ack_cumulative(message)
        self.counts.acknowledged_up_to += 1
        self._tell_later("on_acknowledge_cumulative", given_id(message), done)
        return done

    def negative_ack(self, message: Message | ReceivedEntry | MessageId) -> None:
        """Request redelivery of a message later; see `Consumer.negative_ack`."""
        super().negative_ack(message)
        self.counts.refused += 1

    def _tell_later(self, hook: str, message_id: MessageId, done: asyncio.Future[None]) -> None:
        if self._interceptors:
            done.add_done_callback(partial(self._tell_settled, hook, message_id))

    def _tell_settled(self, hook: str, message_id: MessageId, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        reported = error if error is None or isinstance(error, MagnetarError) else MagnetarError(repr(error))
        self._tell(hook, lambda interceptor: getattr(interceptor, hook)(self, message_id, reported))

    def _tell(self, hook: str, call: Callable[[ConsumerInterceptor], object]) -> None:
        for interceptor in self._interceptors:
            try:
                call(interceptor)
            except Exception:
                log.exception("%s: %s of %r raised", self.topic, hook, interceptor)

    def _is_overdue(self, due: list[EntryKey]) -> None:
        self.counts.timed_out += len(due)
        ids = [MessageId(*position, self._partition) for position in due]
        self._tell("on_ack_timeout_send", lambda interceptor: interceptor.on_ack_timeout_send(self, ids))
        super()._is_overdue(due)

    def _is_refused(self, due: list[EntryKey]) -> None:
        ids = [MessageId(*position, self._partition) for position in due]
        self._tell("on_negative_acks_send", lambda interceptor: interceptor.on_negative_acks_send(self, ids))
        super()._is_refused(due)

    def _gave_up(self, messages: int) -> None:
        self.counts.dead_letters += messages

    async def _end(self) -> None:
        await super()._end()
        interceptors, self._interceptors = self._interceptors, ()
        for interceptor in interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("%s: close of %r raised", self.topic, interceptor)
