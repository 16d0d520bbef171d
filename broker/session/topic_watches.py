"""Topic-list watches of one connection: WATCH_TOPIC_LIST, the WATCH_TOPIC_UPDATEs that follow, and the close.

Design: changes of one event-loop turn are sent together, and none while the peer reads too slowly: the unsent changes
are bounded by the number of topics (`TopicChanges`). A client that may no longer watch the namespace gets no further
updates: the protocol has no command by which a broker ends a watch.

Source: Pulsar binary protocol, section WATCH_TOPIC_LIST; `TopicListService` of Pulsar 4.0.
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
"""Maximum watches of one connection; a client has one per consumer with a pattern."""
MAX_NAMES = 1000
"""Maximum names in one update: that many of the longest fit into a frame."""
_CANNOT = "Unable to create topic list watcher: "


class TopicWatch:
    """One watch: the list, and the changes that its client has not received."""

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
        """Send the pending changes, as far as the peer is writable."""
        self._is_planned = False
        if self._changes and not may_still(self._connection, pb.BaseCommand.WATCH_TOPIC_LIST, self._place[0]):
            return  # decided again at the next change: the right may come back
        while self._changes and self._connection.is_writable and not self._is_closed:
            deleted, new = self._changes.take(MAX_NAMES)
            # The hash of the client's list after this update. In the middle of a long series it is unknown, and a
            # client that returns with an empty hash gets the whole list.
            digest = "" if self._changes else self.topics.digest
            self._connection.reply(
                pb.CommandWatchTopicUpdate(
                    watcher_id=self._id, new_topics=new, deleted_topics=deleted, topics_hash=digest
                )
            )


class ConnectionWatches:
    """The watches of one connection, by the ids that its client chose."""

    def __init__(self) -> None:
        self._watches: dict[int, TopicWatch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def put(self, watcher_id: int, watch: TopicWatch) -> None:
        """Add a watch, replacing one of the same id."""
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
        """Send the changes that waited while the peer was not writable."""
        for watch in list(self._watches.values()):
            watch.tell()


def watch_topic_list(connection: Connection, command: pb.CommandWatchTopicList) -> None:
    """Answer WATCH_TOPIC_LIST; an id that is already watched gets a new watch.

    Raises:
        ProtocolError: the namespace is not a valid name.
        NotAllowed: the pattern is too long, only Java's engine understands it, or there are too many watches.
        InvalidTopicName: the pattern is not a valid regular expression.
    """
    if NAMESPACE.fullmatch(command.namespace) is None:
        raise ProtocolError(f"WATCH_TOPIC_LIST of {command.namespace!r}: expected tenant/namespace")
    pattern = command.topics_pattern
    if len(pattern) > MAX_PATTERN_CHARS:
        raise NotAllowed(f"{_CANNOT}Pattern longer than maximum: {MAX_PATTERN_CHARS}")
    watches = connection.topic_watches
    watches.close(command.watcher_id)
    if len(watches) >= MAX_WATCHES:
        raise NotAllowed(f"{_CANNOT}this connection has {MAX_WATCHES} watches; close some or poll")
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
    """Answer WATCH_TOPIC_LIST_CLOSE; an unknown watch counts as closed."""
    connection.topic_watches.close(command.watcher_id)
    connection.succeed(command.request_id)
