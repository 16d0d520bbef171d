"""All logs by name: loaded logs as objects, unloaded logs as catalogue lines.

Design: a directory may contain far more logs than are in use. An unloaded log is reduced to its catalogue line, which
takes a tenth of the memory, and is loaded again on the next access. Its object may still be used: while it exists, no
second object is created for the name, and changing it reloads the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from .catalogue import CatalogueLines
    from .topic_log import TopicLog


class Logs:
    """All logs of the storage.

    Args:
        lines: catalogue lines of loaded logs.
        wake: creates a log from its catalogue line.

    Attributes:
        used: loaded logs by name; only changed by the methods of this class.
    """

    def __init__(self, lines: CatalogueLines, wake: Callable[[bytes], TopicLog]) -> None:
        self.used: dict[str, TopicLog] = {}
        self._lines = lines
        self._wake = wake
        self._at_rest: dict[str, bytes] = {}
        self._alive: WeakValueDictionary[str, TopicLog] = WeakValueDictionary()  # unloaded logs that are still in use

    def __len__(self) -> int:
        return len(self.used) + len(self._at_rest)

    def __contains__(self, name: str) -> bool:
        return name in self.used or name in self._at_rest

    def __iter__(self) -> Iterator[str]:
        yield from self.used
        yield from self._at_rest

    @property
    def lines(self) -> Collection[bytes]:
        """The catalogue lines of the unloaded logs, including line ends."""
        return self._at_rest.values()

    def is_at_rest(self, name: str) -> bool:
        """Return whether a log with this name exists and is unloaded."""
        return name in self._at_rest

    def get(self, name: str) -> TopicLog | None:
        """Return the log with this name, loading it if needed, or None."""
        log = self.used.get(name)
        if log is not None or name not in self._at_rest:
            return log
        log = self._alive.get(name)
        if log is None:
            log = self._wake(self._at_rest[name])
        self._use(log)
        return log

    def add(self, log: TopicLog) -> None:
        """Add a loaded log."""
        self.used[log.name] = log

    def pop(self, name: str) -> TopicLog | None:
        """Remove and return the log with this name, or return None."""
        log = self.get(name)
        if log is not None:
            del self.used[name]
        return log

    def add_line(self, name: str, line: bytes) -> None:
        """Add an unloaded log."""
        self._at_rest[name] = line

    def unload(self, log: TopicLog, line: bytes) -> None:
        """Unload a log, keeping only its catalogue line."""
        del self.used[log.name]
        self._lines.forget(log)
        self._at_rest[log.name] = line
        self._alive[log.name] = log

    def changed(self, log: TopicLog) -> None:
        """Reload an unloaded log, because it has changed."""
        if self._alive.get(log.name) is log:
            self._use(log)

    def _use(self, log: TopicLog) -> None:
        self.used[log.name] = log
        self._lines.restore(log, self._at_rest.pop(log.name))
        self._alive.pop(log.name, None)
