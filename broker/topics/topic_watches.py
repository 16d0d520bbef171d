"""Watched topic lists of a broker, each shared by all its watchers.

A list is created from the existing topic names in the same loop iteration in which it is first watched, and changes in
the same loop iteration in which a topic is created or deleted. So no changes are missed.
"""

from __future__ import annotations

from collections.abc import Callable

from .topic_list import TopicList, topic_filter

Listener = Callable[[str, bool], None]
"""Callback that receives a full topic name, and whether the topic was added (True) or removed (False)."""


class WatchedList:
    """A topic list and its watchers.

    Attributes:
        topics: current list.
        listeners: callbacks for changes of the list.
    """

    def __init__(self, topics: TopicList) -> None:
        self.topics = topics
        self.listeners: dict[Listener, None] = {}


class TopicWatches:
    """The watched lists of persistent topics."""

    def __init__(self, topic_names: Callable[[str], list[str]]) -> None:
        self._topic_names = topic_names
        self._lists: dict[str, dict[str, WatchedList]] = {}  # by namespace, by pattern

    def __repr__(self) -> str:
        return f"TopicWatches({ {namespace: sorted(lists) for namespace, lists in self._lists.items()} })"

    def watch(self, namespace: str, pattern: str, listener: Listener) -> TopicList:
        """Return the list of topics in ``tenant/namespace`` that match ``pattern``, and call ``listener`` on changes.

        Raises:
            PatternNotSupported: the pattern is only supported by Java's regular expressions.
            InvalidPattern: the pattern is not a valid regular expression.
        """
        lists = self._lists.get(namespace, {})
        watched = lists.get(pattern)
        if watched is None:
            watched = WatchedList(TopicList(topic_filter(pattern), self._topic_names(namespace)))
            self._lists.setdefault(namespace, {})[pattern] = watched
        watched.listeners[listener] = None
        return watched.topics

    def unwatch(self, namespace: str, pattern: str, listener: Listener) -> None:
        """Remove a listener; a list without listeners is dropped."""
        lists = self._lists.get(namespace, {})
        watched = lists.get(pattern)
        if watched is None:
            return
        watched.listeners.pop(listener, None)
        if not watched.listeners:
            del lists[pattern]
            if not lists:
                del self._lists[namespace]

    def set_present(self, namespace: str, name: str, is_present: bool) -> None:
        """Notify the affected listeners that a topic was added or removed; has no effect if nothing changes."""
        for watched in list(self._lists.get(namespace, {}).values()):
            if watched.topics.set_present(name, is_present):
                for listener in list(watched.listeners):
                    listener(name, is_present)
