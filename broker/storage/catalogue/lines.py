"""The lines of the catalogue, one a log: captured on the loop lane where a log changed, encoded in the background.

Design: a log that changed says so once, until the next capture; a log that did not costs a capture nothing. What was
captured stays until it is captured anew, so each checkpoint has all lines, and a failed one needs no second look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..cursors.image import Image, encode_head
from ..ledgers.ledger import Ledger
from ..ports import Captured, LogPort
from .catalogue import encode_line


def encode_log(head: Mapping[str, Any], cursors: Sequence[Image]) -> bytes:
    """Return the line of a log with the states of its cursors."""
    return encode_head(head) + b',"cursors":[' + b",".join([cursor.encode() for cursor in cursors]) + b"]}\n"


class CatalogueLines:
    """All lines; its methods belong to the loop lane.

    Attributes:
        changed: logs that the next capture looks at.
        open_ledgers: ledgers that were begun and perhaps are open still, oldest first.
    """

    def __init__(self) -> None:
        self.changed: set[LogPort] = set()
        self.open_ledgers: dict[int, Ledger] = {}
        self._lines: dict[int, Captured] = {}

    def restore(self, log: LogPort, state: dict[str, Any]) -> None:
        """Take the line of a log as the catalogue has it: nothing changed since."""
        self._lines[log.id] = Image(partial(bytes, encode_line(state)))
        self.changed.discard(log)

    def capture(self, now_ms: int, *, is_last: bool = False) -> list[Captured]:
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
