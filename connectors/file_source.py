"""The source ``file``: lines of files, of a directory or of one file that grows.

Two ways of working. By default a file is finished when it is found, as Pulsar's connector has it: it is read to its
end, plain, gzip or zip, and then deleted, renamed or kept. With ``tail`` files grow: they are followed over rotation
(a rename, or a cut to nothing), and nothing is ever deleted.

Position: for each file that is known, by device and inode, how many bytes of it are read (of the text, where it is
compressed). A file is deleted or renamed only when its last line is durable.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig

READ_BYTES = 1 << 20
"""Text that one `read` returns lines of."""
LINE_BYTES_MAX = 4 << 20
_IDLE_S = 0.2
"""How long a `read` that finds nothing waits."""


@dataclass
class FileSourceConfig:
    """Which files are read, and what becomes of them."""

    input_directory: str = option("The directory whose files are read, or one file.", aliases=("path",))
    recurse: bool = option("Whether directories below it are read too.", default=True)
    tail: bool = option("Whether files grow: they are followed over rotation, and kept.", default=False)
    keep_file: bool = option("Whether a file stays when it is read; else it is deleted.", default=False)
    processed_file_suffix: str = option("A file that is read is renamed to its name with this suffix.", default="")
    file_filter: str = option("Regular expression of the names of files to read.", default=r"[^.].*")
    path_filter: str = option("Regular expression of the directories, seen from the first, to read.", default="")
    ignore_hidden_files: bool = option("Whether names that begin with a dot are left out.", default=True)
    minimum_file_age: int = option("Milliseconds since the last change of a file.", default=0, limits=(0, None))
    maximum_file_age: int = option("The same at most; 0 for no limit.", default=0, limits=(0, None))
    minimum_size: int = option("Bytes of a file at least.", default=1, limits=(0, None))
    maximum_size: int = option("Bytes of a file at most; 0 for no limit.", default=0, limits=(0, None))
    polling_interval: int = option(
        "Milliseconds between two looks for new files.", default=10_000, limits=(10, 86_400_000)
    )  # fmt: skip
    encoding: str = option("Of the text; empty to send the bytes of a line as they are.", default="")


class _Open:
    """A file that is being read, one block ahead, so that its last lines are known as such."""

    def __init__(self, path: Path, key: str, stream: IO[bytes], offset: int, *, is_complete: bool) -> None:
        self.path = path
        self.key = key
        self.stream = stream
        self.offset = offset
        """Behind the last line that was returned."""
        self._is_complete = is_complete
        self._rest = b""
        self._ahead = stream.read(READ_BYTES)

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more now."""
        return not self._ahead

    def lines(self) -> list[bytes]:
        """Return the next lines; none if there is no whole line yet. A complete file's last line may lack its end."""
        data, self._ahead = self._ahead, self.stream.read(READ_BYTES)
        text = self._rest + data
        if self._is_complete and not self._ahead:
            self._rest = b""
            self.offset += len(text)
            return text.removesuffix(b"\n").split(b"\n")
        whole, line_end, self._rest = text.rpartition(b"\n")
        if not line_end:
            if len(self._rest) > LINE_BYTES_MAX:
                raise OSError(f"a line is longer than {LINE_BYTES_MAX} bytes; is it a text file?")
            return []
        self.offset += len(whole) + 1
        return whole.split(b"\n")


class FileSource(Source):
    """Lines of files: of a directory, plain or compressed, or of files that grow."""

    config = FileSourceConfig

    def open(self, config: FileSourceConfig, context: SourceContext) -> None:
        """See `Connector.open`."""
        self._config = config
        self._log = context.logger
        self._root = Path(config.input_directory).expanduser()
        if config.keep_file and config.processed_file_suffix:
            raise InvalidConfig("keepFile and processedFileSuffix exclude each other; give one of them")
        if config.tail and config.processed_file_suffix:
            raise InvalidConfig("tail and processedFileSuffix exclude each other: a file that grows is never finished")
        self._file_filter = _expression("fileFilter", config.file_filter)
        self._path_filter = _expression("pathFilter", config.path_filter) if config.path_filter else None
        self._offsets: dict[str, int] = dict(context.position or {})  # by device and inode
        self._share = (context.instance_id, context.parallelism)
        self._open: _Open | None = None
        self._finished: set[str] = set()  # read to the end, or given up, and still there
        self._looked_s = -math.inf
        self._queue: list[tuple[Path, str]] = []

    def read(self) -> list[Record] | None:
        """See `Source.read`."""
        while True:
            current = self._open or self._next()
            if current is None:
                time.sleep(_IDLE_S)
                return None
            try:
                records = [] if current.is_at_end else self._records(current)
            except (OSError, EOFError, zlib.error) as error:
                self._log.error("%s cannot be read on, and is left out: %s", current.path, error)
                self._leave(current)
                continue
            if current.is_at_end:
                self._leave(current)
                if not self._config.tail:
                    if not records:  # all of it was durable before the last stop
                        self._remove(current)
                    else:
                        records[-1].acknowledge = partial(self._remove, current)
            if records:
                self._offsets[current.key] = current.offset
                return records

    def snapshot(self) -> dict[str, int]:
        """See `Source.snapshot`."""
        return dict(self._offsets)

    def close(self) -> None:
        """See `Connector.close`."""
        if (current := getattr(self, "_open", None)) is not None:
            current.stream.close()
            self._open = None

    def _records(self, current: _Open) -> list[Record]:
        properties = {"file": current.path.name, "path": str(current.path)}
        values: list[Any] = current.lines()
        if encoding := self._config.encoding:
            values = [line.decode(encoding, "replace") for line in values]
        return [Record(value, properties=properties) for value in values]

    # -- files ----------------------------------------------------------------------------------------------------

    def _next(self) -> _Open | None:
        """Open the next file that has something to read; None if there is none."""
        now_s = time.monotonic()
        if not self._queue and now_s - self._looked_s >= self._config.polling_interval / 1000:
            self._looked_s = now_s
            self._queue = list(self._found())
        while self._queue:
            path, key = self._queue.pop(0)
            offset = self._offsets.get(key, 0)
            try:
                stream = _opened(path)
                if self._config.tail and os.fstat(stream.fileno()).st_size < offset:
                    self._log.info("%s was cut to nothing, and is read from its beginning", path)
                    offset = 0
                stream.seek(offset)
                self._open = _Open(path, key, stream, offset, is_complete=not self._config.tail)
            except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
                self._log.error("%s cannot be read, and is left out: %s", path, error)
                self._finished.add(key)
            else:
                return self._open
        return None

    def _found(self) -> Iterator[tuple[Path, str]]:
        """Return the files that are to be read now, in the order of their names."""
        try:
            root_kind = os.stat(self._root)
        except OSError as error:
            raise Retry(f"{self._root} cannot be read: {error.strerror}") from error
        paths = [self._root] if stat.S_ISREG(root_kind.st_mode) else sorted(self._walk(self._root))
        there: set[str] = set()
        now_ms = time.time() * 1000
        for path in paths:
            try:
                found = os.stat(path)
            except FileNotFoundError:
                continue
            key = f"{found.st_dev}:{found.st_ino}"
            there.add(key)
            if self._is_wanted(found, key, now_ms):
                yield path, key
        self._finished &= there
        for gone in self._offsets.keys() - there:
            del self._offsets[gone]

    def _walk(self, directory: Path) -> Iterator[Path]:
        for entry in os.scandir(directory):
            if self._config.ignore_hidden_files and entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if self._config.recurse:
                    yield from self._walk(Path(entry.path))
            elif entry.is_file() and self._file_filter.fullmatch(entry.name):
                suffix = self._config.processed_file_suffix
                inside = os.path.relpath(directory, self._root)
                if not (suffix and entry.name.endswith(suffix)) and (
                    self._path_filter is None or self._path_filter.fullmatch(inside)
                ):
                    yield Path(entry.path)

    def _is_wanted(self, found: os.stat_result, key: str, now_ms: float) -> bool:
        config = self._config
        number, count = self._share
        if found.st_ino % count != number or key in self._finished:
            return False
        if config.tail:
            return found.st_size != self._offsets.get(key, 0)
        age_ms = now_ms - found.st_mtime * 1000
        return (
            found.st_size >= config.minimum_size
            and (not config.maximum_size or found.st_size <= config.maximum_size)
            and age_ms >= config.minimum_file_age
            and (not config.maximum_file_age or age_ms <= config.maximum_file_age)
        )

    def _leave(self, current: _Open) -> None:
        current.stream.close()
        self._open = None
        if not self._config.tail:
            self._finished.add(current.key)

    def _remove(self, current: _Open) -> None:
        """Do with a file what is to be done once all of it is durable."""
        if self._config.keep_file:
            return
        path, suffix = current.path, self._config.processed_file_suffix
        try:
            if suffix:
                path.rename(path.with_name(path.name + suffix))
            else:
                path.unlink()
        except OSError as error:
            self._log.error("%s is read, but cannot be removed: %s; it stays, and is not read again", path, error)


def _expression(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"{key} {text!r} is no regular expression: {error}") from None


def _opened(path: Path) -> IO[bytes]:
    with open(path, "rb") as raw:
        head = raw.read(4)
    if head[:2] == b"\x1f\x8b":
        return gzip.open(path)  # type: ignore[return-value]
    if head == b"PK\x03\x04":
        with zipfile.ZipFile(path) as archive:
            return io.BytesIO(b"".join(archive.read(name) for name in archive.namelist()))
    return open(path, "rb", buffering=0)
