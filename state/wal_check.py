"""Detects transactions that the disk lost from the middle of SQLite's WAL, which SQLite itself does not report.

Design: after a crash SQLite reads the WAL up to the first frame with an invalid checksum, and discards the rest. That
is right for a transaction that was being written. But transactions are synced one after the other, so a crash can only
damage the last one. A complete transaction after a damaged one proves that the disk lost data it had confirmed; then
the start is refused, as the broker does with its journal, instead of silently returning to an older state.

Among the frames after those that SQLite accepts, two commits are such proof if the second transaction is complete: its
checksums follow from the first one's. Leftover frames of a failed transaction do not link up with what was written over
their beginning, so they are never mistaken for it.

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
"""The lowest bit says that checksums are counted in big-endian words."""
INDEX_FRAMES_OFFSET = 16
"""Where the index of the log, the SHM file, has the number of the last good frame."""


class _Frame(NamedTuple):
    """One page of a transaction: a header, and the bytes that its checksum covers beside that of the frame before."""

    is_commit: bool
    salts: tuple[int, int]
    checksums: tuple[int, int]
    summed: bytes


def has_lost_transactions(database: Path) -> bool:
    """Return whether a whole transaction lies behind what SQLite can read of the database's log.

    Called before the database is opened for writing; reads only.
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
            # The header is synced before the first frame is written. So behind a header that does not fit there are no
            # frames, or they were there and the header was damaged.
            return any(file.read(1 << 20).strip(b"\0"))
        return _has_whole_transaction(_frames(file, page_bytes, taken), (salt_1, salt_2), is_big)


def _frames_taken(database: Path) -> int:
    """Let SQLite read the log, and return how many frames of it are good."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        # A read-only connection may not ask for it; its index of the log says it too.
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
    """Return whether a commit is followed by frames that each fit the one before, up to another commit."""
    before: _Frame | None = None
    for frame in frames:
        if frame.salts != salts:
            before = None  # of an earlier pass over the file: each reset of the WAL draws new salts
            continue
        fits = before is not None and _sum(frame.summed, before.checksums, is_big) == frame.checksums
        if fits and frame.is_commit:
            return True
        # The checksum of a frame goes on from that of the frame before, so a chain may begin only behind a commit: the
        # frames of the broken transaction before it fit nothing, and must not count as a whole one.
        before = frame if frame.is_commit or fits else None
    return False


def _sum(data: bytes, start: tuple[int, int], is_big: bool) -> tuple[int, int]:
    """Return SQLite's checksum of some words, which goes on from that of what stands before them."""
    first, second = start
    words = struct.unpack(f"{'>' if is_big else '<'}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
