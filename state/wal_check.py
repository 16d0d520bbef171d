"""Detects transactions that the disk lost from the middle of SQLite's WAL, which SQLite itself does not report.

Design: after a crash SQLite reads the WAL up to the first frame with an invalid checksum, and discards the rest. That
is right for a transaction that was being written. But transactions are synced one after the other, so a crash can only
damage the last one. A complete transaction after a damaged one proves that the disk lost data it had confirmed. The
store then refuses to start, as the broker does with a damaged journal, instead of silently returning to an older state.

Among the frames after the last one that SQLite accepts, two commits are such proof if the second transaction is
complete: its checksums continue those of the first. Leftover frames of a failed transaction do not continue the
checksums of the frames written over its start, so they are never mistaken for such proof.

Source: SQLite's file format, section "The Write-Ahead Log".
"""

from __future__ import annotations

import sqlite3
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

HEADER = struct.Struct(">8I")
"""Magic number, format, page size, checkpoint number, two salts, two checksums."""
FRAME = struct.Struct(">6I")
"""Page number, pages of the database after a commit or 0, two salts, two checksums."""
MAGIC = 0x377F0682
"""The lowest bit is set if checksums are computed over big-endian words."""
INDEX_FRAMES_OFFSET = 16
"""Offset in the log's index, the SHM file, of the number of the last valid frame."""


class _Frame(NamedTuple):
    """One page of a transaction: its header, and the bytes that its checksum adds to the previous one."""

    is_commit: bool
    salts: tuple[int, int]
    checksums: tuple[int, int]
    summed: bytes


def has_lost_transactions(database: Path) -> bool:
    """Return whether a complete transaction follows the part of the database's log that SQLite can read.

    Must be called before the database is opened for writing; read-only.
    """
    log = database.with_name(f"{database.name}-wal")
    if not log.exists() or log.stat().st_size <= HEADER.size:
        return False
    taken = _frames_taken(database)
    with log.open("rb") as file:
        head = file.read(HEADER.size)
        magic, _, page_bytes, _, salt_1, salt_2, *checksums = HEADER.unpack(head)
        is_big = bool(magic & 1)
        if magic | 1 != MAGIC | 1 or _sum(head[:24], (0, 0), is_big) != tuple(checksums):
            # The header is synced before the first frame is written. So an invalid header is followed by no frames, or
            # it was damaged later.
            return any(file.read(1 << 20).strip(b"\0"))
        return _has_whole_transaction(_frames(file, page_bytes, taken), (salt_1, salt_2), is_big)


def _frames_taken(database: Path) -> int:
    """Let SQLite read the log, and return the number of valid frames."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        # A read-only connection cannot query this number, but the log's index contains it too.
        with database.with_name(f"{database.name}-shm").open("rb") as index:
            index.seek(INDEX_FRAMES_OFFSET)
            return int.from_bytes(index.read(4), sys.byteorder)
    finally:
        connection.close()


def _frames(file: BinaryIO, page_bytes: int, first: int) -> Iterator[_Frame]:
    size = FRAME.size + page_bytes
    file.seek(HEADER.size + first * size)
    while len(data := file.read(size)) == size:
        _, pages, salt_1, salt_2, *checksums = FRAME.unpack_from(data)
        yield _Frame(pages != 0, (salt_1, salt_2), (checksums[0], checksums[1]), data[:8] + data[FRAME.size :])


def _has_whole_transaction(frames: Iterator[_Frame], salts: tuple[int, int], is_big: bool) -> bool:
    """Return whether a commit is followed by another one, with a valid chain of frames between them."""
    before: _Frame | None = None
    for frame in frames:
        if frame.salts != salts:
            before = None  # from before the last reset of the WAL, which changes the salts
            continue
        fits = before is not None and _sum(frame.summed, before.checksums, is_big) == frame.checksums
        if fits and frame.is_commit:
            return True
        # The checksum of a frame continues that of the previous frame, so a chain can only start after a commit: the
        # preceding frames of the broken transaction match nothing, and must not count as complete.
        before = frame if frame.is_commit or fits else None
    return False


def _sum(data: bytes, start: tuple[int, int], is_big: bool) -> tuple[int, int]:
    """Return SQLite's checksum of the data, continuing from the checksum of the preceding data."""
    first, second = start
    words = struct.unpack(f"{'>' if is_big else '<'}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
