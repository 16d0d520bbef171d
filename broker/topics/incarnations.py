"""Incarnations of topics: how they are loaded, created, unloaded and deleted, one incarnation of a name after another.

Design: whoever loads, creates or deletes a topic holds the lock of its name, so that a new topic begins once nothing of
the old one is left: no policy, no epoch, no entry that is under way. Closing is done in one go, without waiting, and
from then on the old object refuses everything.

Invariant: of one name at most one topic is open, and it is the one in `BrokerService.topics`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ...errors import NotAllowed, StorageError, TopicNotFound
from ...tasks.supervised import awaited_elsewhere
from ...wire.topic_name import TopicName
from ..storage.compacted_view import COMPACTION_CURSOR
from .deduplication import DEDUPLICATION_CURSOR
from .topic import Topic
from .topic_producers import epoch_path, read_epoch

if TYPE_CHECKING:
    from .ports import BrokerPort

log = logging.getLogger(__name__)


class TopicIncarnations:
    """Opens and closes the topics of a broker.

    Attributes:
        deleting: full names of the topics that are on their way out.
    """

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._topics = broker.topics
        self._storage = broker.storage
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._loading: dict[str, asyncio.Task[Topic]] = {}
        self.deleting: set[str] = set()

    def __repr__(self) -> str:
        return f"TopicIncarnations(loading={sorted(self._loading)}, deleting={sorted(self.deleting)})"

    def _lock(self, text: str) -> asyncio.Lock:
        """Return the lock of a name, which lasts as long as somebody holds it or waits for it."""
        return self._locks.setdefault(text, asyncio.Lock())

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """Return a topic that is not loaded; ``create`` makes it if need be.

        Raises:
            TopicNotFound: it does not exist.
            BrokerError: it cannot exist, see `BrokerService.check_name`.

        Cancellation: it may be loaded, or created.
        """
        text = str(name)
        while True:
            loading = self._loading.get(text)
            is_others = loading is not None and not loading.done()
            if loading is None or loading.done():
                loading = self._start_load(name, create=create)
            try:
                return await asyncio.shield(loading)
            except TopicNotFound:
                if not (create and is_others):  # who began that load may not create the topic
                    raise

    def _start_load(self, name: TopicName, *, create: bool) -> asyncio.Task[Topic]:
        text = str(name)
        loading = self._broker.tasks.start(self._loaded(name, create=create), f"loading {text}", awaited_elsewhere)
        self._loading[text] = loading

        def ended(_: asyncio.Task[Topic]) -> None:
            if self._loading.get(text) is loading:
                del self._loading[text]

        loading.add_done_callback(ended)
        return loading

    async def _loaded(self, name: TopicName, *, create: bool) -> Topic:
        """Load a topic, or create it, once a deletion under way has ended."""
        text = str(name)
        async with self._lock(text):
            # All asked again under the lock: the name may have got, or lost, its topic while this waited for it.
            if (topic := self._topics.get(text)) is not None:
                return topic
            self._broker.check_name(name)
            is_new = not self._storage.has_log(text)
            if is_new and not create:
                raise TopicNotFound(f"Topic {text} does not exist")
            topic = await self._open(name, is_new=is_new)
            if is_new and not self._broker.namespaces.has_namespace(name.namespace_name):  # it was deleted meanwhile
                topic.close()
                await self._storage.delete_log(text)
                self._broker.check_name(name)
            self._topics[text] = topic
            return topic

    async def _open(self, name: TopicName, *, is_new: bool) -> Topic:
        topic_log = self._storage.open_log(str(name))
        if is_new:
            await topic_log.core.wait(topic_log.create)
        else:
            # Entries and new subscriptions under way when it was unloaded are stored first, or have failed.
            with contextlib.suppress(StorageError):
                await topic_log.core.wait(topic_log.core.record)
        topic = Topic(self._broker, name, topic_log, await read_epoch(self._broker.namespaces.store, name))
        await topic.deduplication.adjust()
        return topic

    async def set_properties(self, topic: Topic, properties: Mapping[str, str]) -> None:
        """Set the properties of a topic, unless it was closed meanwhile: else they would be another topic's."""
        async with self._lock(str(topic.name)):
            if not topic.is_closed:
                await self._broker.namespaces.set_properties(topic.name, properties)

    def unload(self, name: TopicName) -> None:
        """Close a topic; see `BrokerService.unload_topic`."""
        topic = self._topics.pop(str(name), None)
        if topic is not None:
            topic.close()
            topic.log.close_ledger()
        elif not self._broker.has_topic(name):
            raise TopicNotFound(f"Topic {name} not found")

    async def delete(self, name: TopicName, *, force: bool, with_subscriptions: bool) -> None:
        """Delete a topic; see `BrokerService.delete_topic`."""
        work = self._delete(name, force=force, with_subscriptions=with_subscriptions)
        await asyncio.shield(self._broker.tasks.start(work, f"deleting {name}", awaited_elsewhere))

    async def _delete(self, name: TopicName, *, force: bool, with_subscriptions: bool) -> None:
        text = str(name)
        async with self._lock(text):
            if not self._broker.has_topic(name):
                raise TopicNotFound(f"Topic {name} not found")
            if not force:
                self._check_unused(name, with_subscriptions)
            self.deleting.add(text)
            try:
                await self._delete_now(name)
            finally:
                self.deleting.discard(text)

    async def _delete_now(self, name: TopicName) -> None:
        text = str(name)
        # Off the list before anything is awaited: nobody finds the old topic while its log is being deleted.
        topic = self._topics.pop(text, None)
        if topic is not None:
            for subscription in list(topic.subscriptions.values()):
                subscription.close()
            topic.close()
        # Before the topic: a second attempt, after a failure, would not find the topic any more.
        if not self._broker.namespaces.partitions(name.base):
            await self._broker.namespaces.forget_topic(name)
        await self._storage.delete_log(text)
        # After the log: if deleting that fails, the topic keeps the epoch by which it refuses former owners.
        try:
            await self._broker.namespaces.store.delete(epoch_path(name))
        except StorageError as error:
            log.warning(
                "the epoch of the deleted topic %s stays, a new one of that name goes on from it: %s", name, error
            )

    def _check_unused(self, name: TopicName, with_subscriptions: bool) -> None:
        topic = self._topics.get(str(name))
        if topic is not None:
            consumers = sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
            producers = len(topic.producers) + len(topic.producers.waiting)
            if producers or consumers:
                raise NotAllowed(f"Topic {name} has {producers} producers and {consumers} consumers connected")
        cursors = self._storage.open_log(str(name)).cursors
        kept = [each for each in cursors if each not in (DEDUPLICATION_CURSOR, COMPACTION_CURSOR)]
        if kept and not with_subscriptions:
            raise NotAllowed(f"Topic {name} has {len(kept)} subscriptions")
