"""Receives from several topics, or all partitions of one, as if they were a single topic.

Design: each topic has a separate consumer with its own queue and permits; this class only selects the next one, in
round-robin order of the consumers with queued entries, so a busy partition cannot starve the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...errors import ClosedError, InvalidConfig, MagnetarError
from ...tasks import TaskSet, settle
from ...wire.message_id import EARLIEST, LATEST, MessageId
from ...wire.topic_name import parse_topic_name
from ..receiving import Receiving
from ..statistics import ConsumerStatistics
from .consumer import Consumer
from .received import DamagedEntry, Message, ReceivedEntry
from .waiters import Waiters, next_message, timeout_in_s

log = logging.getLogger(__name__)


class MergedConsumer(Receiving[Message]):
    """A consumer of several topics or partitions, with the methods of `Consumer`.

    A message id contains the partition but not the topic. With several topics, acknowledge messages or entries instead.

    Attributes:
        topic: full names, separated by commas.
        subscription: subscription name.
        consumers: the consumers, by full name of the topic or partition.
    """

    def __init__(self, topic: str, subscription: str, consumers: Sequence[Consumer]):
        self.topic = topic
        self.subscription = subscription
        self.consumers: dict[str, Consumer] = {}
        self._loop = asyncio.get_running_loop()
        self._line: deque[Consumer] = deque()
        self._in_line: set[Consumer] = set()
        self._held_back: set[str] = set()
        self._waiting = Waiters()
        self._is_closed = False
        self._tasks = TaskSet(f"consumer of {topic}")
        for consumer in consumers:
            self._add(consumer)

    def __repr__(self) -> str:
        return f"MergedConsumer(topic={self.topic!r}, subscription={self.subscription!r}, of={len(self.consumers)})"

    def _add(self, consumer: Consumer) -> None:
        self.consumers[consumer.topic] = consumer
        consumer.on_arrival = lambda: self._arrived(consumer)
        self._arrived(consumer)

    def hold_back(self, topic: str) -> None:
        """Stop delivering from a topic or partition (full name) until `let_go`."""
        self._held_back.add(topic)
        consumer = self.consumers.get(topic)
        if consumer in self._in_line:
            self._in_line.discard(consumer)
            self._line.remove(consumer)

    def let_go(self, topic: str) -> None:
        """Resume delivering from a topic or partition after `hold_back`."""
        self._held_back.discard(topic)
        if topic in self.consumers:
            self._arrived(self.consumers[topic])

    def _arrived(self, consumer: Consumer) -> None:
        if self._held_back and consumer.topic in self._held_back and consumer.failure is None:
            return
        if consumer not in self._in_line:
            self._in_line.add(consumer)
            self._line.append(consumer)
        if self._waiting:
            self._waiting.wake()

    # -- receiving ------------------------------------------------------------------------------------------------

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry in round-robin order of the topics; see `Consumer.poll_entry`."""
        self._check_open()
        while self._line:
            consumer = self._line[0]
            entry = consumer.poll_entry()  # a failed consumer remains in the queue and raises each time
            if entry is not None:
                self._line.rotate(-1)
                return entry
            self._line.popleft()
            self._in_line.discard(consumer)
        return None

    async def receive_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it; see `Consumer.receive_entry`."""
        while (entry := self.poll_entry()) is None:
            await self.arrival()
        return entry

    def poll(self) -> Message | None:
        """Return the next message if one is queued; see `Consumer.poll`."""
        self._check_open()
        while self._line:
            # Finish an entry before switching topics, as its messages are decoded together.
            consumer = self._line[0]
            message = consumer.poll()
            if message is not None:
                if not consumer.has_opened:
                    self._line.rotate(-1)
                return message
            self._line.popleft()
            self._in_line.discard(consumer)
        return None

    async def receive(self, timeout_s: float | None = None, *, timeout_millis: float | None = None) -> Message:
        """Return the next message, waiting for it; see `Consumer.receive`."""
        if timeout_millis is not None:
            timeout_s = timeout_in_s(timeout_s, timeout_millis)
        message = self.poll()
        return message if message is not None else await next_message(self.topic, timeout_s, self.arrival, self.poll)

    async def arrival(self) -> None:
        """Wait until a message may be available, or the consumer is closed or failed; see `Consumer.arrival`."""
        if not self._line and not self._is_closed:
            await self._waiting.wait()

    @property
    def queued_messages(self) -> int:
        """Number of messages that can be received without waiting."""
        return sum(consumer.queued_messages for consumer in self.consumers.values())

    # -- acknowledging --------------------------------------------------------------------------------------------

    def _owner(self, what: Message | ReceivedEntry | MessageId) -> Consumer:
        if not isinstance(what, MessageId):
            return self.consumers[what.topic]
        owners = [
            consumer
            for topic, consumer in self.consumers.items()
            if parse_topic_name(topic).partition == what.partition
        ]
        if len(owners) != 1:
            raise InvalidConfig(
                f"message id {what} matches {len(owners)} topics of {self.topic}: pass the message or entry instead"
            )
        return owners[0]

    def ack(self, message: Message | MessageId) -> asyncio.Future[None]:
        """Acknowledge one message; see `Consumer.ack`."""
        return self._owner(message).ack(message)

    def ack_entry(self, entry: ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge a whole entry; see `Consumer.ack_entry`."""
        return self._owner(entry).ack_entry(entry)

    def ack_entries(self, entries: Sequence[ReceivedEntry | MessageId]) -> asyncio.Future[None]:
        """Acknowledge whole entries, in one frame per topic; see `Consumer.ack_entries`."""
        by_owner: dict[Consumer, list[ReceivedEntry | MessageId]] = {}
        for entry in entries:
            by_owner.setdefault(self._owner(entry), []).append(entry)
        futures = [consumer.ack_entries(some) for consumer, some in by_owner.items()]
        if len(futures) == 1:
            return futures[0]
        return _all_of(self._loop, futures)

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge whole entries and return those that belong to this consumer; see `Consumer.claim_entries`."""
        by_owner: dict[Consumer, list[ReceivedEntry]] = {}
        for entry in entries:
            by_owner.setdefault(self._owner(entry), []).append(entry)
        claims = [consumer.claim_entries(some) for consumer, some in by_owner.items()]
        if len(claims) == 1:
            return claims[0]
        claimed: asyncio.Future[list[ReceivedEntry]] = self._loop.create_future()

        def finish(done: asyncio.Future[list[list[ReceivedEntry]]]) -> None:
            settle(claimed, [entry for some in done.result() for entry in some])

        asyncio.gather(*claims).add_done_callback(finish)
        return claimed

    def ack_batch_indexes(self, entry: ReceivedEntry | MessageId, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        """Acknowledge some messages of an entry; see `Consumer.ack_batch_indexes`."""
        return self._owner(entry).ack_batch_indexes(entry, still_wanted)

    def ack_cumulative(self, message: Message | ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to a message of the same topic; see `Consumer.ack_cumulative`."""
        return self._owner(message).ack_cumulative(message)

    def negative_ack(self, message: Message | ReceivedEntry | MessageId) -> None:
        """Request redelivery of a message later; see `Consumer.negative_ack`."""
        self._owner(message).negative_ack(message)

    async def reconsume_later(
        self, message: Message, delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Send a message to the retry letter topic and acknowledge it; see `Consumer.reconsume_later`."""
        await self._owner(message).reconsume_later(message, delay_ms, properties)

    def discard(self, entry: ReceivedEntry, error: DamagedEntry) -> None:
        """Acknowledge an entry that cannot be read; see `Consumer.discard`."""
        self._owner(entry).discard(entry, error)

    def redeliver_unacknowledged(self) -> None:
        """Request redelivery of all unacknowledged messages; see `Consumer.redeliver_unacknowledged`."""
        for consumer in self.consumers.values():
            consumer.redeliver_unacknowledged()

    async def flush_acks(self) -> None:
        """Send all pending acknowledgements; see `Consumer.flush_acks`."""
        await asyncio.gather(*(consumer.flush_acks() for consumer in self.consumers.values()))

    # -- moving ---------------------------------------------------------------------------------------------------

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription of all topics to EARLIEST, LATEST or a time, or of one partition to a message id."""
        if isinstance(target, MessageId) and target not in (EARLIEST, LATEST):
            await self._owner(target).seek(target, inclusive=inclusive)
            return
        await asyncio.gather(*(consumer.seek(target) for consumer in self.consumers.values()))

    async def last_message_id(self) -> MessageId:
        """Return the newest message's id, for a consumer of a single topic.

        Raises:
            InvalidConfig: the consumer has several topics: use `last_message_ids`.
        """
        if len(self.consumers) != 1:
            raise InvalidConfig(f"{self.topic} has {len(self.consumers)} partitions or topics: use last_message_ids")
        return next(iter((await self.last_message_ids()).values()))

    async def last_message_ids(self) -> dict[str, MessageId]:
        """Return the newest message's id for each topic; see `Consumer.last_message_id`."""
        consumers = list(self.consumers.values())
        ids = await asyncio.gather(*(consumer.last_message_id() for consumer in consumers))
        return {consumer.topic: message_id for consumer, message_id in zip(consumers, ids, strict=True)}

    async def unsubscribe(self) -> None:
        """Delete the subscription of every topic and close; see `Consumer.unsubscribe`."""
        await self._tasks.close()
        await asyncio.gather(*(consumer.unsubscribe() for consumer in self.consumers.values()))
        self._end()

    # -- opening and closing ---------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this consumer is active for every topic."""
        return all(consumer.is_active for consumer in self.consumers.values())

    @property
    def is_connected(self) -> bool:
        """Whether every topic's consumer is currently connected to a broker."""
        return all(consumer.is_connected for consumer in self.consumers.values())

    @property
    def has_reached_end(self) -> bool:
        """Whether every topic is terminated and all messages were delivered."""
        return all(consumer.has_reached_end for consumer in self.consumers.values())

    @property
    def is_closed(self) -> bool:
        """Whether the application has closed the consumer."""
        return self._is_closed

    def statistics(self) -> dict[str, ConsumerStatistics]:
        """Return the statistics of each topic's consumer; see `Consumer.statistics`."""
        return {topic: consumer.statistics() for topic, consumer in self.consumers.items()}

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"consumer of {self.topic}, subscription {self.subscription!r}, is closed")

    def keep_updated(self, interval_s: float, find_new: Callable[[set[str]], Awaitable[Sequence[Consumer]]]) -> None:
        """Discover new partitions periodically.

        Args:
            interval_s: interval in seconds.
            find_new: takes the known topics; returns subscribed consumers of new ones.
        """
        self._tasks.keep(lambda: self._update(interval_s, find_new), "look for partitions", longest_pause_s=interval_s)

    async def _update(self, interval_s: float, find_new: Callable[[set[str]], Awaitable[Sequence[Consumer]]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                for consumer in await find_new(set(self.consumers)):
                    log.info("%s: added new partition %s", self.topic, consumer.topic)
                    self._add(consumer)
            except MagnetarError as error:
                log.warning("%s: cannot check for new partitions, retrying in %s s: %s", self.topic, interval_s, error)

    async def close(self) -> None:
        """Close the consumers of all topics; see `Consumer.close`."""
        if self._is_closed:
            return
        await self._tasks.close()
        try:
            await asyncio.gather(*(consumer.close() for consumer in self.consumers.values()))
        finally:
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        self._waiting.wake()


def _all_of(loop: asyncio.AbstractEventLoop, futures: Sequence[asyncio.Future[None]]) -> asyncio.Future[None]:
    """Return a future that completes when all of the given futures have, with the first error if any."""
    result: asyncio.Future[None] = loop.create_future()
    gathered = asyncio.gather(*futures)

    def finish(done: asyncio.Future[list[None]]) -> None:
        settle(result, ClosedError("the acknowledgement was cancelled") if done.cancelled() else done.exception())

    if futures:
        gathered.add_done_callback(finish)
    else:
        result.set_result(None)
    return result
