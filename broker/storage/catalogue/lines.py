"""The lines of the catalogue, one a log: captured on the loop lane where a log changed, encoded in the background.

Design: a log that changed says so once, until the next capture; a log that did not costs a capture nothing. What was
captured stays until it is captured anew, so each checkpoint has all lines, and a failed one needs no second look.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..cursors.image import CursorImage
from .catalogue import encode_line

if TYPE_CHECKING:
    from ..ledgers.ledger import Ledger


class LogPort(Protocol):
    """A log, as its line of the catalogue is captured; see `broker.storage.topic_log.TopicLog`."""

    @property
    def id(self) -> int:
        """Names the log in journal records."""

    @property
    def is_created(self) -> bool:
        """Whether its first record has been queued."""

    @property
    def is_deleted(self) -> bool:
        """Whether it has no line any more."""

    def snapshot(self) -> LogLine:
        """Return the log's line."""


class LogLine:
    """The state of a log at one moment; the background lane encodes it, once."""

    __slots__ = ("_cursors", "_encoded", "_head")

    def __init__(self, head: Mapping[str, Any], cursors: Sequence[CursorImage]) -> None:
        self._head: Mapping[str, Any] | None = head
        self._cursors: Sequence[CursorImage] = cursors
        self._encoded = b""

    @classmethod
    def of(cls, line: bytes) -> LogLine:
        """Return a line that is encoded already."""
        it = cls({}, ())
        it._encoded = line
        return it

    def encode(self) -> bytes:
        """Return the line; drops what it was made of."""
        if not self._encoded:
            head = json.dumps(self._head, separators=(",", ":")).encode()
            cursors = b",".join([cursor.encode() for cursor in self._cursors])
            self._encoded = head[:-1] + b',"cursors":[' + cursors + b"]}\n"
            self._head, self._cursors = None, ()
        return self._encoded


class CatalogueLines:
    """All lines; its methods belong to the loop lane.

    Attributes:
        changed: logs that the next capture looks at.
        open_ledgers: ledgers that were begun and perhaps are open still, oldest first.
    """

    def __init__(self) -> None:
        self.changed: set[LogPort] = set()
        self.open_ledgers: dict[int, Ledger] = {}
        self._lines: dict[int, LogLine] = {}

    def restore(self, log: LogPort, state: dict[str, Any]) -> None:
        """Take the line of a log as the catalogue has it: nothing changed since."""
        self._lines[log.id] = LogLine.of(encode_line(state))
        self.changed.discard(log)

    def capture(self, now_ms: int, *, is_last: bool = False) -> list[LogLine]:
        """Return the lines of all durable logs, as they are at this moment.

        Args:
            now_ms: wall time; ledgers that are too old are closed before.
            is_last: no more entries will come, and the lines shall say that all ledgers were closed now.
        """
        self._close_ledgers(now_ms, is_last)
        changed, self.changed = self.changed, set()
        for log in changed:
            if log.is_deleted:
                self._lines.pop(log.id, None)
            elif log.is_created:
                self._lines[log.id] = log.snapshot()
            else:
                self._lines.pop(log.id, None)
                self.changed.add(log)
        return list(self._lines.values())

    def _close_ledgers(self, now_ms: int, is_last: bool) -> None:
        for ledger_id, ledger in list(self.open_ledgers.items()):
            if is_last and not ledger.is_dropped:
                ledger.log.close_ledger()
            if ledger.log.close_old_ledger(ledger, now_ms):
                del self.open_ledgers[ledger_id]
            else:
                return  # those behind it are younger


def encoded(lines: Iterable[LogLine]) -> Iterator[bytes]:
    """Yield the lines as the catalogue has them; on the background lane."""
    for line in lines:
        yield line.encode()
