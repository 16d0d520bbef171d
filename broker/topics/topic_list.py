"""Topic lists of a namespace: pattern matching, hashes, and changes that a watcher has not received yet.

Source: Pulsar binary protocol, sections GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable

import google_crc32c

from ...wire.topic_name import base_of
from ...wire.topic_pattern import compile_pattern

MAX_PATTERN_CHARS = 50
"""Maximum length of a pattern (`subscriptionPatternMaxLength`); clients evaluate longer patterns."""

_SYSTEM = re.compile(
    r"/__change_events(-partition-\d+)?$|/__transaction_\w+|__transaction_pending_ack$|/transaction_coordinator_\w+"
)


def topics_hash(topics: Iterable[str]) -> str:
    """Return the hash by which clients detect an unchanged list; ``topics`` must be sorted."""
    value = int(google_crc32c.value(",".join(topics).encode()))
    return value.to_bytes(4, "little").hex()


def is_system(name: str) -> bool:
    """Return whether a topic is a Pulsar system topic, which lists omit."""
    return _SYSTEM.search(name) is not None


def topic_filter(pattern: str) -> Callable[[str], bool]:
    """Return a predicate that matches full topic names against a pattern.

    The domain and partition suffix of names are ignored, and so is a domain before the pattern.

    Raises:
        PatternNotSupported: the pattern is only supported by Java's regular expressions.
        InvalidPattern: the pattern is not a valid regular expression.
    """
    matches = compile_pattern(pattern.split("://", 1)[-1])

    def takes(name: str) -> bool:
        rest = name.split("://", 1)[1]
        return matches(base_of(rest) if "-partition-" in rest else rest)

    return takes


class TopicList:
    """The topics that match a pattern, sorted.

    Attributes:
        names: full names, including each partition; only changed by `set_present`.
    """

    def __init__(self, takes: Callable[[str], bool], names: Iterable[str]) -> None:
        self._takes = takes
        self.names = sorted(name for name in names if self._is_listed(name))
        self._digest: str | None = None

    def __repr__(self) -> str:
        return f"TopicList({len(self.names)} names, {self.digest})"

    def _is_listed(self, name: str) -> bool:
        return not is_system(name) and self._takes(name)

    @property
    def digest(self) -> str:
        """Hash of the names."""
        if self._digest is None:
            self._digest = topics_hash(self.names)
        return self._digest

    def set_present(self, name: str, is_present: bool) -> bool:
        """Add or remove a topic, and return whether the list has changed."""
        index = bisect_left(self.names, name)
        was_present = index < len(self.names) and self.names[index] == name
        if was_present == is_present or (is_present and not self._is_listed(name)):
            return False
        if is_present:
            self.names.insert(index, name)
        else:
            del self.names[index]
        self._digest = None
        return True


class TopicChanges:
    """List changes that a watcher has not received yet; memory depends on the number of topics, not changes.

    A topic that was deleted and recreated counts as both deleted and new, because a watcher that has received the old
    topic must receive its deletion.
    """

    def __init__(self) -> None:
        self._deleted: dict[str, None] = {}
        self._new: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._deleted or self._new)

    def note(self, name: str, is_present: bool) -> None:
        """Record a change of the list."""
        if is_present:
            self._new[name] = None
        elif name in self._new:
            del self._new[name]  # the watcher has not received this topic
        else:
            self._deleted[name] = None

    def take(self, most: int) -> tuple[list[str], list[str]]:
        """Remove and return the next deleted names and the new names to apply after them, at most ``most`` in total."""
        deleted = list(self._deleted)[:most]
        # New names follow all deletions, or the watcher would consider a recreated topic deleted.
        new = list(self._new)[: most - len(deleted)] if len(deleted) == len(self._deleted) else []
        for name in deleted:
            del self._deleted[name]
        for name in new:
            del self._new[name]
        return deleted, new
