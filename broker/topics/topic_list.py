"""Topic lists of a namespace: pattern matching, hash, and the changes that a watcher has not received yet.

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
"""`subscriptionPatternMaxLength`: longer patterns are left to the client."""

_SYSTEM = re.compile(
    r"/__change_events(-partition-\d+)?$|/__transaction_\w+|__transaction_pending_ack$|/transaction_coordinator_\w+"
)


def topics_hash(topics: Iterable[str]) -> str:
    """Return the hash by which a client detects an unchanged list; ``topics`` are sorted."""
    value = int(google_crc32c.value(",".join(topics).encode()))
    return value.to_bytes(4, "little").hex()


def is_system(name: str) -> bool:
    """Return whether a topic is a Pulsar system topic, which lists omit."""
    return _SYSTEM.search(name) is not None


def topic_filter(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether a full topic name matches the pattern.

    Domain and partition suffix are ignored, and so is a domain in front of the pattern.

    Raises:
        PatternNotSupported: only Java's engine understands it.
        InvalidPattern: it is not a valid regular expression.
    """
    matches = compile_pattern(pattern.split("://", 1)[-1])

    def takes(name: str) -> bool:
        rest = name.split("://", 1)[1]
        return matches(base_of(rest) if "-partition-" in rest else rest)

    return takes


class TopicList:
    """The topics that match a pattern, sorted.

    Attributes:
        names: full names, each partition separately; changed only by `set_present`.
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
        """The hash of the names."""
        if self._digest is None:
            self._digest = topics_hash(self.names)
        return self._digest

    def set_present(self, name: str, is_present: bool) -> bool:
        """Add or remove a topic; return whether that changed the list."""
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
    """List changes that a watcher has not received yet, bounded by the number of changed topics, not of changes.

    A topic that was deleted and created again is in both parts: a watcher that knew the old one must see its deletion.
    """

    def __init__(self) -> None:
        self._deleted: dict[str, None] = {}
        self._new: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._deleted or self._new)

    def note(self, name: str, is_present: bool) -> None:
        """Note a change of the list."""
        if is_present:
            self._new[name] = None
        elif name in self._new:
            del self._new[name]  # the watcher never received this one
        else:
            self._deleted[name] = None

    def take(self, most: int) -> tuple[list[str], list[str]]:
        """Return the next deleted names, then new names to apply after them; ``most`` of them at most."""
        deleted = list(self._deleted)[:most]
        # New names follow once all deletions are out, or a topic deleted and created again would end up deleted.
        new = list(self._new)[: most - len(deleted)] if len(deleted) == len(self._deleted) else []
        for name in deleted:
            del self._deleted[name]
        for name in new:
            del self._new[name]
        return deleted, new
