"""Topic incarnations: topics are loaded, created, unloaded and deleted, with one incarnation per name at a time.

Design: loading, creation and deletion hold the lock of the topic's name. So a new topic is only created once nothing of
the old topic remains: no policies, no epoch, and no entries in flight. Closing a topic is a single step without
waiting, after which the old object rejects all operations.

Invariant: at most one topic with a given name is open, and it is in `BrokerService.topics`.
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
    """Loads, creates, unloads and deletes the topics of a broker.

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
        """Return the number of persistent topics being created in ``tenant/namespace``, excluding system topics."""
        prefix = f"persistent://{namespace}/"
        return sum(name.startswith(prefix) and not name.startswith(f"{prefix}__") for name in self.creating)

    def _lock(self, text: str) -> asyncio.Lock:
        """Return the lock of a name, which exists as long as it is held or waited for."""
        return self._locks.setdefault(text, asyncio.Lock())

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """Load and return a topic that is not loaded; with ``create``, it is created if needed.

        Raises:
            TopicNotFound: the topic does not exist.
            BrokerError: the topic cannot exist; see `BrokerService.check_name`.

        Cancellation: the topic may still be loaded or created.
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
                if not (create and is_others):  # the topic may have been loaded by another caller without create
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
        """Load or create a topic, after any running deletion has finished."""
        text = str(name)
        async with self._lock(text):
            # Repeat all checks under the lock, since the topic may have been created or deleted meanwhile.
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
                self._tell_watchers(name)  # the log may have been created despite the error
                raise
            finally:
                self.creating.discard(text)
            if is_new and not self._broker.namespaces.has_namespace(name.namespace_name):  # deleted meanwhile
                topic.close()
                await self._delete_log(name)
                self._broker.check_name(name)
            self._topics[text] = topic
            topic.follow_policies()  # policies may have changed meanwhile
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
            # Wait until entries and subscriptions that were in flight at unloading are stored or have failed.
            with contextlib.suppress(StorageError):
                await called_back(topic_log.barrier)
        topic = Topic(self._broker, name, topic_log, await read_epoch(self._broker.namespaces.store, name))
        await topic.deduplication.adjust()
        return topic

    async def set_properties(self, topic: Topic, properties: Mapping[str, str]) -> None:
        """Set the properties of a topic, unless it was closed meanwhile and they would apply to its successor."""
        async with self._lock(str(topic.name)):
            if not topic.is_closed:
                await self._broker.namespaces.set_properties(topic.name, properties)

    def unload(self, name: TopicName) -> None:
        """Unload a topic; see `BrokerService.unload_topic`.

        Raises:
            TopicNotFound: the topic does not exist.
        """
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
            name: topic name.
            force: whether to delete a topic that is in use.
            with_subscriptions: whether to delete a topic that has subscriptions.
            only_if: called right before the deletion, under the topic's lock. If it returns False, NotAllowed is
                raised.
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
                raise NotAllowed(f"Topic {name} is in use")
            self.deleting.add(text)
            try:
                await self._delete_now(name)
            finally:
                self.deleting.discard(text)

    async def _delete_now(self, name: TopicName) -> None:
        text = str(name)
        # Remove the topic before the first await, so that it cannot be found during the deletion of its log.
        topic = self._topics.pop(text, None)
        if topic is not None:
            for subscription in list(topic.subscriptions.values()):
                subscription.close()
            topic.close()
            self._tell_watchers(name)
        # Do this before deleting the log, since a retry after a failure would not find the topic.
        if name.partition < 0:
            await self._broker.namespaces.forget_topic(name)
            await self.forget_schemas(name)
        else:  # policies and schemas of a partition belong to the partitioned topic
            await self._broker.namespaces.forget_partition(name)
        await self._delete_log(name)
        if not name.is_persistent:
            return
        # Keep the epoch until the log is deleted: if that fails, the epoch must still fence former owners.
        try:
            await self._broker.namespaces.store.delete(epoch_path(name))
        except StorageError as error:
            log.warning(
                "cannot delete the epoch of deleted topic %s; a new topic with that name will continue from it: %s",
                name,
                error,
            )

    async def forget_schemas(self, name: TopicName) -> None:
        """Delete the schemas of a deleted topic, unless a topic with the same name in the other domain shares them.

        Cancellation: some schemas may remain; call again to delete them.
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
            return  # subscriptions of non-persistent topics are not stored
        cursors = self._storage.open_log(str(name)).cursors
        kept = [each for each in cursors if each not in (DEDUPLICATION_CURSOR, COMPACTION_CURSOR)]
        if kept and not with_subscriptions:
            raise NotAllowed(f"Topic {name} has {len(kept)} subscriptions")
