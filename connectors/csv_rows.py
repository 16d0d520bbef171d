"""CSV as connectors read and write it: rows as JSON objects, with the same options everywhere.

A row that cannot be read costs that row alone: it is left out, and `CsvReader` names it.
"""

from __future__ import annotations

import base64
import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from typing import Any, Protocol, TextIO

from ..api.connector_config import option
from ..errors import InvalidConfig

ROW_BYTES_MAX = 64 << 20
"""Bytes of one row. A quote without its end makes a row of all that follows; it costs one line instead."""
_MORE = "more"


@dataclass(kw_only=True)
class CsvOptions:
    """How CSV is written."""

    csv_delimiter: str = option("Character between the columns of CSV.", default=",")
    csv_header: bool = option(
        "Whether the first row of CSV names the columns. A source without it names them column1, column2, and so on.",
        default=True,
    )


class HasCsvOptions(Protocol):
    """A configuration with the fields of `CsvOptions`."""

    csv_delimiter: str
    csv_header: bool


def check_csv(options: HasCsvOptions) -> None:
    """Raise InvalidConfig for a delimiter that CSV cannot have."""
    delimiter = options.csv_delimiter
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise InvalidConfig(f"csvDelimiter {delimiter!r} must be one character, and not a quote or a line break")


class CsvReader:
    """Makes objects of the lines of one file.

    Attributes:
        left_out: how many rows could not be read.
    """

    def __init__(self, options: HasCsvOptions, bad: Callable[[str], None], encoding: str = "") -> None:
        """Prepare.

        Args:
            options: how the file is written.
            bad: is called with why a row is left out.
            encoding: of the text; empty for UTF-8.
        """
        self.left_out = 0
        self._options = options
        self._bad = bad
        self._encoding = encoding or "utf-8"
        self._columns: list[str] | None = None if options.csv_header else []
        self._partial: list[str] = []
        self._line = 0  # number of the line that a row begins with

    @property
    def is_between_rows(self) -> bool:
        """Whether all lines so far are whole rows."""
        return not self._partial

    def read_header(self, beginning: Iterable[bytes]) -> None:
        """Take the names of the columns from the first lines of a file that is read from a later line on."""
        for line in beginning:
            if self._columns is not None:
                break
            self.read([line], is_last=False)
        self._partial = []

    def read(self, lines: Sequence[bytes], *, is_last: bool) -> list[dict[str, Any]]:
        """Return the rows that are complete with these lines.

        Args:
            lines: without or with their ends.
            is_last: whether the file ends behind them.
        """
        texts = [line.decode(self._encoding, "surrogateescape") for line in lines]
        texts = [text if text.endswith("\n") else f"{text}\n" for text in texts]
        if not self._line and texts:
            texts[0] = texts[0].removeprefix("\ufeff")
        pending = self._partial + texts
        self._partial = []
        rows: list[dict[str, Any]] = []
        while pending:
            pending = self._read_some(pending, rows, is_last=is_last)
        return rows

    def _read_some(self, pending: list[str], rows: list[dict[str, Any]], *, is_last: bool) -> list[str]:
        """Add the rows of lines; return the lines to try again, behind one that is no row."""
        used = row_begin = 0

        def lines() -> Iterator[str]:
            nonlocal used
            for line in pending:
                used += 1
                yield line
            if used > row_begin:
                raise _Unfinished

        csv.field_size_limit(ROW_BYTES_MAX)
        reader = csv.reader(lines(), delimiter=self._options.csv_delimiter, strict=False)
        try:
            for cells in reader:
                self._line += used - row_begin
                row_begin = used
                self._add(cells, rows)
        except _Unfinished:
            rest = pending[row_begin:]
            if not is_last and sum(map(len, rest)) <= ROW_BYTES_MAX:
                self._partial = rest
                return []
            return self._without_first(rest, "a quote has no end")
        except csv.Error as error:
            return self._without_first(pending[row_begin:], str(error))
        return []

    def _without_first(self, rest: list[str], reason: str) -> list[str]:
        self._line += 1
        self._leave_out(reason)
        return rest[1:]

    def _leave_out(self, reason: str) -> None:
        self.left_out += 1
        self._bad(f"the row in line {self._line} is left out: {reason}")

    def _add(self, cells: list[str], rows: list[dict[str, Any]]) -> None:
        if not cells:
            return
        if self._columns is None:
            self._columns = _names(cells)
            return
        try:
            "".join(cells).encode()
        except UnicodeEncodeError:
            self._leave_out(f"it is not valid {self._encoding.upper()}")
            return
        columns = self._columns
        if not self._options.csv_header:
            while len(columns) < len(cells):
                columns.append(f"column{len(columns) + 1}")
            rows.append(dict(zip(columns, cells, strict=False)))
            return
        row: dict[str, Any] = dict(itertools.zip_longest(columns, cells[: len(columns)]))
        if len(cells) > len(columns):
            row[_free(_MORE, columns)] = cells[len(columns) :]
        rows.append(row)


class _Unfinished(Exception):
    """The lines end inside a row."""


def _names(cells: Sequence[str]) -> list[str]:
    """Return names of columns, each once: a repeated one gets a number, and one without a name its place."""
    names: list[str] = []
    for number, cell in enumerate(cells, 1):
        text = cell.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        names.append(_free(text or f"column{number}", names))
    return names


def _free(name: str, taken: Sequence[str]) -> str:
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(one for one in names if one not in taken)


def write_csv(out: TextIO, columns: Iterable[str], rows: Iterable[Mapping[str, Any]], options: HasCsvOptions) -> None:
    """Write objects as CSV: lists, objects and truth values as JSON, and what an object lacks as an empty cell."""
    writer = csv.DictWriter(out, list(columns), delimiter=options.csv_delimiter)
    if options.csv_header:
        writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value


def encoded(row: Mapping[str, Any]) -> bytes:
    """Return a row as JSON."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_as_json).encode()


def _as_json(value: Any) -> Any:
    """Return what JSON has no type for: times in ISO 8601, bytes in base64, decimal numbers as text."""
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
