"""Ledgers on disk: a ledger file is a sequence of blocks of entries.

Design: each checkpoint appends new blocks of entries after the last block and syncs them. A block header contains the
block's entry ids, length and publish times, so the index (three integers per block) is rebuilt from the headers alone,
and only when an old ledger is read. The number of entries in the catalogue determines which blocks are valid: blocks of
an unconfirmed checkpoint are overwritten by the next one.

Invariant: a process never overwrites a block that it has synced. If a checkpoint failed at the rename of the catalogue,
the new catalogue may still be installed, and then the block is the only copy of its entries. So the next attempt
continues after it.

Blocks are not aligned to pages, because with thousands of low-traffic topics, every few entries would take 4 KiB.
"""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import google_crc32c

from ....wire.position import Position
from ..disk.disk import Disk, DiskFile
from ..disk.failures import DamagedFile, disk_action
from ..entry import StoredEntry
from ..journal.format import ENTRY_HEAD_BYTES, EntryRecord, decode_records, publish_time_of

_MAGIC = b"BLK1"
_HEAD = struct.Struct("<4sIQQIIqq")  # magic, crc, ledger, first entry, entries, body bytes, oldest, newest publish time
_CRC_END = 8
_BLOCK_BYTES = 256 * 1024
_WRITE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _BlockHead:
    crc: int
    ledger_id: int
    first_entry: int
    entries: int
    body_bytes: int
    oldest_ms: int
    newest_ms: int


class LedgerFile:
    """The file of a ledger. Methods block, and are thread-safe: any lane except the loop lane may call them."""

    def __init__(self, disk: Disk, path: str, ledger_id: int) -> None:
        self._disk = disk
        self.path = path
        self._ledger_id = ledger_id
        self._lock = threading.Lock()
        self._first_entries = array("Q")
        self._offsets = array("Q")
        self._newest = array("q")  # publish time
        self._entries = 0  # number of entries covered by the index
        self._synced = 0  # number of entries synced by this object
        self._end = 0  # offset of the end of the last indexed block

    def write(self, first_entry: int, parts: Sequence[bytes]) -> bool:
        """Write and sync entries from ``first_entry`` on, and return whether the file is new.

        Args:
            first_entry: id of the first entry. Earlier entries must be in the file; later blocks are overwritten unless
                they were synced.
            parts: alternating heads and payloads.

        Raises:
            DiskFailure: the disk failed; retry with the same entries, or more.
            DamagedFile: entries before ``first_entry`` are missing.
        """
        is_new = first_entry == 0
        with self._lock, self._opened(create=is_new) as file:
            self._index_up_to(file, first_entry)
            start = self._rewind(file, max(first_entry, self._synced))
            self._write_blocks(file, start, parts[2 * (start - first_entry) :])
            with disk_action("sync the ledger", self.path):
                file.sync()
            self._synced = self._entries
        return is_new

    def read(self, start: int, end: int, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from ``start`` on; whole blocks are read until a limit is reached, which may be exceeded.

        Args:
            start: id of the first entry, which the file must contain.
            end: number of entries confirmed by a checkpoint.
            max_entries: number of entries after which no further block is read.
            max_bytes: number of payload bytes after which no further block is read.
        """
        found: list[StoredEntry] = []
        total = 0
        with self._lock, self._opened() as file:
            self._index_up_to(file, end)
            while start < end and len(found) < max_entries and total < max_bytes:
                for record in self._block_with(file, start):
                    if start <= record.entry_id < end:
                        position = Position(self._ledger_id, record.entry_id)
                        found.append(StoredEntry(position, record.payload, record.messages))
                        total += len(record.payload)
                        start = record.entry_id + 1
        return found

    def first_since(self, time_ms: int, start: int, end: int) -> int | None:
        """Return the first entry in ``range(start, end)`` published at ``time_ms`` or later, or None."""
        with self._lock, self._opened() as file:
            self._index_up_to(file, end)
            for block in range(self._block_of(start), len(self._offsets)):
                first, _ = self._entries_of(block)
                if first >= end:
                    break
                if self._newest[block] < time_ms:
                    continue
                for record in self._block_with(file, first):
                    if start <= record.entry_id < end and record.publish_time_ms >= time_ms:
                        return record.entry_id
        return None

    def bytes_from(self, start: int, end: int) -> int:
        """Return the payload bytes of the entries in ``range(start, end)``."""
        if start >= end:
            return 0
        with self._lock, self._opened() as file:
            self._index_up_to(file, end)
            blocks = self._block_of(start), self._block_of(end - 1)
            size = self._payload_bytes(*blocks)
            for block in set(blocks):
                first, behind = self._entries_of(block)
                if first < start or end < behind:
                    records = self._block_with(file, first)
                    size -= sum(len(record.payload) for record in records if not start <= record.entry_id < end)
        return size

    def first_within(self, max_bytes: int, end: int) -> int:
        """Return the lowest ``start`` for which ``range(start, end)`` has at most ``max_bytes`` of payload."""
        with self._lock, self._opened() as file:
            self._index_up_to(file, end)
            for block in reversed(range(len(self._offsets))):
                first, behind = self._entries_of(block)
                size = self._payload_bytes(block, block)
                if behind <= end and size <= max_bytes:
                    max_bytes -= size
                    end = first
                elif first < end:
                    for record in reversed(self._block_with(file, first)):
                        if record.entry_id >= end:
                            continue
                        max_bytes -= len(record.payload)
                        if max_bytes < 0:
                            return record.entry_id + 1
                    end = first
        return end

    def _entries_of(self, block: int) -> tuple[int, int]:
        """Return the id of the first entry of a block and the id after its last entry."""
        is_last = block + 1 == len(self._offsets)
        return self._first_entries[block], self._entries if is_last else self._first_entries[block + 1]

    def _block_of(self, entry_id: int) -> int:
        return bisect_right(self._first_entries, entry_id) - 1

    def _payload_bytes(self, first_block: int, last_block: int) -> int:
        """Return the payload bytes of a range of blocks, including the last one."""
        entries = self._entries_of(last_block)[1] - self._first_entries[first_block]
        is_last = last_block + 1 == len(self._offsets)
        length = (self._end if is_last else self._offsets[last_block + 1]) - self._offsets[first_block]
        return length - (last_block + 1 - first_block) * _HEAD.size - entries * ENTRY_HEAD_BYTES

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[DiskFile]:
        """Open the file for one operation, so that threads, not ledgers, determine the number of open files."""
        with disk_action("open the ledger", self.path):
            file = self._disk.open(self.path, create=create)
        with closing(file):
            yield file

    def _write_blocks(self, file: DiskFile, first_entry: int, parts: Sequence[bytes]) -> None:
        pending: list[bytes] = []
        pending_bytes = 0
        write_at = self._end
        block_start = 0
        size = 0
        for index in range(0, len(parts), 2):
            size += len(parts[index]) + len(parts[index + 1])
            if size >= _BLOCK_BYTES or index + 2 == len(parts):
                body = b"".join(parts[block_start : index + 2])
                times = [publish_time_of(head) for head in parts[block_start : index + 2 : 2]]
                head = self._block_head(first_entry, body, times)
                self._add_to_index(first_entry, len(times), max(times), _HEAD.size + len(body))
                pending += (head, body)
                pending_bytes += len(head) + len(body)
                first_entry += len(times)
                block_start, size = index + 2, 0
                if pending_bytes >= _WRITE_BYTES or block_start == len(parts):
                    with disk_action("write to the ledger", self.path):
                        file.write(write_at, pending)
                    write_at += pending_bytes
                    pending, pending_bytes = [], 0

    def _block_head(self, first_entry: int, body: bytes, times: list[int]) -> bytes:
        rest = struct.pack("<QQIIqq", self._ledger_id, first_entry, len(times), len(body), min(times), max(times))
        crc = google_crc32c.extend(google_crc32c.value(rest), body)
        return _MAGIC + int(crc).to_bytes(4, "little") + rest

    def _add_to_index(self, first_entry: int, entries: int, newest_ms: int, length: int) -> None:
        self._first_entries.append(first_entry)
        self._offsets.append(self._end)
        self._newest.append(newest_ms)
        self._entries = first_entry + entries
        self._end += length

    def _rewind(self, file: DiskFile, entries: int) -> int:
        """Remove blocks after the first ``entries`` entries from the index; return the id of the next entry to write.

        A block that extends beyond these entries, as written by version 0.1.0, is kept if its checksum is valid.
        """
        while self._entries > entries and self._first_entries[-1] >= entries:
            self._entries = self._first_entries.pop()
            self._end = self._offsets.pop()
            self._newest.pop()
        if self._entries > entries:
            self._block_with(file, entries)
        return self._entries

    def _index_up_to(self, file: DiskFile, entries: int) -> None:
        while self._entries < entries:
            head = self._read_head(file, self._end)
            if head.first_entry != self._entries or not head.entries:
                raise DamagedFile(
                    self.path, self._end, f"block starts at entry {head.first_entry}, expected {self._entries}"
                )
            self._add_to_index(head.first_entry, head.entries, head.newest_ms, _HEAD.size + head.body_bytes)

    def _read_head(self, file: DiskFile, offset: int) -> _BlockHead:
        with disk_action("read the ledger", self.path):
            data = file.read(offset, _HEAD.size)
        if len(data) < _HEAD.size or data[:4] != _MAGIC:
            raise DamagedFile(self.path, offset, "expected a block header")
        head = _BlockHead(*_HEAD.unpack(data)[1:])
        if head.ledger_id != self._ledger_id:
            raise DamagedFile(
                self.path, offset, f"block belongs to ledger {head.ledger_id}, expected {self._ledger_id}"
            )
        return head

    def _block_with(self, file: DiskFile, entry_id: int) -> list[EntryRecord]:
        offset = self._offsets[self._block_of(entry_id)]
        head = self._read_head(file, offset)
        with disk_action("read the ledger", self.path):
            block = file.read(offset, _HEAD.size + head.body_bytes)
        body = block[_HEAD.size :]
        if google_crc32c.extend(google_crc32c.value(block[_CRC_END : _HEAD.size]), body) != head.crc:
            raise DamagedFile(self.path, offset, f"checksum mismatch in a block of {head.entries} entries")
        return [record for record in decode_records(body) if isinstance(record, EntryRecord)]
