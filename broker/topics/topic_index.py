"""An index of all topic names by namespace, so that listing a namespace does not scan the topics of others.

Design: the names are read from storage once, on first use. Afterwards, code that creates, loads, unloads or deletes a
topic updates the index in the same loop iteration. Lists requested by clients are cached with their hashes, up to
`MAX_KEPT_LISTS` per namespace, and updated on changes, so that polling many topics is cheap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ...wire.topic_name import DOMAINS
from .topic_list import TopicList

MAX_KEPT_LISTS = 16
ListKey = tuple[object, ...]


def namespace_of(name: str) -> str:
    """Return the ``tenant/namespace`` of a full topic name."""
    _, _, tenant, namespace, _ = name.split("/", 4)
    return f"{tenant}/{namespace}"


class NamespaceTopics:
    """The topics of one namespace.

    Attributes:
        names: sorted full names by domain.
        system_count: number of persistent topics whose local name starts with two underscores.
    """

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {domain: [] for domain in DOMAINS}
        self.system_count = 0
        self._lists: OrderedDict[ListKey, TopicList] = OrderedDict()

    def set_present(self, name: str, is_present: bool) -> None:
        """Add or remove a topic; has no effect if nothing changes."""
        domain, _, rest = name.partition(":")
        names = self.names[domain]
        index = bisect_left(names, name)
        was_present = index < len(names) and names[index] == name
        if was_present == is_present:
            return
        if is_present:
            names.insert(index, name)
        else:
            del names[index]
        if domain == "persistent" and rest.split("/", 4)[4].startswith("__"):
            self.system_count += 1 if is_present else -1
        for kept in self._lists.values():
            kept.set_present(name, is_present)

    def kept_list(self, key: ListKey, takes: Callable[[str], bool]) -> TopicList:
        """Return the cached list of the topics that ``takes`` accepts; see `TopicIndex.list_of`."""
        kept = self._lists.get(key)
        if kept is None:
            kept = self._lists[key] = TopicList(takes, [name for names in self.names.values() for name in names])
            if len(self._lists) > MAX_KEPT_LISTS:
                self._lists.popitem(last=False)
        self._lists.move_to_end(key)
        return kept


class TopicIndex:
    """The topics of a broker by namespace.

    Args:
        existing: called on first use to return the full names of all topics.
    """

    def __init__(self, existing: Callable[[], Iterable[str]]) -> None:
        self._existing = existing
        self._namespaces: dict[str, NamespaceTopics] | None = None

    def __repr__(self) -> str:
        return f"TopicIndex({'unread' if self._namespaces is None else f'{len(self._namespaces)} namespaces'})"

    def names(self, namespace: str, domain: str) -> list[str]:
        """Return the sorted full names of the topics of a domain in ``tenant/namespace``."""
        topics = self._read().get(namespace)
        return [] if topics is None else list(topics.names[domain])

    def user_topic_count(self, namespace: str) -> int:
        """Return the number of persistent topics in ``tenant/namespace``, excluding system topics."""
        topics = self._read().get(namespace)
        return 0 if topics is None else len(topics.names["persistent"]) - topics.system_count

    def list_of(self, namespace: str, key: ListKey, takes: Callable[[str], bool]) -> TopicList:
        """Return the list of the topics in ``tenant/namespace`` that ``takes`` accepts.

        Args:
            namespace: ``tenant/namespace``, which may have no topics.
            key: key that identifies ``takes``; lists are cached by key.
            takes: predicate for full topic names.
        """
        return (self._read().get(namespace) or NamespaceTopics()).kept_list(key, takes)

    def set_present(self, name: str, is_present: bool) -> None:
        """Record that a topic exists or no longer exists; has no effect if nothing changes."""
        if self._namespaces is None:
            return  # the topic will be read from storage
        namespace = namespace_of(name)
        topics = self._namespaces.get(namespace)
        if topics is None:
            if not is_present:
                return
            topics = self._namespaces[namespace] = NamespaceTopics()
        topics.set_present(name, is_present)
        if not any(topics.names.values()):
            del self._namespaces[namespace]

    def _read(self) -> dict[str, NamespaceTopics]:
        if self._namespaces is None:
            self._namespaces = {}
            for name in sorted(set(self._existing())):  # in order, so that each name is appended
                self.set_present(name, True)
        return self._namespaces
