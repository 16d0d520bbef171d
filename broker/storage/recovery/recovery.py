"""Recovery: load a data directory into memory.

Design: load the catalogue, then replay the journal from the position in the catalogue. The writer has only one group in
flight at a time, so a valid group n proves that all groups before n were synced. This determines the meaning of an
unreadable group n. If no valid group numbered n or higher follows, in this file or a later one, then group n was in
flight when the machine stopped and was never confirmed. The journal ends there, with a torn tail whose pages may have
been written in any order. Otherwise, the disk has lost confirmed data, and startup fails with an error that names the
file and offset, because continuing would silently drop confirmed messages.

The final end of a file is stored in the header of the next file, so a tail is never read again after it was truncated.
Two more cases need care. After a process crash, the page cache may contain data that is not on disk yet. Replayed data
is therefore synced before anything depends on it, and the last group is rewritten first: its sync may have failed, and
the kernel may then return pages that it will never write. After a power failure, renames that were not synced may be
undone, so the directories are synced first.
"""

from __future__ import annotations

import json
import logging
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from ....errors import StorageError
from ..catalogue import FORMAT, JournalKey, read_catalogue, write_catalogue
from ..core import StorageCore
from ..disk.disk import Disk
from ..disk.failures import DamagedFile, UnknownLogs, disk_action
from ..hidden_logs import HIDDEN, restore_view
from ..journal import format as layout
from ..journal.journal import JournalEnd, JournalFiles, file_sequence
from ..topic_log import TopicLog
from .migration import migrate
from .replay import Replay, RestingIds, UnknownLog

_NEVER = 2**63  # higher than the number of any journal file
_CLOSED_MS = 7  # index of the closing time in the list that describes a ledger
_SHOWN = 3  # maximum number of unknown logs described in an error
logger = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """The journal's state after recovery.

    Attributes:
        files: journal files.
        end: end of the journal.
        salvaged: salvaged logs, whose creation must still be recorded.
    """

    files: JournalFiles
    end: JournalEnd
    salvaged: tuple[TopicLog, ...]


def recover(core: StorageCore, rng: random.Random) -> Recovered:
    """Load the data directory into ``core``; ``rng`` generates the key of a new journal.

    Raises:
        DamagedFile: synced data is missing or damaged; the message names the file and offset.
        NewerFormat: a later version wrote the directory.
        UnknownLogs: the journal contains records of unknown logs, and salvage is disabled.
        DiskFailure: a disk operation failed.
    """
    disk, directory = core.disk, core.directory
    journal, ledgers = f"{directory}/journal", f"{directory}/ledgers"
    for path in (directory, journal, ledgers):
        with disk_action("create the directory", path):
            disk.make_directory(path)
    for path in (directory, journal, ledgers):
        with disk_action("sync the directory", path):
            disk.sync_directory(path)
    catalogue = read_catalogue(disk, directory)
    at_rest = RestingIds()
    start = JournalEnd(1, layout.PAGE, 1, None)
    core.journal_key = JournalKey(rng.randbytes(layout.KEY_BYTES), start.sequence)
    if catalogue is not None:
        head = catalogue.head
        start = head.start
        core.journal_key = head.journal_key or JournalKey(core.journal_key.key, _NEVER)
        core.ids.saw(ledger=head.next_ledger - 1, an_object=head.next_object - 1)
        at_rest = _restore_logs(core, catalogue.lines)
    elif _names(disk, journal) or _names(disk, ledgers):
        raise StorageError(
            f"data directory {directory} contains data but no catalogue: restore {directory}/catalogue from a backup, "
            "or move the directory away to start with an empty one"
        )
    else:
        write_catalogue(disk, directory, core.catalogue_head(start), ())
    files = JournalFiles(journal, core.journal_key.key)
    replay = Replay(core, at_rest)
    reader = _JournalReader(disk, files, start, core.journal_key)
    for path, offset, group in reader.groups():
        try:
            replay.apply(group.body, f"{path} at offset {offset}")
        except (ValueError, KeyError, TypeError, struct.error) as exc:
            what = exc if isinstance(exc, ValueError) else repr(exc)
            raise DamagedFile(
                path, offset, f"group {group.number} has a valid checksum but invalid content: {what}"
            ) from exc
    unknown = replay.unknown_logs()
    if unknown and not core.config.salvage:
        raise UnknownLogs(_explain(directory, unknown))
    salvaged = tuple(replay.adopt(each) for each in unknown)
    replay.finish()
    # Migrate only after the replay, so that a directory that cannot be recovered remains unchanged.
    if catalogue is not None and catalogue.format < FORMAT:
        if catalogue.head.journal_key is None:
            end = reader.end
            core.journal_key = JournalKey(files.key, end.sequence if end.file_id is None else end.sequence + 1)
        migrate(disk, directory, catalogue, core.catalogue_head(start))
    _remove_strays(core, at_rest, ledgers)
    return Recovered(files, reader.end, salvaged)


def _explain(directory: str, unknown: Sequence[UnknownLog]) -> str:
    shown = "; ".join(each.describe() for each in unknown[:_SHOWN])
    more = f"; {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    records = sum(each.records for each in unknown)
    return (
        f"data directory {directory} contains {records} records of {len(unknown)} topics that were neither created nor"
        f" deleted: {shown}{more}; run `magnetar broker --salvage` (or `magnetar standalone --salvage`) once to recover"
        " them under generated names, or restore the directory from a backup"
    )


def _restore_logs(core: StorageCore, lines: Sequence[bytes]) -> RestingIds:
    """Restore the logs listed in the catalogue, and return the ids of the logs that remain unloaded."""
    at_rest = RestingIds()
    used: dict[int, TopicLog] = {}
    views: dict[int, Mapping[str, Any]] = {}
    for line in lines:
        state = json.loads(line)
        if _may_rest(state):
            core.logs.add_line(state["name"], line)
            at_rest.add(state)
            continue
        log = used[state["log"]] = TopicLog.from_line(core, line)
        core.logs.add(log)
        log.close_ledger()
        if state.get("view") is not None:  # missing in catalogues older than compaction
            views[log.id] = state["view"]
    for log_id, view in views.items():
        restore_view(used[log_id], view, used)
    return at_rest


def _may_rest(state: Mapping[str, Any]) -> bool:
    # A log with an open ledger must be loaded, because the ledger is closed during recovery.
    are_closed = all(len(ledger) > _CLOSED_MS and ledger[_CLOSED_MS] is not None for ledger in state["ledgers"])
    return are_closed and state.get("view") is None and not state["name"].startswith(HIDDEN)


def _names(disk: Disk, directory: str) -> list[str]:
    with disk_action("list the directory", directory):
        return disk.list(directory)


def _remove_strays(core: StorageCore, at_rest: RestingIds, directory: str) -> None:
    """Remove the files of deleted ledgers that were not removed before."""
    wanted = {f"{ledger_id}.ledger" for log in core.logs.used.values() for ledger_id in log.ledgers_by_id}
    wanted.update(f"{ledger_id}.ledger" for ledger_id in at_rest.ledgers)
    for name in _names(core.disk, directory):
        if name not in wanted and name.endswith(".ledger"):
            if (number := name.removesuffix(".ledger")).isdecimal():
                core.ids.saw(ledger=int(number))
            path = f"{directory}/{name}"
            with disk_action("remove", path):
                core.disk.remove(path)


class _JournalReader:
    """Reads all journal groups from ``start`` on.

    Attributes:
        end: end of the journal; valid once `groups` is exhausted.
    """

    def __init__(self, disk: Disk, files: JournalFiles, start: JournalEnd, key: JournalKey) -> None:
        self._key = key
        self._nonce = b""  # of the current file
        self._disk = disk
        self._files = files
        self._start = start
        self.end = start
        self._paths: dict[int, str] = {}
        for name in _names(disk, files.directory):
            sequence = file_sequence(name)
            if sequence is None:
                continue
            if sequence < start.sequence:
                files.free.append(f"{files.directory}/{name}")
            else:
                self._paths[sequence] = f"{files.directory}/{name}"

    def groups(self) -> Iterator[tuple[str, int, layout.Group]]:
        """Yield (path, offset, group) for each group, in order.

        Raises:
            DamagedFile: confirmed data is missing (see the module docstring).
        """
        headers = self._headers()
        last = max(headers, default=0)
        begun_id = self._start.file_id
        if begun_id is not None:
            first = headers.get(self._start.sequence)
            if first is None or first.file_id != begun_id:
                raise DamagedFile(
                    self._files.path(self._start.sequence), 0, "missing, or not the file that the catalogue refers to"
                )
        for sequence in range(self._start.sequence, last + 1):
            header = headers.get(sequence)
            if header is None:
                raise DamagedFile(
                    self._files.path(sequence), 0, f"missing or unreadable, but a later journal file ({last}) exists"
                )
            offset, first_group = layout.PAGE, header.first_group
            if sequence == self._start.sequence and begun_id is not None:
                offset, first_group = self._start.offset, self._start.group
            elif first_group < self.end.group:
                raise DamagedFile(
                    self._paths[sequence], 0, f"starts with group {first_group}, expected {self.end.group}"
                )
            self.end = JournalEnd(sequence, offset, first_group, header.file_id)
            self._nonce = header.nonce
            following = headers.get(sequence + 1)
            yield from self._groups_of_file(following.previous_end if following else None)
            self._files.used.append(sequence)

    def _headers(self) -> dict[int, layout.FileHeader]:
        """Return the headers of the files that have been started, by number."""
        headers = {}
        for sequence in sorted(self._paths):
            content = self._content(sequence, layout.PAGE)
            header = layout.decode_file_header(content)
            if header is not None and header.sequence == sequence:
                headers[sequence] = header
        newest = max(headers.values(), default=None, key=lambda header: header.sequence)
        least_group = max(newest.first_group, self._start.group) if newest else self._start.group
        for sequence, path in sorted(self._paths.items()):
            if sequence in headers:
                continue
            # The file was never started: it is new, prepared, or renamed for recycling. It is damaged if it contains a
            # group that is newer than the content of any recycled file, because the header is synced before groups.
            begun = self._start.file_id is not None and sequence == self._start.sequence
            content = self._content(sequence, None)
            is_ours = partial(self._may_be_of, sequence)
            first = layout.PAGE
            if layout.is_prepared(content[: layout.PAGE], sequence):
                # The header is written together with the first group, so a group without it was in flight.
                group = layout.decode_group(content, layout.PAGE, len(content))
                first = group.end if group is not None and is_ours(group) else first
            if begun or layout.find_group(content, first, least_group, is_ours) is not None:
                raise DamagedFile(path, 0, "the file contains groups, but its header is unreadable")
            self._files.free.append(path)
        return headers

    def _may_be_of(self, sequence: int, found: layout.Group) -> bool:
        """Return whether a group may belong to file ``sequence``, whose header is unreadable."""
        if sequence < self._key.since and not found.nonce:
            return True  # format 1: the group has no nonce to check
        return found.nonce == layout.nonce_of(self._key.key, sequence, found.file_id)

    def _is_of_this(self, found: layout.Group) -> bool:
        return found.file_id == self.end.file_id and found.nonce == self._nonce

    def _groups_of_file(self, limit: int | None) -> Iterator[tuple[str, int, layout.Group]]:
        """Yield the groups of file ``self.end.sequence`` up to ``limit``, which is None for the last file."""
        sequence = self.end.sequence
        path = self._paths[sequence]
        content = self._content(sequence, None, sync=True)
        offset, number = self.end.offset, self.end.group
        last = offset  # offset of the last group
        while limit is None or offset < limit:
            group = layout.decode_group(content, offset, len(content))
            # The journal ends where the next group of this file is missing. Any content there is damaged, was in
            # flight, or is old content of a recycled file.
            if group is None or not self._is_of_this(group) or group.number != number:
                self._check_torn(path, content, offset, limit)
                break
            yield path, offset, group
            last, offset, number = offset, group.end, number + 1
            self.end = JournalEnd(sequence, offset, number, self.end.file_id)
        if limit is None:
            self._write_again(path, content, last, offset)

    def _write_again(self, path: str, content: bytes, begin: int, end: int) -> None:
        """Rewrite the header and the last group of the journal, because their sync may have failed.

        The kernel marks pages as clean even if writing them failed, so they may only exist in the page cache.
        """
        with disk_action("write to the journal", path), closing(self._disk.open(path)) as file:
            file.write(0, [content[: layout.PAGE]])
            if begin < end:
                file.write(begin, [content[begin:end]])
            file.sync()

    def _check_torn(self, path: str, content: bytes, offset: int, limit: int | None) -> None:
        """Raise DamagedFile unless the content at ``offset`` may be the group that was in flight."""
        number = self.end.group
        if limit is not None:
            raise DamagedFile(
                path, offset, f"group {number} is unreadable, but the file contains groups up to offset {limit}"
            )
        later = layout.find_group(content, offset, number, self._is_of_this)
        if later is not None:
            raise DamagedFile(
                path, offset, f"group {number} is unreadable, but a later group follows at offset {later}"
            )
        if any(content[offset : offset + layout.PAGE]):
            logger.info(
                "recovered journal %s up to offset %d: dropped group %d, which was still in flight",
                path,
                offset,
                number,
            )
        # Never reuse the number, since parts of the torn group may appear later.
        self.end = JournalEnd(self.end.sequence, offset, number + 1, self.end.file_id)

    def _content(self, sequence: int, length: int | None, *, sync: bool = False) -> bytes:
        path = self._paths[sequence]
        with disk_action("read the journal", path), closing(self._disk.open(path)) as file:
            if sync:
                file.sync()
            return file.read(0, file.size() if length is None else length)
