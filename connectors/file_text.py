"""Text of one file for the ``file`` source: lines of a plain, gzip or zip file, starting at a given position.

A position is an offset into the text, with digests of the first bytes and of the bytes right before the offset. The
digests are the same for a compressed copy, and differ if the inode now belongs to another file.
"""

from __future__ import annotations

import gzip
import os
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

READ_BYTES = 1 << 20
"""Number of bytes read by one call of `FileText.lines`."""
LINE_BYTES_MAX = 4 << 20
HEAD_BYTES = 1024
TAIL_BYTES = 256
DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""Exceptions raised for unreadable files."""


class Place(NamedTuple):
    """A position in a text.

    Attributes:
        offset: end of the last returned line, in bytes of the text.
        head: digest of the first bytes, at most up to the offset.
        tail: digest of the last bytes before the offset.
        stamp: stamp of the file if its end was reached, or 0.
    """

    offset: int
    head: str
    tail: str
    stamp: int = 0


def stamp_of(status: os.stat_result) -> int:
    """Return a number that changes whenever a file changes."""
    return status.st_mtime_ns ^ status.st_size << 1 | 1


class FileText:
    """A file being read, with one block of read-ahead so that its end is detected along with the last lines.

    Attributes:
        path: the file's name when it was found.
        key: the file's identity.
        status: stat result before the last read.
        offset: end of the last returned line.
        is_compressed: whether the file is gzip or zip.
        too_long: number of skipped lines longer than `LINE_BYTES_MAX` since this was last set to 0.
        used_s: time when lines were last returned, in seconds of the monotonic clock.
    """

    def __init__(self, path: Path, key: str, status: os.stat_result, *, is_complete: bool) -> None:
        """Open a file. Call `begin` before reading.

        Args:
            path: the file's name.
            key: the file's identity.
            status: the file's stat result.
            is_complete: whether the file will not grow, so that its last line may lack a line ending.

        Raises:
            DAMAGED: the file cannot be read.
        """
        self.path = path
        self.key = key
        self.status = status
        self.offset = 0
        self.too_long = 0
        self.used_s = time.monotonic()
        self._stream, self._descriptor, self.is_compressed = _opened(path)
        self._is_complete = is_complete or self.is_compressed
        self._rest = b""
        self._skipped = 0  # bytes of an overlong line, before `_rest`
        self._ahead = b""
        self._error: Exception | None = None  # raised for the data after `_ahead`
        self._head = self._tail = b""

    def is_file_of(self, status: os.stat_result) -> bool:
        """Return whether a stat result belongs to the open file."""
        return os.path.samestat(os.fstat(self._descriptor), status)

    # -- finding a position -------------------------------------------------------------------------------------------

    def find(self, place: Place, *, is_copy: bool = False) -> int | None:
        """Return how far the text was already read if the position belongs to it, or None.

        Args:
            place: position in a text that was read.
            is_copy: whether the text may be shorter because it was copied before the last lines were written.
        """
        head = self._at(0, min(HEAD_BYTES, place.offset))
        if _digest(head) != place.head:
            return None
        wanted = min(TAIL_BYTES, place.offset)
        tail = self._at(place.offset - wanted, wanted)
        self._head, self._tail = head, tail
        if _digest(tail) == place.tail:
            return place.offset
        if not is_copy or len(tail) == wanted:
            return None
        length = self._length()
        self._tail = self._at(max(length - TAIL_BYTES, 0), TAIL_BYTES)
        return length

    def begins_like(self, place: Place) -> bool:
        """Return whether the text starts with the same bytes as the text of a position."""
        return bool(place.offset) and _digest(self._at(0, min(HEAD_BYTES, place.offset))) == place.head

    def has_length(self, length: int) -> bool:
        """Return whether the text is `length` bytes long."""
        return len(self._at(length - 1, 2)) == 1

    def beginning(self) -> bytes:
        """Return the first bytes, at most `READ_BYTES`."""
        return self._at(0, READ_BYTES)

    def _at(self, offset: int, count: int) -> bytes:
        self._stream.seek(offset)
        parts: list[bytes] = []
        while count and (part := self._stream.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _length(self) -> int:
        self._stream.seek(0)
        return sum(map(len, iter(lambda: self._stream.read(READ_BYTES), b"")))

    def begin(self, offset: int) -> None:
        """Start reading at an offset returned by `find`, or at 0."""
        if not offset:
            self._head = self._tail = b""
        self._rest, self._skipped = b"", 0
        self.offset = offset
        self._stream.seek(offset)
        self.status = os.fstat(self._descriptor)
        self._ahead = self._stream.read(READ_BYTES)

    def place(self, *, is_at_end: bool) -> Place:
        """Return the current position."""
        return Place(self.offset, _digest(self._head), _digest(self._tail), stamp_of(self.status) if is_at_end else 0)

    # -- lines ----------------------------------------------------------------------------------------------------

    @property
    def is_at_end(self) -> bool:
        """Whether all data currently in the file was read."""
        return not self._ahead and self._error is None

    def lines(self) -> list[bytes]:
        """Return the next complete lines, or an empty list.

        Raises:
            DAMAGED: the rest of the file cannot be read.
        """
        if self._error is not None and not self._ahead:
            raise self._error
        if not self._ahead:
            return []
        data, self._ahead = self._ahead, b""
        self.status = os.fstat(self._descriptor)  # before the read, so that later writes change it
        try:
            self._ahead = self._stream.read(READ_BYTES)
        except DAMAGED as error:
            self._error = error  # raised after the preceding lines
        self.used_s = time.monotonic()
        text = self._rest + data if self._rest else data
        if self._is_complete and self.is_at_end:
            whole, self._rest = text, b""
        else:
            end = text.rfind(b"\n") + 1
            whole, self._rest = text[:end], text[end:]
        found = self._split(whole) if whole else []
        if len(self._rest) > LINE_BYTES_MAX:
            self._extend(self._rest)
            self._skipped += len(self._rest)
            self._rest = b""
        return found

    def _split(self, whole: bytes) -> list[bytes]:
        self._extend(whole)
        self.offset += self._skipped + len(whole)
        found = whole.removesuffix(b"\n").split(b"\n")
        if self._skipped:
            del found[0]
            self._skipped = 0
            self.too_long += 1
        if b"\r\n" in whole or (found and found[-1].endswith(b"\r")):
            found = [line.removesuffix(b"\r") for line in found]
        return found

    def _extend(self, text: bytes) -> None:
        if len(self._head) < HEAD_BYTES:
            self._head += text[: HEAD_BYTES - len(self._head)]
        self._tail = text[-TAIL_BYTES:] if len(text) >= TAIL_BYTES else (self._tail + text)[-TAIL_BYTES:]

    # -- growing files ----------------------------------------------------------------------------------------

    def has_more(self) -> bool:
        """Return whether a plain file has grown since its end was reached; reread a truncated file from the start."""
        descriptor = self._descriptor
        status = os.fstat(descriptor)
        end = self.offset + self._skipped + len(self._rest)
        if status.st_size == end:
            return False
        wanted = min(len(self._tail), TAIL_BYTES)
        behind = self.offset + self._skipped
        if status.st_size < end or os.pread(descriptor, wanted, behind - wanted) != self._tail[-wanted:]:
            self.begin(0)
        else:
            self._ahead = self._stream.read(READ_BYTES)
        self.status = status
        return bool(self._ahead)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()


def _opened(path: Path) -> tuple[IO[bytes], int, bool]:
    """Return a stream of a file's text, the file descriptor, and whether the file is compressed."""
    stream = open(path, "rb", buffering=0)  # noqa: SIM115  stays open for reading
    try:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError("no longer a regular file")
        head = os.pread(stream.fileno(), 4, 0)
        if head[:2] == b"\x1f\x8b":
            return cast(IO[bytes], _Gzip(stream)), stream.fileno(), True
        if head == b"PK\x03\x04":
            return cast(IO[bytes], _Zip(stream)), stream.fileno(), True
    except BaseException:
        stream.close()
        raise
    return stream, stream.fileno(), False


class _Gzip(gzip.GzipFile):
    """A gzip file that also closes the underlying file."""

    def __init__(self, raw: Any) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Zip:
    """The concatenated texts of all files in a zip archive, each ending in a line ending."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._archive = zipfile.ZipFile(raw)
        self._blocks = self._all()
        self._left = b""

    def _all(self) -> Iterator[bytes]:
        for name in self._archive.namelist():
            block = b"\n"
            with self._archive.open(name) as member:
                while more := member.read(READ_BYTES):
                    block = more
                    yield block
            if not block.endswith(b"\n"):
                yield b"\n"

    def seek(self, offset: int) -> None:
        """Seek to an absolute offset."""
        self._blocks, self._left = self._all(), b""
        while offset and (part := self.read(min(offset, READ_BYTES))):
            offset -= len(part)

    def read(self, count: int) -> bytes:
        """Return at most `count` bytes, or an empty string at the end."""
        if not self._left:
            self._left = next(self._blocks, b"")
        part, self._left = self._left[:count], self._left[count:]
        return part

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()
        self._raw.close()
