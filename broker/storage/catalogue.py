"""The catalogue: a file that lists all logs, ledgers and cursors, and the journal position where replay starts.

Each checkpoint writes a new catalogue and installs it with a rename, so a complete catalogue always exists. The first
line contains the format number of the directory, and the length and checksum of the remaining lines. Each of these is a
JSON object: the first holds the journal position, the journal key and the id counters, and each of the others describes
one log. `migration.py` describes earlier formats.

Design: lines are captured on the loop lane and encoded in the background. A log reports only its first change after a
capture, and capturing an unchanged log costs nothing. A captured line is reused until its log is captured again, so
every checkpoint has all lines, and a failed checkpoint needs no cleanup.
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
"""Format number of the data directory. Older versions reject directories with a higher number."""
_MAGIC = "MAGNETAR-CATALOGUE-"
_CHUNK = 4 * 1024 * 1024


class Ids:
    """Counters that assign ids; an id is never reused.

    Attributes:
        next_ledger: id of the next ledger. Ids start at 1, because clients treat position (0, 0) as unset.
        next_object: id of the next log or cursor.
    """

    def __init__(self, next_ledger: int = 1, next_object: int = 1) -> None:
        self.next_ledger = next_ledger
        self.next_object = next_object

    def new_ledger(self) -> int:
        """Return the id of a new ledger."""
        self.next_ledger += 1
        return self.next_ledger - 1

    def new_object(self) -> int:
        """Return the id of a new log or cursor."""
        self.next_object += 1
        return self.next_object - 1

    def saw(self, *, ledger: int = -1, an_object: int = -1) -> None:
        """Skip ids that already exist, up to and including the given ones."""
        self.next_ledger = max(self.next_ledger, ledger + 1)
        self.next_object = max(self.next_object, an_object + 1)


@dataclass(frozen=True, slots=True)
class JournalKey:
    """The key that distinguishes journal groups of this directory from payload bytes that look like a group.

    Attributes:
        key: secret from which nonces are derived.
        since: number of the first journal file whose groups carry a nonce; earlier files have format 1.
    """

    key: bytes
    since: int


@dataclass(frozen=True, slots=True)
class Head:
    """Catalogue content that does not belong to a log.

    Attributes:
        start: journal position where replay starts.
        next_ledger: id of the next ledger.
        next_object: id of the next log or cursor.
        journal_key: key of the journal; None in a catalogue of format 1.
    """

    start: JournalEnd
    next_ledger: int
    next_object: int
    journal_key: JournalKey | None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A catalogue as read from disk.

    Attributes:
        head: content that does not belong to a log.
        lines: one line per log, as written by `TopicLog.snapshot`.
        format: format number of the directory.
    """

    head: Head
    lines: tuple[bytes, ...] = field(repr=False)
    format: int


def encode_line(state: dict[str, Any]) -> bytes:
    """Encode an object as a catalogue line."""
    return json.dumps(state, separators=(",", ":")).encode() + b"\n"


def write_catalogue(disk: Disk, directory: str, head: Head, lines: Iterable[bytes]) -> None:
    """Replace the catalogue durably.

    Raises:
        DiskFailure: the disk failed; either the old or the new catalogue is installed, and it is complete.
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
        # A file left by an interrupted write could be longer than the new content, so remove it first.
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
        NewerFormat: a later version wrote the catalogue.
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
        raise DamagedFile(path, 0, f"expected {_MAGIC} followed by a format number")
    if int(number) > FORMAT:
        raise NewerFormat(directory, int(number), FORMAT)
    if len(words) != 3:
        raise DamagedFile(path, 0, "incomplete first line")
    if words[1] != str(len(body)) or words[2] != f"{google_crc32c.value(body):08x}":
        raise DamagedFile(path, len(first) + 1, f"length ({len(body)} bytes) or checksum does not match the first line")
    first_line, *lines = body.splitlines(keepends=True)
    head = json.loads(first_line)
    key = JournalKey(bytes.fromhex(head["journal_key"]), head["journal_key_since"]) if "journal_key" in head else None
    start = JournalEnd(**head["start"])
    return Catalogue(Head(start, head["next_ledger"], head["next_object"], key), tuple(lines), int(number))


def encode_log(head: Mapping[str, Any], cursors: Sequence[Image]) -> bytes:
    """Return the catalogue line of a log, including the state of its cursors."""
    return encode_head(head) + b',"cursors":[' + b",".join([cursor.encode() for cursor in cursors]) + b"]}\n"


class CatalogueLines:
    """The catalogue lines of the loaded logs; all methods must be called on the loop lane.

    Attributes:
        changed: logs whose lines the next capture must update.
        open_ledgers: ledgers that may still be open, by id, oldest first.
    """

    def __init__(self) -> None:
        self.changed: set[LogPort] = set()
        self.open_ledgers: dict[int, Ledger] = {}
        self._lines: dict[int, Captured] = {}

    def restore(self, log: LogPort, line: bytes) -> None:
        """Store the catalogue line of a log that has not changed since the line was written."""
        self._lines[log.id] = Image(partial(bytes, line))
        self.changed.discard(log)

    def forget(self, log: LogPort) -> None:
        """Drop the line and the open ledgers of a log that is now recorded elsewhere."""
        self._lines.pop(log.id, None)
        for ledger_id in log.ledgers_by_id:
            self.open_ledgers.pop(ledger_id, None)

    def capture(self, now_ms: int, *, is_last: bool = False) -> list[Captured]:
        """Return the current lines of all durable logs.

        Args:
            now_ms: wall time; ledgers that have exceeded the maximum age are closed first.
            is_last: whether the storage is shutting down, in which case all ledgers are closed first.
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
                return  # all remaining ledgers are newer
