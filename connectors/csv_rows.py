"""Reading and writing CSV in connectors: rows as JSON objects, with the same options everywhere.

An invalid row does not affect others: `CsvReader` turns it into a dead letter.
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
"""Maximum bytes of a row. An unclosed quote would make one row of the rest of the file; only its line is rejected."""
_CREDIT_MAX = 64 << 20
"""Bytes that may be parsed again after unclosed quotes, so that such a file does not take quadratic time. Each byte of
a valid row adds one."""
_LINE_COST = 100
"""Fixed cost of parsing a line again, in bytes, in addition to its length."""
_MORE = "more"


@dataclass(kw_only=True)
class CsvOptions:
    """CSV options."""

    csv_delimiter: str = option("Column separator of CSV.", default=",")
    csv_header: bool = option(
        "Whether the first row of CSV names the columns. A source without it names them column1, column2, and so on.",
        default=True,
    )


class HasCsvOptions(Protocol):
    """A configuration with the fields of `CsvOptions`."""

    csv_delimiter: str
    csv_header: bool


def check_csv(options: HasCsvOptions) -> None:
    """Raise InvalidConfig if the delimiter is not valid in CSV."""
    delimiter = options.csv_delimiter
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise InvalidConfig(f"csvDelimiter {delimiter!r} must be one character, and not a quote or a line break")


class CsvReader:
    """Converts the lines of one file to JSON objects."""

    def __init__(self, options: HasCsvOptions, encoding: str = "") -> None:
        """Create a reader.

        Args:
            options: CSV options of the file.
            encoding: encoding of the text; empty for UTF-8.
        """
        self._options = options
        self._encoding = encoding or "utf-8"
        self._columns: list[str] | None = None if options.csv_header else []
        self._partial: list[str] = []
        self._partial_bytes = 0
        self._enough_bytes = 0  # size of the partial row at which it is parsed again
        self._credit = _CREDIT_MAX  # at 0, a row ends with its line
        self._line = 0  # number of the line that a row begins with

    @property
    def is_between_rows(self) -> bool:
        """Whether all lines so far form complete rows."""
        return not self._partial

    def read_header(self, beginning: Iterable[bytes]) -> None:
        """Read the column names from the first lines of a file that is resumed at a later line."""
        for line in beginning:
            if self._columns is not None:
                break
            for _ in self.read([line], is_last=False):
                pass
        self._keep_partial([])

    def read(self, lines: Sequence[bytes], *, is_last: bool) -> Iterator[bytes | DeadLetter]:
        """Yield the rows that these lines complete, as JSON, and a dead letter for each invalid row.

        Rows are created lazily, as a short line may become a large object. Exhaust the iterator before the next call.

        Args:
            lines: lines with or without line ends.
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
        """Keep the lines of an incomplete row; they are parsed again once there are twice as many."""
        self._partial = lines
        self._partial_bytes = sum(map(len, lines))
        self._enough_bytes = min(2 * self._partial_bytes, ROW_BYTES_MAX)

    def _read_from(self, begin: int, pending: list[str], *, is_last: bool) -> Generator[bytes | DeadLetter, None, int]:
        """Yield the rows from line `begin` on; return the line at which to continue after an invalid row."""
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
            reason = "a quote has no end"
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
        return DeadLetter(value, reason=f"the row in line {self._line} is not valid: {reason}")

    def _row(self, cells: list[str]) -> bytes | DeadLetter | None:
        """Return cells as a row, or None for an empty row and for the header."""
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
            return self._letter(text, f"it is not {self._encoding.upper()}")


class _Unfinished(Exception):
    """The lines end inside a row."""


def _free(name: str, taken: Sequence[str]) -> str:
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(one for one in names if one not in taken)


def write_csv(out: TextIO, columns: Iterable[str], rows: Iterable[Mapping[str, Any]], options: HasCsvOptions) -> None:
    """Write objects as CSV: lists, objects and booleans as JSON, missing fields as empty cells."""
    writer = csv.DictWriter(out, list(columns), delimiter=options.csv_delimiter)
    if options.csv_header:
        writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    return digits_text(value) if isinstance(value, dict | list | bool) else value
