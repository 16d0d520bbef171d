"""Topic list watches of a connection: WATCH_TOPIC_LIST, its WATCH_TOPIC_UPDATEs and WATCH_TOPIC_LIST_CLOSE.

Design: all changes of one event loop iteration are sent together. While the peer reads too slowly, changes are held
back; their number is bounded by the number of topics (`TopicChanges`). A client that may no longer watch the namespace
receives no more updates, because the protocol has no command for a broker to end a watch.

Source: Pulsar binary protocol, section WATCH_TOPIC_LIST; Pulsar 4.0's `TopicListService`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...errors import InvalidPattern, InvalidTopicName, NotAllowed, PatternNotSupported, ProtocolError
from ...wire import pulsar_api_pb2 as pb
from ..topics.topic_list import MAX_PATTERN_CHARS, TopicChanges
from .authorization import may_still

if TYPE_CHECKING:
    from ..topics.topic_list import TopicList
    from .connection import Connection

NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
MAX_WATCHES = 1000
"""Maximum number of watches per connection. A client has one for each pattern consumer."""
MAX_NAMES = 1000
"""Maximum number of names in one update, such that even the longest names fit into a frame."""
_CANNOT = "Unable to create topic list watcher: "


class TopicWatch:
    """A watch of a topic list, with the changes not yet sent to the client."""

    def __init__(self, connection: Connection, watcher_id: int, namespace: str, pattern: str) -> None:
        self._connection = connection
        self._id = watcher_id
        self._place = namespace, pattern
        self._changes = TopicChanges()
        self._is_planned = False
        self._is_closed = False
        self.topics: TopicList = connection.broker.topic_watches.watch(namespace, pattern, self._changed)

    def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        self._connection.broker.topic_watches.unwatch(*self._place, self._changed)

    def _changed(self, name: str, is_present: bool) -> None:
        self._changes.note(name, is_present)
        if not self._is_planned:
            self._is_planned = True
            self._connection.loop.call_soon(self.tell)

    def tell(self) -> None:
        """Send pending changes while the peer is writable."""
        self._is_planned = False
        if self._changes and not may_still(self._connection, pb.BaseCommand.WATCH_TOPIC_LIST, self._place[0]):
            return  # rechecked at the next change, as the permission may be restored
        while self._changes and self._connection.is_writable and not self._is_closed:
            deleted, new = self._changes.take(MAX_NAMES)
            # The hash of the client's list after this update. It is unknown until the last of several updates; a
            # client that reconnects with an empty hash receives the whole list.
            digest = "" if self._changes else self.topics.digest
            self._connection.reply(
                pb.CommandWatchTopicUpdate(
                    watcher_id=self._id, new_topics=new, deleted_topics=deleted, topics_hash=digest
                )
            )


class ConnectionWatches:
    """The watches of a connection, by client-assigned id."""

    def __init__(self) -> None:
        self._watches: dict[int, TopicWatch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def put(self, watcher_id: int, watch: TopicWatch) -> None:
        """Add a watch, replacing any watch with the same id."""
        self.close(watcher_id)
        self._watches[watcher_id] = watch

    def close(self, watcher_id: int) -> None:
        """End a watch, if it exists."""
        watch = self._watches.pop(watcher_id, None)
        if watch is not None:
            watch.close()

    def close_all(self) -> None:
        """End all watches."""
        for watcher_id in list(self._watches):
            self.close(watcher_id)

    def wake(self) -> None:
        """Send the changes held back while the peer was not writable."""
        for watch in list(self._watches.values()):
            watch.tell()


def watch_topic_list(connection: Connection, command: pb.CommandWatchTopicList) -> None:
    """Handle WATCH_TOPIC_LIST. A watch with the same id is replaced.

    Raises:
        ProtocolError: the namespace name is invalid.
        NotAllowed: the pattern is too long, only Java's engine supports it, or there are too many watches.
        InvalidTopicName: the pattern is not a valid regular expression.
    """
    if NAMESPACE.fullmatch(command.namespace) is None:
        raise ProtocolError(f"WATCH_TOPIC_LIST with namespace {command.namespace!r}: expected tenant/namespace")
    pattern = command.topics_pattern
    if len(pattern) > MAX_PATTERN_CHARS:
        raise NotAllowed(f"{_CANNOT}Pattern longer than maximum: {MAX_PATTERN_CHARS}")
    watches = connection.topic_watches
    watches.close(command.watcher_id)
    if len(watches) >= MAX_WATCHES:
        raise NotAllowed(
            f"{_CANNOT}this connection has reached its limit of {MAX_WATCHES} watches: close some, or poll"
        )
    try:
        watch = TopicWatch(connection, command.watcher_id, command.namespace, pattern)
    except PatternNotSupported as error:
        raise NotAllowed(f"{_CANNOT}{error}") from error
    except InvalidPattern as error:
        raise InvalidTopicName(f"Invalid topics pattern: {error}") from error
    watches.put(command.watcher_id, watch)
    topics = watch.topics
    connection.reply(
        pb.CommandWatchTopicListSuccess(
            request_id=command.request_id,
            watcher_id=command.watcher_id,
            topic=topics.names if command.topics_hash != topics.digest else (),
            topics_hash=topics.digest,
        )
    )


def close_watch(connection: Connection, command: pb.CommandWatchTopicListClose) -> None:
    """Handle WATCH_TOPIC_LIST_CLOSE. An unknown watch counts as closed."""
    connection.topic_watches.close(command.watcher_id)
    connection.succeed(command.request_id)
