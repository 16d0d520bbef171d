r"""The ``file`` source reads lines or CSV rows from the files in a directory, or from a single file.

By default, a file is assumed to be complete when it is found, as in Pulsar's connector. A plain, gzip or zip file is
read to its end and kept. With ``keepFile`` false it is deleted, and with ``processedFileSuffix`` renamed, once the
broker has confirmed all its records. Only the file that was read is removed: if it changed meanwhile, or another file
took its name, the new content is read first. A line or row that cannot be sent goes to the source's dead-letter topic,
and its file is kept. A file that cannot be read, or that starts with a UTF-16 byte order mark, is also kept and
reported in a dead letter. A source created without ``keepFile`` before its default became true still deletes files:
update the source with ``keepFile`` true to keep them.

With ``tail``, files are expected to grow. They are followed across rotation by rename or truncation, and never deleted.
The rest of a renamed file is read, but plain or compressed copies of files already read are skipped. Copies smaller
than 1 KiB are compared with the state of the original, which may delay unrelated small files by up to 30 s.

A symbolic link and its target count as one file, and so do hard links: the file is read once. The record properties
contain the alphabetically first name, with symbolic links last. All names of a file are removed together. Symbolic
links to directories are not followed.

The position records how far each file was read, by inode, with digests of the first bytes and of the bytes right before
that offset. This detects inodes reused by other files, and files that were truncated and have grown again. The position
contains the last `KEPT_MAX` kept files in this form. Older files are covered by a single time: all files whose status
has not changed since then (ctime) were read. If the owner, mode or name of such a file changes, it is read again.
Positions belong to files: after a change of parallelism, each instance continues the files now assigned to it.

A UTF-8 byte order mark is not part of the first line. File names that are not valid UTF-8 appear in properties
and keys with escapes such as ``\xe9``.
"""

from __future__ import annotations

import codecs
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..api.connector import DeadLetter, Position, Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .csv_rows import CsvOptions, CsvReader, check_csv
from .file_copies import Copies
from .file_finding import FileFinder, Found, expression
from .file_removal import delete, identity_of, rename_with
from .file_settling import Settling
from .file_shares import ReadBefore, Share, divide, pruned, read_before
from .file_text import DAMAGED, LINE_BYTES_MAX, FileText, Place, stamp_of
from .texts import shown_path

KEPT_MAX = 1000
"""Maximum number of completely read files with a separate entry in the position."""
FOLLOWED_MAX = 256
"""Maximum number of idle files kept open."""
ROTATED_S = 30.0
"""How long a file without a name is checked after its last line, in seconds."""
_IDLE_S = 0.2
"""How long `read` waits if no records are available, in seconds."""
ROWS_AT_ONCE = 1000
ROWS_BYTES_AT_ONCE = 1 << 20
"""Byte limit for CSV, because a few bytes of a file may expand to large rows."""
_SHORT_S = 0.005
"""How long `read` waits for the last lines of completely read files to become durable, in seconds."""


@dataclass
class FileSourceConfig(CsvOptions):
    """Settings of the ``file`` source."""

    input_directory: str = option("Directory whose files are read, or a single file.", aliases=("path",))
    format: Literal["lines", "csv"] = option(
        "File format. lines: one record per line; csv: one record per row, a JSON object of strings. Missing cells are "
        "null, and extra cells are collected in a list named more.",
        default="lines",
        aliases=("formatType",),
    )
    recurse: bool = option("Whether to read subdirectories as well.", default=True)
    tail: bool = option(
        "Whether files grow. Growing files are followed across rotation and never deleted.", default=False
    )
    keep_file: bool | None = option(
        "Whether to keep files after reading. If false, each file is deleted once all its lines are stored. The "
        "default is true, or false with processedFileSuffix.",
        default=None,
    )
    processed_file_suffix: str = option(
        "Suffix to append to the names of files after reading; empty to not rename files.", default=""
    )
    file_filter: str = option("Regular expression for the names of files to read.", default=r"[^.].*")
    path_filter: str = option(
        "Regular expression for directories to read, matched against the path relative to inputDirectory.", default=""
    )
    ignore_hidden_files: bool = option("Whether to ignore names that start with a dot.", default=True)
    minimum_file_age: int = option(
        "Minimum file age since the last change, in milliseconds.", default=0, limits=(0, None)
    )
    maximum_file_age: int = option(
        "Maximum file age since the last change, in milliseconds; 0 for unlimited.", default=0, limits=(0, None)
    )
    minimum_size: int = option("Minimum file size in bytes.", default=1, limits=(0, None))
    maximum_size: int = option("Maximum file size in bytes; 0 for unlimited.", default=0, limits=(0, None))
    polling_interval: int = option(
        "Interval between scans for new files, in milliseconds.", default=10_000, limits=(10, 86_400_000)
    )  # fmt: skip
    key: Literal["none", "path"] = option(
        "Record key: none, or path for the file's path relative to inputDirectory.", default="none"
    )
    with_properties: bool = option(
        "Whether to add the file name and path to records, as the properties file and path.", default=True
    )
    num_workers: int = option("Threads per instance; must be 1. Set parallelism instead.", default=1)
    encoding: str = option(
        "Text encoding of the files. Records are sent as UTF-8, with U+FFFD for invalid bytes. If empty, lines are "
        "sent unchanged, and CSV is read as UTF-8.",
        default="",
    )


@dataclass(slots=True)
class _Open:
    """A file being read.

    Attributes:
        found: the file as found by the last scan.
        text: the file's content.
        csv: converts lines to rows, or None for lines.
        rows: remaining rows of the lines read last, or None.
    """

    found: Found
    text: FileText
    csv: CsvReader | None = None
    rows: Iterator[bytes | DeadLetter] | None = None

    @property
    def key(self) -> str:
        """The file's identity."""
        return self.found.key


class FileSource(Source):
    """Reads lines or CSV rows from complete files in a directory, or lines from growing files."""

    config = FileSourceConfig

    def check(self, config: FileSourceConfig) -> None:
        """Validate the configuration."""
        if config.keep_file and config.processed_file_suffix:
            raise InvalidConfig("keepFile and processedFileSuffix are mutually exclusive: set only one of them")
        if config.tail and config.processed_file_suffix:
            raise InvalidConfig("tail and processedFileSuffix are mutually exclusive: growing files are never complete")
        if config.tail and config.format == "csv":
            raise InvalidConfig("tail requires format lines: set format to lines, or remove tail")
        if config.num_workers != 1:
            raise InvalidConfig("numWorkers must be 1, as each instance reads in one thread: set parallelism instead")
        if not config.input_directory:
            raise InvalidConfig("inputDirectory must not be empty")
        check_csv(config)
        expression("fileFilter", config.file_filter)
        expression("pathFilter", config.path_filter)
        if config.encoding:
            try:
                line_end = "\n".encode(codecs.lookup(config.encoding).name)
            except (LookupError, UnicodeError) as error:
                raise InvalidConfig(f"unknown encoding {config.encoding!r}") from error
            if line_end != b"\n":
                raise InvalidConfig(
                    f"unsupported encoding {config.encoding!r}: line endings must be one byte; convert the files"
                )

    def stored_defaults(self, config: FileSourceConfig) -> dict[str, Any]:
        """Return the defaults to store with a new source.

        Sources stored without keepFile were created before its default changed from false to true, and still delete
        files.
        """
        return {} if config.keep_file is not None else {"keepFile": not config.processed_file_suffix}

    def notice(self, config: FileSourceConfig) -> str:
        """Return a one-line notice to show on create and update; empty for none."""
        if config.tail and config.keep_file is False:
            return "warning: keepFile false has no effect with tail: growing files are always kept"
        if config.tail or config.keep_file or config.processed_file_suffix:
            return ""
        return (
            f"warning: this source deletes the files in {config.input_directory!r} after reading them: set keepFile to"
            " true to keep them"
        )

    def not_effectively_once(self, config: FileSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "the order in which files are found depends on timing, and so do the records after a position"

    def divide(self, positions: Sequence[Position], instance_id: int, parallelism: int) -> Position:
        """Return one instance's position after the parallelism has changed."""
        return divide(positions, Share(instance_id, parallelism))

    def open(self, config: FileSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        if config.tail and context.parallelism > 1:
            raise InvalidConfig("tail supports only one instance: set parallelism to 1")
        self._config = config
        self._log = context.logger
        if notice := self.notice(config):
            self._log.warning("%s", notice.removeprefix("warning: "))
        self._finder = FileFinder(Path(config.input_directory).expanduser(), config, self._complain)
        position = context.position or {}
        self._known = {key: Place(*place) for key, place in position.get("files", {}).items()}
        self._share = Share(context.instance_id, context.parallelism)
        self._before = pruned(read_before(position, self._share))
        suffix, stays = config.processed_file_suffix, bool(config.tail or config.keep_file)
        finish = None if stays else rename_with(suffix) if suffix else delete
        self._settling = Settling(finish, self._complain, self._removed, set(position.get("stays", ())))
        self._copies = Copies(self._known, config.tail)
        self._current: _Open | None = None
        self._followed: dict[str, _Open] = {}  # read to the end; most recently read last
        self._failed: dict[str, int] = {}  # stamps of unreadable files
        self._complained: set[str] = set()
        self._letters: list[Record] = []  # dead letters of unreadable files
        self._looked_s = -math.inf
        self._queue: list[Found] = []  # next file last
        self._present: dict[str, int] = {}  # ctimes of the files found by the last scan
        self._names: dict[str, str] = {}  # names of these files
        self._undone = math.inf  # earliest ctime of a file that must not be read yet
        self._forget_at = 2 * KEPT_MAX
        self._is_first_look = True

    def read(self) -> list[Record] | None:
        """Return the next records, or None if none are available yet."""
        while True:
            current = self._current or self._next()
            if self._letters:
                letters, self._letters = self._letters, []
                return letters
            if current is None:
                time.sleep(_IDLE_S)
                return None
            if len(self._settling.pending) >= KEPT_MAX:
                time.sleep(_SHORT_S)
                return None
            try:
                records = self._records(current)
            except DAMAGED as error:
                self._give_up(current, error)
                continue
            is_at_end = current.text.is_at_end and current.rows is None
            if is_at_end:
                self._leave(current)
            self._settling.add(current.found, records, identity_of(current.text.status) if is_at_end else None)
            if records:
                return records

    def snapshot(self) -> dict[str, Any]:
        """Return the current position."""
        position: dict[str, Any] = {"files": self._known}
        if stays := self._settling.stays:
            position["stays"] = sorted(stays)
        for share, time_ns in self._before:
            if share == self._share:
                position["before"] = time_ns
            else:
                position.setdefault("inherited", []).append((*share, time_ns))
        return position

    def close(self) -> None:
        """Close the connector."""
        for one in [getattr(self, "_current", None), *getattr(self, "_followed", {}).values()]:
            if one is not None:
                one.text.close()
        self._current, self._followed = None, {}

    def _records(self, current: _Open) -> list[Record]:
        text, rows = current.text, current.csv
        before = text.offset
        values: list[Any] = self._rows(current, rows) if rows is not None else self._lines(text)
        if (
            DeadLetter in set(map(type, values))
            and self._settling.is_removing
            and current.key not in self._settling.stays
        ):
            self._settling.stays.add(current.key)
            self._log.error("keeping %s: parts of it could not be sent", text.path)
        is_whole = rows is None or (current.rows is None and rows.is_between_rows)
        if is_whole and (rows is not None or text.offset != before or text.is_at_end):
            self._known.pop(current.key, None)  # newest last
            self._known[current.key] = text.place(is_at_end=text.is_at_end)
        return self._as_records(text.path, values)

    def _lines(self, text: FileText) -> list[Any]:
        """Return the next lines, and a dead letter for each line that is too long."""
        is_first = not text.offset
        values: list[Any] = text.lines()
        encoding = self._config.encoding
        if is_first and values:
            values[0] = _without_mark(values[0], encoding)
        if encoding:
            values = [line.decode(encoding, "replace") for line in values]
        return values + self._too_long(text) if text.too_long else values

    def _rows(self, current: _Open, reader: CsvReader) -> list[Any]:
        """Return the next rows as JSON, and a dead letter for each invalid row."""
        text = current.text
        if current.rows is None:
            is_first = not text.offset
            lines = text.lines()
            if is_first and lines:
                _without_mark(lines[0], self._config.encoding)
            current.rows = reader.read(lines, is_last=text.is_at_end)
        values: list[Any] = []
        size = 0
        for value in current.rows:
            values.append(value)
            size += len(value) if isinstance(value, bytes) else 0
            if len(values) >= ROWS_AT_ONCE or size >= ROWS_BYTES_AT_ONCE:
                return values
        current.rows = None
        return values + self._too_long(text)

    def _too_long(self, text: FileText) -> list[Any]:
        """Return a dead letter for each line skipped since the last call because it was too long."""
        count, text.too_long = text.too_long, 0
        return [DeadLetter(b"", reason=f"line is longer than {LINE_BYTES_MAX} bytes") for _ in range(count)]

    def _as_records(self, path: Path, values: list[Any]) -> list[Record]:
        properties: dict[str, str] = {}
        if self._config.with_properties:
            properties = {"file": shown_path(path.name), "path": shown_path(path)}
        key = shown_path(os.path.relpath(path, self._finder.root)) if self._config.key == "path" else None
        if DeadLetter not in set(map(type, values)):
            return [Record(value, key, properties) for value in values]
        return [
            DeadLetter(value.value, key, properties, reason=f"{shown_path(path)}: {value.reason}")
            if isinstance(value, DeadLetter)
            else Record(value, key, properties)
            for value in values
        ]

    # -- the next file --------------------------------------------------------------------------------------------

    def _next(self) -> _Open | None:
        """Return the next file that has unread lines or whose end must be recorded, or None."""
        for key, followed in list(self._followed.items()):
            before, text = self._known.get(key), followed.text
            if text.has_more():
                if before is not None and before.offset and not text.offset:
                    self._cut(text.path, key)
                self._current = self._followed.pop(key)
                return self._current
        now_s = time.monotonic()
        if not self._queue and now_s - self._looked_s >= self._config.polling_interval / 1000:
            self._looked_s = now_s
            self._queue = self._look()
        while self._queue and self._current is None:
            found = self._queue.pop()
            try:
                self._current = self._opened(found)
            except FileNotFoundError:
                continue  # removed or renamed since the scan
            except DAMAGED as error:
                self._fail(found, error)
        return self._current

    def _opened(self, found: Found) -> _Open | None:
        """Open a file at the offset where reading continues, or return None to retry it at a later scan."""
        is_tail = self._config.tail
        text = FileText(found.path, found.key, found.status, is_complete=not is_tail)
        try:
            if not text.is_file_of(found.status):
                text.close()
                return None  # another file has taken the name; the next scan finds it
            place = self._known.get(found.key)
            offset = 0 if place is None else text.find(place)
            if place is not None and offset is None:
                self._cut(found.path, found.key)
            if not offset and is_tail:
                offset = self._copies.read_of(text, self._names)
                if offset is None:
                    text.close()
                    return None
            rows = self._rows_of(text, offset or 0) if self._config.format == "csv" else None
            text.begin(offset or 0)
        except BaseException:
            text.close()
            raise
        return _Open(found, text, rows)

    def _rows_of(self, text: FileText, offset: int) -> CsvReader:
        """Return a reader for the rows of a file, starting at an offset."""
        rows = CsvReader(self._config, self._config.encoding)
        if offset:
            rows.read_header(text.beginning().splitlines(keepends=True))
        return rows

    def _cut(self, path: Path, key: str) -> None:
        """Record that a file was truncated; a copy of its old content may exist."""
        self._log.info("rereading %s from the start: the file was truncated or replaced", path)
        self._settling.stays.discard(key)
        self._copies.cut(key)

    def _leave(self, current: _Open) -> None:
        """Close or keep following a file whose end was reached."""
        self._current = None
        if self._config.tail and not current.text.is_compressed:
            self._followed[current.key] = current
            while len(self._followed) > FOLLOWED_MAX:
                self._followed.pop(next(iter(self._followed))).text.close()
        else:
            current.text.close()
        if len(self._known) >= self._forget_at:
            self._forget()

    def _give_up(self, current: _Open, error: Exception) -> None:
        self._current = None
        self._settling.give_up(current.key)
        self._fail(current.found, error)
        current.text.close()

    def _fail(self, found: Found, error: Exception) -> None:
        """Skip a file until it changes."""
        self._failed[found.key] = stamp_of(found.status)
        self._undone = min(self._undone, found.status.st_ctime_ns)
        cause = f"{type(error).__name__}: {error}"
        reason = f"file cannot be read and is skipped until it changes: {cause}"
        if self._is_new_complaint(f"{found.path}: {reason}"):
            self._letters += self._as_records(found.path, [DeadLetter(b"", reason=reason)])

    def _complain(self, text: str) -> None:
        """Log an error, once."""
        if self._is_new_complaint(text):
            self._log.error("%s", text)

    def _is_new_complaint(self, text: str) -> bool:
        """Return whether to log a message: False for repeated ones, and after `KEPT_MAX` messages."""
        if text in self._complained or len(self._complained) >= KEPT_MAX:
            return False
        self._complained.add(text)
        return True

    def _removed(self, key: str) -> None:
        self._known.pop(key, None)

    # -- looking for files ----------------------------------------------------------------------------------------

    def _look(self) -> list[Found]:
        """Return the files to read now, partly read ones first, in reverse order."""
        files = self._found()
        self._present = {found.key: found.status.st_ctime_ns for found in files}
        self._names = {found.key: found.path.name for found in files}
        self._let_go_of_rotated()
        if self._is_first_look and self._config.tail:
            files += self._renamed()
        self._is_first_look = False
        now_ms = time.time() * 1000
        wanted: list[Found] = []
        young: list[Found] = []
        for found in filter(self._is_new, files):
            age_ms = now_ms - found.status.st_mtime * 1000
            if self._config.tail or self._has_right_size_and_age(found.status, age_ms):
                is_young = not self._config.tail and age_ms < self._config.minimum_file_age
                (young if is_young else wanted).append(found)
        self._undone = min((found.status.st_ctime_ns for found in young), default=math.inf)
        self._failed = {key: stamp for key, stamp in self._failed.items() if key in self._present}
        by_time = not self._settling.is_removing  # allows covering read files by a single time
        wanted.sort(key=lambda one: (one.key not in self._known, by_time and one.status.st_ctime_ns, one.path))
        wanted.reverse()
        self._queue = wanted
        self._remove_finished(files)
        self._forget()
        return wanted

    def _found(self) -> list[Found]:
        """Return the existing files, or none if the single file was renamed and not recreated yet."""
        try:
            return self._finder.find()
        except OSError as error:
            if self._followed and isinstance(error, FileNotFoundError):
                return []
            raise Retry(f"cannot read {self._finder.root}: {error.strerror}") from error
        finally:
            self._settling.recover(self._finder.interrupted)

    def _remove_finished(self, files: list[Found]) -> None:
        """Remove files that were read completely, but not removed, before the last stop."""
        if not self._settling.is_removing:
            return
        for found in files:
            place = self._known.get(found.key)
            is_read = place is not None and place.stamp == stamp_of(found.status)
            if is_read and self._share.has(found.status.st_ino) and found.key not in self._settling.pending:
                self._settling.remove(found, identity_of(found.status))

    def _is_new(self, found: Found) -> bool:
        """Return whether a file may contain unread data."""
        status, place = found.status, self._known.get(found.key)
        if not self._share.has(status.st_ino) or found.key in self._followed or found.key in self._settling.pending:
            return False
        stamp = stamp_of(status)
        if stamp in (self._failed.get(found.key), None if place is None else place.stamp):
            return False
        return place is not None or not any(one.says_read(status) for one in self._before)

    def _has_right_size_and_age(self, status: os.stat_result, age_ms: float) -> bool:
        """Return whether a file's size and age allow reading it now."""
        config = self._config
        return (
            status.st_size >= config.minimum_size
            and (not config.maximum_size or status.st_size <= config.maximum_size)
            and (not config.maximum_file_age or age_ms <= config.maximum_file_age)
        )

    def _let_go_of_rotated(self) -> None:
        """Close files that no longer have a name, once they have not been written to for `ROTATED_S`."""
        now_s = time.monotonic()
        for key, followed in list(self._followed.items()):
            if key not in self._present and now_s - followed.text.used_s > ROTATED_S:
                self._followed.pop(key).text.close()

    def _renamed(self) -> list[Found]:
        """Return files that were being read before the last stop and whose new names do not match the filters."""
        lost = self._known.keys() - self._present.keys()
        if not lost:
            return []
        found = [one for one in self._finder.find_any() if one.key in lost]
        self._present |= {one.key: one.status.st_ctime_ns for one in found}
        self._names |= {one.key: one.path.name for one in found}
        return found

    def _forget(self) -> None:
        """Limit the position's size: drop removed files, and cover the oldest completely read ones by a time."""
        self._settling.stays &= self._known.keys()
        if self._settling.is_removing:
            gone = self._known.keys() - self._present.keys() - self._settling.pending
            for key in gone:
                del self._known[key]
            return
        gone_keys = [key for key in self._known if key not in self._present and key not in self._followed]
        spare = KEPT_MAX // 10 if self._config.tail else 0  # allows recognising copies of removed files
        for key in gone_keys[: max(len(gone_keys) - spare, 0)]:
            del self._known[key]
        finished = (key for key, place in self._known.items() if place.stamp and key in self._present)
        done = sorted((self._present[key], key) for key in finished)
        undone = min([self._undone, *(self._present[found.key] for found in self._queue)])
        before_ns = 0
        for changed, key in done[: max(len(done) - KEPT_MAX, 0)]:
            if changed >= undone:
                break
            before_ns = changed
            del self._known[key]
            if (followed := self._followed.pop(key, None)) is not None:
                followed.text.close()
        if before_ns:
            self._before = pruned([*self._before, ReadBefore(self._share, before_ns)])
        self._forget_at = len(self._known) + KEPT_MAX


def _without_mark(line: bytes, encoding: str) -> bytes:
    """Return the first line of a file without a UTF-8 byte order mark.

    Raises:
        OSError: the mark belongs to an encoding whose line ends are not one byte.
    """
    if not encoding and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise OSError("file starts with a UTF-16 or UTF-32 byte order mark: convert the file to UTF-8")
    is_utf8 = not encoding or codecs.lookup(encoding).name == "utf-8"
    return line.removeprefix(codecs.BOM_UTF8) if is_utf8 else line
