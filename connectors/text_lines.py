"""Lines of objects written by other systems. Invalid content affects only its line, not the whole object.

A byte order mark is not part of the text. A UTF-16 or UTF-32 mark determines the encoding, and the text is converted to
UTF-8.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Protocol

from ..api.connector import DeadLetter
from .csv_rows import CsvReader
from .documents import json_of

LINE_BYTES_MAX = 64 << 20
_HEAD_BYTES = 64 << 10
"""Number of bytes of an overlong line that its dead letter contains."""
_SKIPPED_BYTES = 1 << 20
_AT_ONCE_BYTES = 1 << 20


class BrokenObject(Exception):
    """The rest of an object does not conform to its format."""


BROKEN = (BrokenObject, gzip.BadGzipFile, EOFError, zlib.error)
"""Exceptions raised if the rest of an object cannot be read."""
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # starts like the UTF-16 mark
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class _Lines(Protocol):
    def readline(self, size: int, /) -> bytes:
        """Return the next line, or its first `size` bytes."""


class _Recoded:
    """Converts text in another encoding to UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or its first `size` characters."""
        try:
            return self._text.readline(size).encode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise BrokenObject(f"not valid {error.encoding}: {error.reason}") from error


@contextlib.contextmanager
def _without_mark(stream: IO[bytes]) -> Iterator[tuple[_Lines, bool]]:
    """Provide the lines after a byte order mark, and whether they were in another encoding."""
    head = stream.read(4)
    stream.seek(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if head.startswith(mark)), "")
    if not encoding:
        yield stream, False
        return
    # Lone surrogates become invalid UTF-8, which affects only their lines.
    text = io.TextIOWrapper(stream, encoding, errors="surrogatepass", newline="\n")
    try:
        yield _Recoded(text), True
    finally:
        with contextlib.suppress(ValueError):  # the stream may be closed already
            text.detach()


def _lines(stream: _Lines) -> Iterator[tuple[int, bytes | DeadLetter]]:
    """Yield line numbers and lines with their line endings, or a dead letter for an overlong line."""
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) <= LINE_BYTES_MAX or line.endswith(b"\n"):
            yield number, line
            continue
        while (part := stream.readline(_SKIPPED_BYTES)) and not part.endswith(b"\n"):
            pass
        reason = (
            f"line {number} is longer than {LINE_BYTES_MAX} bytes; the dead letter contains the first {_HEAD_BYTES}"
        )
        yield number, DeadLetter(line[:_HEAD_BYTES], reason=reason)


def text_lines(stream: IO[bytes]) -> Iterator[bytes | DeadLetter]:
    """Yield non-empty lines unchanged, without their line endings."""
    with _without_mark(stream) as (lines, is_recoded):
        for number, line in _lines(lines):
            if isinstance(line, DeadLetter):
                yield line
            elif text := line.rstrip(b"\r\n"):
                if is_recoded and not _is_utf8(text):
                    yield DeadLetter(text, reason=f"line {number} contains lone surrogates, which are not valid UTF-8")
                else:
                    yield text


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_lines(stream: IO[bytes]) -> Iterator[bytes | DeadLetter]:
    """Yield non-empty lines, and a dead letter for each line that is not valid UTF-8 JSON."""
    with _without_mark(stream) as (lines, _):
        for number, line in _lines(lines):
            if isinstance(line, DeadLetter):
                yield line
            elif text := line.rstrip(b"\r\n"):
                try:
                    json_of(text)
                except (ValueError, RecursionError) as error:
                    yield DeadLetter(text, reason=f"line {number} is not valid JSON: {error}")
                else:
                    yield text


def csv_rows(stream: IO[bytes], reader: CsvReader) -> Iterator[bytes | DeadLetter]:
    """Yield the rows as JSON objects, and a dead letter for each invalid row."""
    waiting: list[bytes] = []
    size = 0
    with _without_mark(stream) as (lines, _):
        for _, line in _lines(lines):
            if isinstance(line, DeadLetter):
                yield from reader.read(waiting, is_last=True)  # a row that continues here lacks the overlong line
                yield line
                waiting, size = [], 0
                continue
            waiting.append(line)
            size += len(line)
            if size >= _AT_ONCE_BYTES:
                yield from reader.read(waiting, is_last=False)
                waiting, size = [], 0
        yield from reader.read(waiting, is_last=True)
