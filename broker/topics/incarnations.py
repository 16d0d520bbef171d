"""Topic incarnations: how topics are loaded, created, unloaded and deleted, one incarnation of a name after another.

Design: loading, creating and deleting hold the lock of the topic's name, so that a new topic begins only when nothing
of the old one is left: no policy, no epoch, no entry in flight. Closing is one step without waiting; from then on the
old object refuses everything.

Invariant: at most one topic of a name is open, and it is the one in `BrokerService.topics`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ...errors import NotAllowed, StorageError, TopicNotFound
from ...tasks import called_back
from ...tasks.supervised import awaited_elsewhere
from ...wire.topic_name import DOMAINS, TopicName
from ..storage.compacted_view import COMPACTION_CURSOR
from .deduplication import DEDUPLICATION_CURSOR
from .nonpersistent import NonPersistentTopic
from .topic import Topic
from .topic_producers import epoch_path, read_epoch

if TYPE_CHECKING:
    from .ports import BrokerPort

log = logging.getLogger(__name__)


class TopicIncarnations:
    """Opens and closes the topics of a broker.

    Attributes:
        creating: full names of topics that are being created.
        deleting: full names of topics that are being deleted.
    """

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._topics = broker.topics
        self._storage = broker.storage
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._loading: dict[str, asyncio.Task[Topic]] = {}
        self.creating: set[str] = set()
        self.deleting: set[str] = set()

    def __repr__(self) -> str:
        return f"TopicIncarnations(loading={sorted(self._loading)}, deleting={sorted(self.deleting)})"

    def creating_count(self, namespace: str) -> int:
        """Return the number of persistent topics of ``tenant/namespace`` being created, without system topics."""
        prefix = f"persistent://{namespace}/"
        return sum(name.startswith(prefix) and not name.startswith(f"{prefix}__") for name in self.creating)

    def _lock(self, text: str) -> asyncio.Lock:
        """Return the lock of a name, which lives as long as it is held or waited for."""
        return self._locks.setdefault(text, asyncio.Lock())

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """Return a topic that is not loaded; ``create`` creates it if needed.

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
                if not (create and is_others):  # the other load may not have been allowed to create the topic
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
        """Load or create a topic, after a running deletion has ended."""
        text = str(name)
        async with self._lock(text):
            # Check everything again under the lock: the topic may have been created or deleted while this waited.
            if (topic := self._topics.get(text)) is not None:
                return topic
            self._broker.check_name(name)
            is_new = not self._storage.has_log(text)
            if is_new and not create:
                raise TopicNotFound(f"Topic {text} does not exist")
            if is_new:
                self._broker.check_room(name)
                self.creating.add(text)
            try:
                topic = await self._open(name, is_new=is_new)
            except BaseException:
                self._tell_watchers(name)  # its log may have been created all the same
                raise
            finally:
                self.creating.discard(text)
            if is_new and not self._broker.namespaces.has_namespace(name.namespace_name):  # deleted meanwhile
                topic.close()
                await self._delete_log(name)
                self._broker.check_name(name)
            self._topics[text] = topic
            topic.follow_policies()  # they may have changed while this waited
            self._tell_watchers(name)
            return topic

    async def _delete_log(self, name: TopicName) -> None:
        if name.is_persistent:
            try:
                await self._storage.delete_log(str(name))
            finally:
                self._tell_watchers(name)

    def _tell_watchers(self, name: TopicName) -> None:
        text = str(name)
        is_present = self._storage.has_log(text) if name.is_persistent else text in self._topics
        self._broker.topic_index.set_present(text, is_present)
        if name.is_persistent:
            self._broker.topic_watches.set_present(name.namespace_name, text, is_present)

    async def _open(self, name: TopicName, *, is_new: bool) -> Topic:
        if not name.is_persistent:
            return NonPersistentTopic(self._broker, name, self._storage.volatile_log(str(name)))
        topic_log = self._storage.open_log(str(name))
        if is_new:
            await called_back(topic_log.create)
        else:
            # Entries and new subscriptions in flight when it was unloaded are stored first, or have failed.
            with contextlib.suppress(StorageError):
                await called_back(topic_log.barrier)
        topic = Topic(self._broker, name, topic_log, await read_epoch(self._broker.namespaces.store, name))
        await topic.deduplication.adjust()
        return topic

    async def set_properties(self, topic: Topic, properties: Mapping[str, str]) -> None:
        """Set the properties of a topic, unless it was closed meanwhile: they would apply to its successor."""
        async with self._lock(str(topic.name)):
            if not topic.is_closed:
                await self._broker.namespaces.set_properties(topic.name, properties)

    def unload(self, name: TopicName) -> None:
        """Close a topic; see `BrokerService.unload_topic`."""
        topic = self._topics.pop(str(name), None)
        if topic is not None:
            topic.close()
            topic.log.close_ledger()
            self._tell_watchers(name)
        elif not self._broker.has_topic(name):
            raise TopicNotFound(f"Topic {name} not found")

    async def delete(
        self,
        name: TopicName,
        *,
        force: bool,
        with_subscriptions: bool,
        only_if: Callable[[], bool] | None = None,
    ) -> None:
        """Delete a topic; see `BrokerService.delete_topic`.

        Args:
            name: its full name.
            force: as there.
            with_subscriptions: as there.
            only_if: called right before the deletion, under the topic's lock; False raises NotAllowed.
        """
        work = self._delete(name, force=force, with_subscriptions=with_subscriptions, only_if=only_if)
        await asyncio.shield(self._broker.tasks.start(work, f"deleting {name}", awaited_elsewhere))

    async def _delete(
        self, name: TopicName, *, force: bool, with_subscriptions: bool, only_if: Callable[[], bool] | None
    ) -> None:
        text = str(name)
        async with self._lock(text):
            if not self._broker.has_topic(name):
                raise TopicNotFound(f"Topic {name} not found")
            if not force:
                self._check_unused(name, with_subscriptions)
            if only_if is not None and not only_if():
                raise NotAllowed(f"Topic {name} is in use again")
            self.deleting.add(text)
            try:
                await self._delete_now(name)
            finally:
                self.deleting.discard(text)

    async def _delete_now(self, name: TopicName) -> None:
        text = str(name)
        # Remove the topic before the first await, so that it cannot be found while its log is being deleted.
        topic = self._topics.pop(text, None)
        if topic is not None:
            for subscription in list(topic.subscriptions.values()):
                subscription.close()
            topic.close()
            self._tell_watchers(name)
        # Before the log: a retry after a failure would not find the topic any more.
        if name.partition < 0:
            await self._broker.namespaces.forget_topic(name)
            await self.forget_schemas(name)
        else:  # policies and schemas under the name without the index belong to another topic
            await self._broker.namespaces.forget_partition(name)
        await self._delete_log(name)
        if not name.is_persistent:
            return
        # After the log: if its deletion fails, the topic keeps the epoch that fences former owners.
        try:
            await self._broker.namespaces.store.delete(epoch_path(name))
        except StorageError as error:
            log.warning(
                "the epoch of the deleted topic %s stays, a new one of that name goes on from it: %s", name, error
            )

    async def forget_schemas(self, name: TopicName) -> None:
        """Delete the schemas of a deleted topic, unless the topic of that name in the other domain shares them.

        Cancellation: some may be left; call again.
        """
        twin = replace(name, domain=DOMAINS[name.is_persistent])
        if not self._broker.namespaces.partitions(twin) and not self._broker.has_topic(twin):
            await self._broker.schemas.forget(name)

    def _check_unused(self, name: TopicName, with_subscriptions: bool) -> None:
        topic = self._topics.get(str(name))
        if topic is not None:
            consumers = sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
            producers = len(topic.producers) + len(topic.producers.waiting)
            if producers or consumers:
                raise NotAllowed(f"Topic {name} has {producers} producers and {consumers} consumers connected")
        if not name.is_persistent:
            return  # its subscriptions end with their consumers
        cursors = self._storage.open_log(str(name)).cursors
        kept = [each for each in cursors if each not in (DEDUPLICATION_CURSOR, COMPACTION_CURSOR)]
        if kept and not with_subscriptions:
            raise NotAllowed(f"Topic {name} has {len(kept)} subscriptions")
