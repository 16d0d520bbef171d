"""The producers of a topic: admission, waiting for exclusive access, and removal.

Design: admissions run one at a time, under a lock, because each may wait for a response from another peer, for the
epoch to be durable, and for entries of earlier producers to be stored. The checks are repeated after each wait, because
the connection or topic may have been closed meanwhile.

Invariant: an exclusive producer is the only producer that may send.

Source: Pulsar binary protocol, sections Producer, creation, and Access modes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ...errors import ProducerBusy, StorageError
from ...metadata.store.store import MetadataStore
from ...wire.topic_name import TopicName
from .limits import check_producers
from .producer_access import FENCED_OUT, Own, Producers, Share, Wait, admit, next_epoch

if TYPE_CHECKING:
    from .producer import Producer
    from .topic import Topic


EPOCHS = "/admin/topic-epochs"
"""Metadata path of topic epochs, which fence former exclusive producers."""


async def read_epoch(store: MetadataStore, name: TopicName) -> int | None:
    """Return a topic's epoch, or None if it never had an exclusive producer.

    Raises:
        StorageError: the metadata record is not a number.
    """
    path = epoch_path(name)
    record = await store.get(path)
    if record is None:
        return None
    try:
        return int(record.value)
    except ValueError as error:
        raise StorageError(
            f"metadata record {path} is {record.value[:20]!r}, not a topic epoch: correct or delete the record"
        ) from error


def epoch_path(name: TopicName) -> str:
    """Return the path of the metadata record with a topic's epoch."""
    return f"{EPOCHS}/{name.rest_path}"


class TopicProducers(dict[str, "Producer"]):
    """The active producers of a topic by name; only changed by its own methods.

    Attributes:
        waiting: producers that wait for exclusive access, in order.
        exclusive: exclusive producer (the owner); None if the topic is shared.
        epoch: topic epoch, which counts owners; None if the topic never had an owner.
    """

    def __init__(self, topic: Topic, epoch: int | None) -> None:
        super().__init__()
        self.waiting: deque[Producer] = deque()
        self.exclusive: Producer | None = None
        self.epoch = epoch
        self._topic = topic
        self._departed_messages = 0
        self._departed_bytes = 0
        self._parting: list[Producer] = []  # removed producers with unconfirmed entries
        self._claim = asyncio.Lock()
        self._promoting: asyncio.Task[None] | None = None

    @property
    def messages_in(self) -> int:
        """Number of messages stored since the topic was loaded."""
        return self._departed_messages + sum(producer.messages_in for producer in self.values())

    @property
    def bytes_in(self) -> int:
        """Number of bytes stored since the topic was loaded."""
        return self._departed_bytes + sum(producer.bytes_in for producer in self.values())

    def count(self, messages: int, bytes_: int) -> None:
        """Count an entry that was not sent by a producer."""
        self._departed_messages += messages
        self._departed_bytes += bytes_

    async def add(self, producer: Producer) -> None:
        """Admit or queue a producer, and send the response to its client.

        Raises:
            BrokerError: the producer is not admitted.

        Cancellation: if the producer was added, detach it to remove it.
        """
        # First without the lock, since after a crash many reconnecting producers each wait for a dead peer.
        await self._evict_stale(producer)
        async with self._claim:
            await self._evict_stale(producer)
            # A producer that joined while sequence ids are being reread would receive a last id that is too low, and
            # its duplicates would be accepted as new.
            await self._topic.deduplication.adjust()
            await self._topic.deduplication.settled(producer.name)
            self._check_joins(producer)
            self._topic.deduplication.check()
            state = Producers(
                exclusive=self.exclusive.name if self.exclusive else None,
                connected=len(self),
                waiting=len(self.waiting),
                epoch=self.epoch,
            )
            decision = admit(producer.access_mode, producer.requested_topic_epoch, state)
            if not isinstance(decision, Own):  # an owner has no other producers, or fences them
                check_producers(self._topic.policies, self._topic.name, len(self) + len(self.waiting))
            match decision:
                case Share():
                    self._install(producer)
                case Wait():
                    producer.is_ready = False
                    self.waiting.append(producer)
                    producer.connection.producers.add(producer)
                    producer.succeed(None)
                case Own(epoch, fences):
                    # Persist before replying, so that a fenced owner that reconnects always sees the new epoch.
                    await self._raise_epoch(epoch)
                    self._check_joins(producer)
                    if fences:
                        self._fence_all()
                    await self._parted()
                    self._check_joins(producer)  # no await from here on
                    self.exclusive = producer
                    self._install(producer)

    def _check_joins(self, producer: Producer) -> None:
        """Raise if a producer can no longer join, because the connection or topic was closed during a wait."""
        if producer.connection.is_closed:
            # The connection's producers have been released, so a producer that joined now would never be removed.
            raise ConnectionResetError(
                f"{producer.connection} was closed while creating a producer on {self._topic.name}"
            )
        self._topic.check_open()

    def _install(self, producer: Producer) -> None:
        producer.is_ready = True
        self[producer.name] = producer
        self._topic.joins += 1
        self._topic.deduplication.connect(producer)
        producer.connection.producers.add(producer)
        producer.succeed(self.epoch)

    async def _evict_stale(self, producer: Producer) -> None:
        """Evict a stale producer with the same name; raise ProducerBusy if a producer with this name is not stale.

        A producer is stale if the same connection has replaced it by a producer with a higher epoch, or if its peer
        does not respond.

        Source: Pulsar binary protocol, section Same name, two producers.
        """
        holder = self.get(producer.name) or next(
            (waiting for waiting in self.waiting if waiting.name == producer.name), None
        )
        if holder is None:
            return
        same_connection = holder.connection is producer.connection
        if same_connection and holder.id == producer.id and holder.epoch < producer.epoch:
            holder.fence(None)
            self.remove(holder)
            return
        if same_connection or await holder.connection.is_alive():
            raise ProducerBusy(
                f"Producer with name '{producer.name}' is already connected to topic '{self._topic.name}'"
            )
        holder.detach()  # its connection is being closed, which may take some time

    async def _raise_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            if self._topic.name.is_persistent:
                store, path = self._topic.broker.namespaces.store, epoch_path(self._topic.name)
                await store.put(path, str(epoch).encode())
            self.epoch = epoch

    def _fence_all(self) -> None:
        for waiting in self.waiting:
            waiting.fence(FENCED_OUT)
        self.waiting.clear()
        for producer in self.values():
            producer.fence(None)
            self._depart(producer)
        self.clear()
        self.exclusive = None

    def close_unencrypted(self) -> None:
        """Close the producers that do not encrypt messages, because the topic now requires encryption."""
        for producer in (*self.values(), *self.waiting):
            if not producer.is_encrypted:
                producer.close_by_broker()

    def remove(self, producer: Producer) -> None:
        """Remove a producer; if it was the last one, the first waiting producer becomes the owner."""
        if self.get(producer.name) is producer:
            del self[producer.name]
            self._depart(producer)
        elif producer in self.waiting:
            self.waiting.remove(producer)
        if self.exclusive is producer:
            self.exclusive = None
        if not self and self.waiting and not self._topic.is_closed and (not self._promoting or self._promoting.done()):
            # This is retried until it succeeds: producers must not wait forever if the epoch cannot be written now.
            self._promoting = self._topic.broker.tasks.keep(
                self._promote, f"promoting a waiting producer on {self._topic.name}"
            )

    def _depart(self, producer: Producer) -> None:
        self._departed_messages += producer.messages_in
        self._departed_bytes += producer.bytes_in
        self._parting = [one for one in (*self._parting, producer) if one.pending_entries]
        self._topic.deduplication.disconnect(producer)

    async def _parted(self) -> None:
        """Wait until all entries of earlier producers are stored, so that a new owner can read them."""
        while self._parting:
            await self._parting[-1].idle()
            self._parting = [one for one in self._parting if one.pending_entries]

    async def _promote(self) -> None:
        async with self._claim:
            while self.waiting and not self and not self._topic.is_closed:
                producer = self.waiting[0]
                await self._raise_epoch(next_epoch(None, self.epoch))
                await self._parted()
                # The producer may have stopped waiting, because its topic or connection was closed meanwhile.
                if self.waiting and self.waiting[0] is producer:
                    self.waiting.popleft()
                    self.exclusive = producer
                    self._install(producer)
