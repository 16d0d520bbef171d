"""The logs of a storage by name: loaded logs are objects, unloaded ones only their catalogue lines.

Design: a directory may hold far more logs than are in use. An unloaded log is only its line in the catalogue, which
takes a tenth of the memory; it becomes an object again on the next access. For a while the object of an unloaded log is
kept: until then there is no second object of that name, and a change to the first one loads it again. `free` ends that;
it also breaks the reference cycles of the log, so that its memory is free without a garbage collection, which would
stop the broker for as long as it takes to scan all other logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .catalogue import CatalogueLines
    from .topic_log import TopicLog


class Unloaded:
    """One unloading of a log, for `Logs.free`."""

    __slots__ = ("log",)

    def __init__(self, log: TopicLog) -> None:
        self.log = log


class Logs:
    """All logs of one storage.

    Args:
        lines: the catalogue lines of loaded logs.
        wake: loads a log from its line in the catalogue.

    Attributes:
        used: the loaded logs; change it only with the methods here.
    """

    def __init__(self, lines: CatalogueLines, wake: Callable[[bytes], TopicLog]) -> None:
        self.used: dict[str, TopicLog] = {}
        self._lines = lines
        self._wake = wake
        self._at_rest: dict[str, bytes] = {}
        self._kept: dict[str, Unloaded] = {}  # unloaded logs that may still be in use

    def __len__(self) -> int:
        return len(self.used) + len(self._at_rest)

    def __contains__(self, name: str) -> bool:
        return name in self.used or name in self._at_rest

    def __iter__(self) -> Iterator[str]:
        yield from self.used
        yield from self._at_rest

    @property
    def lines(self) -> Collection[bytes]:
        """The lines of the unloaded logs, with line ends."""
        return self._at_rest.values()

    def is_at_rest(self, name: str) -> bool:
        """Return whether there is an unloaded log of that name."""
        return name in self._at_rest

    def get(self, name: str) -> TopicLog | None:
        """Return the log of that name, which counts as loaded from now on, or None."""
        log = self.used.get(name)
        if log is not None or name not in self._at_rest:
            return log
        kept = self._kept.get(name)
        log = self._wake(self._at_rest[name]) if kept is None else kept.log
        self._use(log)
        return log

    def add(self, log: TopicLog) -> None:
        """Add a loaded log."""
        self.used[log.name] = log

    def pop(self, name: str) -> TopicLog | None:
        """Remove and return the log of that name, or None."""
        log = self.get(name)
        if log is not None:
            del self.used[name]
        return log

    def add_line(self, name: str, line: bytes) -> None:
        """Add an unloaded log that has not been used yet."""
        self._at_rest[name] = line

    def unload(self, log: TopicLog, line: bytes) -> Unloaded:
        """Unload a log, keeping only its line and, until `free`, the object."""
        del self.used[log.name]
        self._lines.forget(log)
        self._at_rest[log.name] = line
        kept = self._kept[log.name] = Unloaded(log)
        return kept

    def free(self, unloaded: Sequence[Unloaded]) -> None:
        """Free unloaded logs, except those loaded again since; others that hold them cannot use them any more."""
        for one in unloaded:
            if self._kept.get(one.log.name) is one:
                del self._kept[one.log.name]
                one.log.free()

    def changed(self, log: TopicLog) -> None:
        """Note that a log changed, which loads it again."""
        kept = self._kept.get(log.name)
        if kept is not None and kept.log is log:
            self._use(log)

    def _use(self, log: TopicLog) -> None:
        self.used[log.name] = log
        self._lines.restore(log, self._at_rest.pop(log.name))
        self._kept.pop(log.name, None)
