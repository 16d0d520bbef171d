"""The catalogue: one file that lists the logs, ledgers and cursors, and the journal position where replay starts.

Each checkpoint rewrites it and installs it with a rename, so there is always one complete catalogue. The first line
names the format of the whole directory and holds the length and checksum of the rest. Then follows one JSON object per
line: first the journal position, its key and the id counters, then each log. `migration.py` describes the earlier
formats.

Design: lines are captured on the loop lane and encoded in the background. A log reports its first change after a
capture; a log that did not change costs a capture nothing. Captured lines are kept until the log is captured again, so
each checkpoint has all lines and a failed checkpoint needs no extra work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import google_crc32c

from .cursors.image import Image, encode_head
from .disk.disk import Disk
from .disk.failures import DamagedFile, NewerFormat, disk_action
from .journal.journal import JournalEnd
from .ledgers.ledger import Ledger
from .ports import Captured, LogPort

FORMAT = 3
"""Format of the directory. Earlier software rejects a directory with a higher number."""
_MAGIC = "MAGNETAR-CATALOGUE-"
_CHUNK = 4 * 1024 * 1024


class Ids:
    """Ever-growing counters: an id is never reused.

    Attributes:
        next_ledger: id of the next ledger; the first is 1, because clients treat position (0, 0) as unset.
        next_object: id of the next log or cursor.
    """

    def __init__(self, next_ledger: int = 1, next_object: int = 1) -> None:
        self.next_ledger = next_ledger
        self.next_object = next_object

    def new_ledger(self) -> int:
        """Return an id for a ledger."""
        self.next_ledger += 1
        return self.next_ledger - 1

    def new_object(self) -> int:
        """Return an id for a log or a cursor."""
        self.next_object += 1
        return self.next_object - 1

    def saw(self, *, ledger: int = -1, an_object: int = -1) -> None:
        """Note ids found in the journal."""
        self.next_ledger = max(self.next_ledger, ledger + 1)
        self.next_object = max(self.next_object, an_object + 1)


@dataclass(frozen=True, slots=True)
class JournalKey:
    """Distinguishes groups of this directory's journal files from look-alikes in payloads.

    Attributes:
        key: of the nonces.
        since: number of the first journal file whose groups carry a nonce; earlier files are of format 1.
    """

    key: bytes
    since: int


@dataclass(frozen=True, slots=True)
class Head:
    """The content of a catalogue besides the logs.

    Attributes:
        start: where the replay of the journal begins.
        next_ledger: as in `Ids`.
        next_object: as in `Ids`.
        journal_key: None in a catalogue of format 1.
    """

    start: JournalEnd
    next_ledger: int
    next_object: int
    journal_key: JournalKey | None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A catalogue as read from disk.

    Attributes:
        head: its content besides the logs.
        lines: one per log, as `TopicLog.snapshot` wrote it.
        format: format of the directory.
    """

    head: Head
    lines: tuple[bytes, ...] = field(repr=False)
    format: int


def encode_line(state: dict[str, Any]) -> bytes:
    """Return one line of the catalogue."""
    return json.dumps(state, separators=(",", ":")).encode() + b"\n"


def write_catalogue(disk: Disk, directory: str, head: Head, lines: Iterable[bytes]) -> None:
    """Replace the catalogue with a new one, durably.

    Raises:
        DiskFailure: either the old or the new catalogue is in place; both are complete.
    """
    assert head.journal_key is not None
    body = encode_line(
        {
            "start": asdict(head.start),
            "next_ledger": head.next_ledger,
            "next_object": head.next_object,
            "journal_key": head.journal_key.key.hex(),
            "journal_key_since": head.journal_key.since,
        }
    ) + b"".join(lines)
    first = f"{_MAGIC}{FORMAT} {len(body)} {google_crc32c.value(body):08x}\n".encode()
    path = f"{directory}/catalogue"
    with disk_action("write the catalogue", path):
        # Leftovers of an interrupted write could extend beyond the new content: remove them first.
        if "catalogue.new" in disk.list(directory):
            disk.remove(f"{path}.new")
        with closing(disk.open(f"{path}.new", create=True)) as file:
            file.write(0, [first])
            for offset in range(0, len(body), _CHUNK):
                file.write(len(first) + offset, [body[offset : offset + _CHUNK]])
            file.sync()
        disk.rename(f"{path}.new", path)
        disk.sync_directory(directory)


def read_catalogue(disk: Disk, directory: str) -> Catalogue | None:
    """Return the catalogue, or None if the file does not exist.

    Raises:
        DamagedFile: the content does not match its checksum or format.
        NewerFormat: later software wrote it.
    """
    path = f"{directory}/catalogue"
    with disk_action("read the catalogue", path):
        if "catalogue" not in disk.list(directory):
            return None
        with closing(disk.open(path)) as file:
            content = file.read(0, file.size())
    first, _, body = content.partition(b"\n")
    words = first.decode("ascii", "replace").split(" ")
    number = words[0].removeprefix(_MAGIC)
    if not words[0].startswith(_MAGIC) or not number.isdecimal() or int(number) < 1:
        raise DamagedFile(path, 0, f"does not begin with {_MAGIC} and a format")
    if int(number) > FORMAT:
        raise NewerFormat(directory, int(number), FORMAT)
    if len(words) != 3:
        raise DamagedFile(path, 0, "the first line is not whole")
    if words[1] != str(len(body)) or words[2] != f"{google_crc32c.value(body):08x}":
        raise DamagedFile(path, len(first) + 1, f"wrong length ({len(body)} bytes) or checksum")
    first_line, *lines = body.splitlines(keepends=True)
    head = json.loads(first_line)
    key = JournalKey(bytes.fromhex(head["journal_key"]), head["journal_key_since"]) if "journal_key" in head else None
    start = JournalEnd(**head["start"])
    return Catalogue(Head(start, head["next_ledger"], head["next_object"], key), tuple(lines), int(number))


def encode_log(head: Mapping[str, Any], cursors: Sequence[Image]) -> bytes:
    """Return the line of a log, including the states of its cursors."""
    return encode_head(head) + b',"cursors":[' + b",".join([cursor.encode() for cursor in cursors]) + b"]}\n"


class CatalogueLines:
    """The lines of the loaded logs; its methods belong to the loop lane.

    Attributes:
        changed: logs that the next capture looks at.
        open_ledgers: ledgers that may still be open, oldest first.
    """

    def __init__(self) -> None:
        self.changed: set[LogPort] = set()
        self.open_ledgers: dict[int, Ledger] = {}
        self._lines: dict[int, Captured] = {}

    def restore(self, log: LogPort, line: bytes) -> None:
        """Restore the line of an unchanged log from the catalogue."""
        self._lines[log.id] = Image(partial(bytes, line))
        self.changed.discard(log)

    def forget(self, log: LogPort) -> None:
        """Drop the lines of a log that is now recorded elsewhere."""
        self._lines.pop(log.id, None)
        for ledger_id in log.ledgers_by_id:
            self.open_ledgers.pop(ledger_id, None)

    def capture(self, now_ms: int, *, is_last: bool = False) -> list[Captured]:
        """Return the current lines of all durable logs.

        Args:
            now_ms: wall time; ledgers that are too old are closed first.
            is_last: True at shutdown: all ledgers are closed first.
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
                return  # all later ones are younger
