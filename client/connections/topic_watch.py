"""Watch of a namespace's topics, for brokers that support it; survives reconnections.

Source: Pulsar binary protocol, section WATCH_TOPIC_LIST.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import MagnetarError, NotAllowed, TopicNameRefused
from ...wire import pulsar_api_pb2 as pb
from .attachment import Attachable, Attachment
from .connection import Connection, TopicWatchPort

log = logging.getLogger(__name__)


class TopicWatch(Attachable):
    """A watch of the persistent topics that match a pattern; created by `AsyncClient.subscribe`.

    Attributes:
        topics: the latest full names from the broker, with partitions listed individually; None while unknown.
    """

    _final = (NotAllowed, TopicNameRefused)
    _closed_at_once = "closed the watch immediately"

    def __init__(
        self, watcher_id: int, namespace: str, pattern: str, attachment: Attachment, on_change: Callable[[], None]
    ) -> None:
        """Create a watch; `begin` starts it.

        Args:
            watcher_id: unique among the watches of the client.
            namespace: ``tenant/namespace``.
            pattern: the pattern to send to the broker.
            attachment: attachment to the broker.
            on_change: called on the event loop when `topics` has changed.
        """
        self._id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self._attachment = attachment
        self._on_change = on_change
        self._is_closed = False
        self.topics: set[str] | None = None

    def __repr__(self) -> str:
        known = "unknown" if self.topics is None else len(self.topics)
        return f"TopicWatch({self._namespace!r}, {self._pattern!r}, topics={known})"

    def _ports(self, connection: Connection) -> dict[int, TopicWatchPort]:
        return connection.topic_watches

    def _close_command(self) -> pb.CommandWatchTopicListClose:
        return pb.CommandWatchTopicListClose(watcher_id=self._id)

    async def _create(self, connection: Connection) -> pb.CommandWatchTopicListSuccess:
        if not connection.offers_topic_watches:
            raise NotAllowed(f"{connection.address.physical} does not support topic watches")
        # Updates may follow the response in the same read, so the connection calls `handle_list` immediately.
        command = pb.CommandWatchTopicList(watcher_id=self._id, namespace=self._namespace, topics_pattern=self._pattern)
        answer: pb.CommandWatchTopicListSuccess = await connection.request(f"watch {self._pattern}", command)
        return answer

    def handle_list(self, answer: pb.CommandWatchTopicListSuccess) -> None:
        """Handle the initial list of topics (called by the connection)."""
        self.topics = set(answer.topic)
        self._on_change()

    def handle_update(self, update: pb.CommandWatchTopicUpdate) -> None:
        """Handle created and deleted topics (called by the connection)."""
        if self.topics is not None:
            self.topics.difference_update(update.deleted_topics)
            self.topics.update(update.new_topics)
            self._on_change()

    def begin(self) -> None:
        """Start watching, now and after each reconnection; the owner polls while the watch is unavailable."""
        self._attachment.reopen(self, at_once=True)

    def _on_attached(self, connection: Connection, answer: pb.CommandWatchTopicListSuccess) -> None:
        pass

    def _on_detached(self, connection: Connection, reason: MagnetarError) -> None:
        self.topics = None
        if not self._is_closed:
            self._attachment.reopen(self)

    def fail(self, error: MagnetarError) -> None:
        """Handle a rejected watch (called by the attachment); the owner polls instead."""
        self.topics = None
        log.info("polling the topics of %s instead of watching them: %s", self._pattern, error)

    async def close(self) -> None:
        """Close the watch without waiting for the broker.

        Cancellation: the watch is closed nevertheless.
        """
        self._is_closed = True
        self.topics = None
        connection = self._connection
        if connection is not None and self._is_attached:
            close = self._close_command()
            close.request_id = connection.next_request_id()
            connection.send_command(close)
        self._leave()
        await self._attachment.close()
