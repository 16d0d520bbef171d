"""All logs by name: loaded logs as objects, unloaded logs as catalogue lines.

Design: a directory may contain far more logs than are in use. An unloaded log is reduced to its catalogue line, which
takes a tenth of the memory, and is loaded again on the next access. Its object is retained until `free`: meanwhile, no
second object is created for the name, and changing the object reloads the log. `free` also breaks the reference cycles
of the log, so that its memory is released without a garbage collection, which would block the broker while it scans all
other logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .catalogue import CatalogueLines
    from .topic_log import TopicLog


class Unloaded:
    """An unloaded log whose object is kept until `Logs.free`."""

    __slots__ = ("log",)

    def __init__(self, log: TopicLog) -> None:
        self.log = log


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
        kept = self._kept.get(name)
        log = self._wake(self._at_rest[name]) if kept is None else kept.log
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

    def unload(self, log: TopicLog, line: bytes) -> Unloaded:
        """Unload a log, keeping only its catalogue line and, until `free`, its object."""
        del self.used[log.name]
        self._lines.forget(log)
        self._at_rest[log.name] = line
        kept = self._kept[log.name] = Unloaded(log)
        return kept

    def free(self, unloaded: Sequence[Unloaded]) -> None:
        """Free the objects of unloaded logs that were not reloaded; they must not be used afterwards."""
        for one in unloaded:
            if self._kept.get(one.log.name) is one:
                del self._kept[one.log.name]
                one.log.free()

    def changed(self, log: TopicLog) -> None:
        """Reload an unloaded log, because it has changed."""
        kept = self._kept.get(log.name)
        if kept is not None and kept.log is log:
            self._use(log)

    def _use(self, log: TopicLog) -> None:
        self.used[log.name] = log
        self._lines.restore(log, self._at_rest.pop(log.name))
        self._kept.pop(log.name, None)
