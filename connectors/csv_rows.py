"""CSV reading and writing for connectors, with rows as JSON objects and the same options everywhere.

`CsvReader` turns an invalid row into a dead letter, so other rows are not affected.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from ..api.connector import DeadLetter
from ..api.connector_config import option
from ..errors import InvalidConfig
from .documents import digits_text
from .json_rows import encoded, unique_names

ROW_BYTES_MAX = 64 << 20
"""Maximum bytes in a row. An unclosed quote would turn the rest of a file into one row; only its line is rejected."""
_CREDIT_MAX = 64 << 20
"""Byte budget for reparsing after unclosed quotes, which keeps the work for such files linear.

Each byte of a valid row adds one.
"""
_LINE_COST = 100
"""Fixed cost of reparsing a line, in bytes, in addition to its length."""
_MORE = "more"


@dataclass(kw_only=True)
class CsvOptions:
    """CSV options."""

    csv_delimiter: str = option("CSV column separator.", default=",")
    csv_header: bool = option(
        "Whether the first CSV row contains column names. If false, a source names the columns column1, column2, and "
        "so on.",
        default=True,
    )


class HasCsvOptions(Protocol):
    """A configuration with the fields of `CsvOptions`."""

    csv_delimiter: str
    csv_header: bool


def check_csv(options: HasCsvOptions) -> None:
    """Raise InvalidConfig if the CSV delimiter is invalid."""
    delimiter = options.csv_delimiter
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise InvalidConfig(
            f"invalid csvDelimiter {delimiter!r}: expected one character other than a quote or line break"
        )


class CsvReader:
    """Converts the lines of a file to JSON objects."""

    def __init__(self, options: HasCsvOptions, encoding: str = "") -> None:
        """Create a reader.

        Args:
            options: the file's CSV options.
            encoding: text encoding; empty for UTF-8.
        """
        self._options = options
        self._encoding = encoding or "utf-8"
        self._columns: list[str] | None = None if options.csv_header else []
        self._partial: list[str] = []
        self._partial_bytes = 0
        self._enough_bytes = 0  # the partial row is reparsed at this size
        self._credit = _CREDIT_MAX  # at 0, a row ends with its line
        self._line = 0  # line number at which the current row starts

    @property
    def is_between_rows(self) -> bool:
        """Whether all lines read so far form complete rows."""
        return not self._partial

    def read_header(self, beginning: Iterable[bytes]) -> None:
        """Read the column names from the start of a file that is resumed at a later line."""
        for line in beginning:
            if self._columns is not None:
                break
            for _ in self.read([line], is_last=False):
                pass
        self._keep_partial([])

    def read(self, lines: Sequence[bytes], *, is_last: bool) -> Iterator[bytes | DeadLetter]:
        """Yield the rows completed by these lines as JSON, and a dead letter for each invalid row.

        Rows are created lazily because a short line may expand to a large object. Exhaust the iterator before the next
        call.

        Args:
            lines: lines with or without line endings.
            is_last: whether these are the last lines of the file.
        """
        texts = [line.decode(self._encoding, "surrogateescape") for line in lines]
        texts = [text if text.endswith("\n") else f"{text}\n" for text in texts]
        if not self._line and texts:
            texts[0] = texts[0].removeprefix("\ufeff")
        self._partial += texts
        self._partial_bytes += sum(map(len, texts))
        if self._partial_bytes < self._enough_bytes and not is_last:
            return
        pending = self._partial
        self._keep_partial([])
        begin = 0
        while begin < len(pending):
            begin = yield from self._read_from(begin, pending, is_last=is_last)

    def _keep_partial(self, lines: list[str]) -> None:
        """Keep the lines of an incomplete row, to be reparsed once their size has doubled."""
        self._partial = lines
        self._partial_bytes = sum(map(len, lines))
        self._enough_bytes = min(2 * self._partial_bytes, ROW_BYTES_MAX)

    def _read_from(self, begin: int, pending: list[str], *, is_last: bool) -> Generator[bytes | DeadLetter, None, int]:
        """Yield the rows starting at line `begin`, and return the line at which to continue after an invalid row."""
        used = row_begin = begin
        may_join = self._credit > 0

        def lines() -> Iterator[str]:
            nonlocal used
            for place in range(begin, len(pending)):
                if used > row_begin and not may_join:
                    raise _Unfinished
                used = place + 1
                yield pending[place]
            if used > row_begin:
                raise _Unfinished

        csv.field_size_limit(ROW_BYTES_MAX)
        try:
            for cells in csv.reader(lines(), delimiter=self._options.csv_delimiter, strict=False):
                self._line += used - row_begin
                row_begin = used
                if (row := self._row(cells)) is not None:
                    yield row
            return used
        except _Unfinished:
            rest = pending[row_begin:] if may_join else []
            if rest and not is_last and sum(map(len, rest)) <= ROW_BYTES_MAX:
                self._keep_partial(rest)
                return len(pending)
            reason = "unclosed quote"
        except csv.Error as error:
            reason = str(error)
        in_rows, in_vain = pending[begin:row_begin], pending[row_begin + 1 : used]
        self._credit += sum(map(len, in_rows)) - sum(map(len, in_vain)) - _LINE_COST * len(in_vain)
        self._credit = min(self._credit, _CREDIT_MAX)
        self._line += 1
        yield self._letter(pending[row_begin], reason)
        return row_begin + 1

    def _letter(self, text: str, reason: str) -> DeadLetter:
        row = text.rstrip("\r\n")
        value: bytes | str = row
        with contextlib.suppress(UnicodeEncodeError):
            value = row.encode("utf-8", "surrogateescape")  # restores invalid bytes
        return DeadLetter(value, reason=f"invalid row at line {self._line}: {reason}")

    def _row(self, cells: list[str]) -> bytes | DeadLetter | None:
        """Return cells as a row, or None for the header or an empty row."""
        if not cells:
            return None
        columns = self._columns
        if columns is None:
            self._columns = unique_names(cells)
            return None
        row: dict[str, Any]
        if not self._options.csv_header:
            while len(columns) < len(cells):
                columns.append(f"column{len(columns) + 1}")
            row = dict(zip(columns, cells, strict=False))
        else:
            row = dict(itertools.zip_longest(columns, cells[: len(columns)]))
            if len(cells) > len(columns):
                row[_free(_MORE, columns)] = cells[len(columns) :]
        try:
            return encoded(row)
        except UnicodeEncodeError:
            text = self._options.csv_delimiter.join(cells)
            return self._letter(text, f"not valid {self._encoding.upper()}")


class _Unfinished(Exception):
    """The lines end inside a row."""


def _free(name: str, taken: Sequence[str]) -> str:
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(one for one in names if one not in taken)


def write_csv(out: TextIO, columns: Iterable[str], rows: Iterable[Mapping[str, Any]], options: HasCsvOptions) -> None:
    """Write objects as CSV, with lists, objects and booleans as JSON and empty cells for missing fields."""
    writer = csv.DictWriter(out, list(columns), delimiter=options.csv_delimiter)
    if options.csv_header:
        writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    return digits_text(value) if isinstance(value, dict | list | bool) else value
