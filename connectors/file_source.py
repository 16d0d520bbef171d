"""The source ``file``: lines of files, of a directory or of one file that grows.

Two ways of working. By default a file is finished when it is found, as Pulsar's connector has it: it is read to its
end, plain, gzip or zip, and then deleted, renamed or kept. With ``tail`` files grow: they are followed over rotation,
by a rename or a cut to nothing, and nothing is ever deleted; what is left of a file that was renamed is read, and a
compressed copy of one that was read is not read again.

Position: for each file how far it is read, by inode, with digests of the text at its beginning and right before that
place. So an inode that another file has now, and a file that was cut and has grown again, are recognised. Of files
that are kept the `KEPT_MAX` last are remembered so; of older ones only that everything whose status has not changed
since a time (the ctime) is read. So the position stays small, however many files there are; one of the older ones whose
owner, mode or name is changed then is read again. A file is deleted or renamed only when its last line is durable.
"""

from __future__ import annotations

import codecs
import math
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .file_text import DAMAGED, LINE_BYTES_MAX, FileText, Place, stamp_of

KEPT_MAX = 1000
"""Files that are read and still there, or that were there, of which the position says more than a time."""
FOLLOWED_MAX = 256
"""Files that are held open while nothing is written to them."""
ROTATED_S = 30.0
"""How long a file that has lost its name is still looked at after its last line."""
_IDLE_S = 0.2
"""How long a `read` that finds nothing waits."""
_SHORT_S = 0.005
"""How long it waits where files are read, and their last lines not durable yet."""


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
    key: Literal["none", "path"] = option(
        "What the key of records is: none, or path for that of the file, seen from inputDirectory.", default="none"
    )
    with_properties: bool = option("Whether records have the properties file and path.", default=True)
    num_workers: int = option("Threads of an instance: one. For more give the source parallelism.", default=1)
    encoding: str = option(
        "Of the text, which is sent as UTF-8, with U+FFFD for what is none; empty to send the bytes as they are.",
        default="",
    )


class _Found(NamedTuple):
    """A file as a look has found it."""

    path: Path
    key: str
    status: os.stat_result


class FileSource(Source):
    """Lines of files: of a directory, plain or compressed, or of files that grow."""

    config = FileSourceConfig

    def check(self, config: FileSourceConfig) -> None:
        """See `Connector.check`."""
        if config.keep_file and config.processed_file_suffix:
            raise InvalidConfig("keepFile and processedFileSuffix exclude each other; give one of them")
        if config.tail and config.processed_file_suffix:
            raise InvalidConfig("tail and processedFileSuffix exclude each other: a file that grows is never finished")
        if config.num_workers != 1:
            raise InvalidConfig("numWorkers must be 1: an instance reads by one thread; give parallelism instead")
        if not config.input_directory:
            raise InvalidConfig("inputDirectory must not be empty")
        _expression("fileFilter", config.file_filter)
        _expression("pathFilter", config.path_filter)
        if config.encoding:
            try:
                line_end = "\n".encode(codecs.lookup(config.encoding).name)
            except (LookupError, UnicodeError) as error:
                raise InvalidConfig(f"encoding {config.encoding!r} is no encoding of text") from error
            if line_end != b"\n":
                raise InvalidConfig(f"encoding {config.encoding}: its line end is not one byte; convert the files")

    def not_effectively_once(self, config: FileSourceConfig) -> str:
        """See `Connector.not_effectively_once`."""
        return "in which order files are found depends on when it looks, and so do the records behind a position"

    def open(self, config: FileSourceConfig, context: SourceContext) -> None:
        """See `Connector.open`."""
        if config.tail and context.parallelism > 1:
            raise InvalidConfig("tail follows rotation, which one instance alone can: set parallelism to 1")
        self._config = config
        self._log = context.logger
        self._root = Path(config.input_directory).expanduser()
        self._file_filter = _expression("fileFilter", config.file_filter)
        self._path_filter = _expression("pathFilter", config.path_filter)
        position = context.position or {}
        self._known = {key: Place(*place) for key, place in position.get("files", {}).items()}
        self._before: int = position.get("before", 0)
        self._share = (context.instance_id, context.parallelism)
        self._current: FileText | None = None
        self._unremoved: set[str] = set()  # read to their ends, and to be removed when that is durable
        self._unremovable: set[str] = set()
        self._followed: dict[str, FileText] = {}  # at their ends, the one that was read last at the end
        self._failed: dict[str, int] = {}  # the stamps of files that could not be read
        self._complained: set[str] = set()
        self._looked_s = -math.inf
        self._queue: list[_Found] = []  # the next one at the end
        self._present: dict[str, int] = {}  # files of the last look, with the time of the change of their status
        self._undone = math.inf  # the earliest such time of one that is not to be read yet
        self._forget_at = 2 * KEPT_MAX
        self._is_first_look = True

    def read(self) -> list[Record] | None:
        """See `Source.read`."""
        while True:
            current = self._current or self._next()
            if current is None:
                time.sleep(_IDLE_S)
                return None
            if len(self._unremoved) >= KEPT_MAX:
                time.sleep(_SHORT_S)
                return None
            try:
                records = self._records(current)
            except DAMAGED as error:
                self._give_up(current, error)
                continue
            if current.is_at_end:
                self._leave(current)
                if not self._config.tail:
                    remove = partial(self._remove, current.path, current.key)
                    if records:
                        self._unremoved.add(current.key)
                        records[-1].acknowledge = remove
                    else:  # all of it was durable before the last stop
                        remove()
            if records:
                return records

    def snapshot(self) -> dict[str, Any]:
        """See `Source.snapshot`."""
        return {"files": self._known} | ({"before": self._before} if self._before else {})

    def close(self) -> None:
        """See `Connector.close`."""
        for text in [getattr(self, "_current", None), *getattr(self, "_followed", {}).values()]:
            if text is not None:
                text.close()
        self._current, self._followed = None, {}

    def _records(self, current: FileText) -> list[Record]:
        before = current.offset
        values: list[Any] = current.lines()
        if current.too_long:
            self._log.error("%s: a line of more than %d bytes is left out", current.path, LINE_BYTES_MAX)
            current.too_long = 0
        if current.offset != before or current.is_at_end:
            self._known.pop(current.key, None)  # the newest at the end
            self._known[current.key] = current.place(is_at_end=current.is_at_end)
        if encoding := self._config.encoding:
            values = [line.decode(encoding, "replace") for line in values]
        path, is_named = current.path, self._config.with_properties
        properties = {"file": path.name, "path": str(path)} if is_named else {}
        key = os.path.relpath(path, self._root) if self._config.key == "path" else None
        return [Record(value, key, properties) for value in values]

    # -- the next file --------------------------------------------------------------------------------------------

    def _next(self) -> FileText | None:
        """Return the next file that has something to read, or whose end is to be noted; None if there is none."""
        for key, text in list(self._followed.items()):
            before = self._known.get(key)
            if text.has_more():
                if before is not None and before.offset and not text.offset:
                    self._cut(text.path, key, before)
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
            except DAMAGED as error:
                self._fail(found.path, found.key, found.status, error)
        return self._current

    def _opened(self, found: _Found) -> FileText:
        """Open a file where it is to be read on."""
        is_tail = self._config.tail
        text = FileText(found.path, found.key, found.status, is_complete=not is_tail)
        try:
            place = self._known.get(found.key)
            offset = 0 if place is None else text.find(place)
            if place is not None and offset is None:
                self._cut(found.path, found.key, place)
            if not offset and is_tail:
                offset = self._read_under_another_name(text)
            text.begin(offset or 0)
        except BaseException:
            text.close()
            raise
        return text

    def _read_under_another_name(self, text: FileText) -> int:
        """Return how far a text is read already, as another file has it too: this is a copy, maybe a compressed one."""
        head = text.head()
        places = [place for key, place in self._known.items() if key != text.key and place.head == head]
        found = (text.find(place, is_copy=True) for place in places)
        return next((offset for offset in found if offset is not None), 0)

    def _cut(self, path: Path, key: str, place: Place) -> None:
        """Take note that what a file had is not there any more; a copy of it may be."""
        self._log.info("%s was cut, or is another file now, and is read from its beginning", path)
        del self._known[key]
        self._known[f"{key}~{place.head}"] = place

    def _leave(self, current: FileText) -> None:
        """Take leave of a file that is at its end."""
        self._current = None
        if self._config.tail and not current.is_compressed:
            self._followed[current.key] = current
            while len(self._followed) > FOLLOWED_MAX:
                self._followed.pop(next(iter(self._followed))).close()
        else:
            current.close()
        if len(self._known) >= self._forget_at:
            self._forget()

    def _give_up(self, current: FileText, error: Exception) -> None:
        self._current = None
        self._fail(current.path, current.key, current.status, error)
        current.close()

    def _fail(self, path: Path, key: str, status: os.stat_result, error: Exception) -> None:
        """Leave a file out until it changes."""
        self._failed[key] = stamp_of(status)
        self._undone = min(self._undone, status.st_ctime_ns)
        self._complain(f"{path} cannot be read, and is left out until it changes: {type(error).__name__}: {error}")

    def _complain(self, text: str) -> None:
        """Log an error, once."""
        if text not in self._complained and len(self._complained) < KEPT_MAX:
            self._complained.add(text)
            self._log.error("%s", text)

    def _remove(self, path: Path, key: str) -> None:
        """Do with a file what is to be done once all of it is durable."""
        self._unremoved.discard(key)
        if self._config.keep_file:
            return
        suffix = self._config.processed_file_suffix
        try:
            if suffix:
                path.rename(path.with_name(path.name + suffix))
            else:
                path.unlink()
        except FileNotFoundError:
            pass  # somebody was faster
        except OSError as error:
            self._complain(f"{path} is read, but cannot be removed: {error.strerror}; it stays, and is not read again")
            self._unremovable.add(key)
            if len(self._unremovable) >= KEPT_MAX:
                count = len(self._unremovable)
                raise Retry(f"{count} files are read, but cannot be removed: {error.strerror}; set keepFile") from error
            return
        self._known.pop(key, None)

    # -- looking for files ----------------------------------------------------------------------------------------

    def _look(self) -> list[_Found]:
        """Return the files that are to be read now, the first at the end: those that were begun, then the others."""
        files = self._files(self._root)
        self._present = {found.key: found.status.st_ctime_ns for found in files}
        self._let_go_of_rotated()
        if self._is_first_look and self._config.tail:
            files += self._renamed()
        self._is_first_look = False
        now_ms = time.time() * 1000
        wanted: list[_Found] = []
        young: list[_Found] = []
        for found in filter(self._is_new, files):
            if self._config.tail or self._has_right_size_and_age(found.status, now_ms):
                is_young = (
                    not self._config.tail and found.status.st_mtime * 1000 > now_ms - self._config.minimum_file_age
                )
                (young if is_young else wanted).append(found)
        self._undone = min((found.status.st_ctime_ns for found in young), default=math.inf)
        self._failed = {key: stamp for key, stamp in self._failed.items() if key in self._present}
        by_time = self._config.keep_file  # so that what was read can be told by a time
        wanted.sort(key=lambda one: (one.key not in self._known, by_time and one.status.st_ctime_ns, one.path))
        wanted.reverse()
        self._queue = wanted
        self._remove_finished(files)
        self._forget()
        return wanted

    def _remove_finished(self, files: list[_Found]) -> None:
        """Remove what was read to its end before the last stop, when nobody could remove it any more."""
        if self._config.tail or self._config.keep_file:
            return
        stuck = self._unremoved | self._unremovable
        for found in files:
            place = self._known.get(found.key)
            if place is not None and place.stamp == stamp_of(found.status) and found.key not in stuck:
                self._remove(found.path, found.key)

    def _files(self, top: Path, *, is_any: bool = False) -> list[_Found]:
        """Return the files below a directory, or the file itself; with ``is_any`` whatever their names are."""
        try:
            root = os.stat(top)
            if stat.S_ISREG(root.st_mode):
                return [_Found(top, _key(root, root), root)]
            with os.scandir(top):
                pass  # what is below it may be unreadable, but not itself
        except OSError as error:
            if self._followed and isinstance(error, FileNotFoundError):
                return []  # it is being rotated
            raise Retry(f"{top} cannot be read: {error.strerror}") from error
        return list(self._walk(top, top, root, is_any=is_any))

    def _walk(self, top: Path, directory: Path, root: os.stat_result, *, is_any: bool) -> Iterator[_Found]:
        config, suffix = self._config, self._config.processed_file_suffix
        inside = os.path.relpath(directory, top)
        is_read = is_any or not config.path_filter or self._path_filter.fullmatch(inside)
        try:
            entries = list(os.scandir(directory))
        except OSError as error:
            self._complain(f"{directory} cannot be read, and is left out: {error.strerror}")
            return
        for entry in entries:
            if config.ignore_hidden_files and entry.name.startswith(".") and not is_any:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if config.recurse:
                        yield from self._walk(top, Path(entry.path), root, is_any=is_any)
                elif is_read and entry.is_file():
                    is_named_so = self._file_filter.fullmatch(entry.name)
                    if is_any or (is_named_so and not (suffix and entry.name.endswith(suffix))):
                        status = os.stat(entry.path)
                        yield _Found(Path(entry.path), _key(status, root), status)
            except FileNotFoundError:
                continue  # it was there a moment ago
            except OSError as error:
                self._complain(f"{entry.path} cannot be read, and is left out: {error.strerror}")

    def _is_new(self, found: _Found) -> bool:
        """Return whether there may be something in a file that was not read."""
        status, place = found.status, self._known.get(found.key)
        number, count = self._share
        if status.st_ino % count != number or found.key in self._followed:
            return False
        stamp = stamp_of(status)
        if stamp in (self._failed.get(found.key), None if place is None else place.stamp):
            return False
        return place is not None or status.st_ctime_ns > self._before

    def _has_right_size_and_age(self, status: os.stat_result, age_ms: float) -> bool:
        """Return whether a file may be read, now or when it is old enough."""
        config = self._config
        return (
            status.st_size >= config.minimum_size
            and (not config.maximum_size or status.st_size <= config.maximum_size)
            and (not config.maximum_file_age or age_ms <= config.maximum_file_age)
        )

    def _let_go_of_rotated(self) -> None:
        """Close files that have lost their names, once nobody writes to them any more."""
        now_s = time.monotonic()
        for key, text in list(self._followed.items()):
            if key not in self._present and now_s - text.used_s > ROTATED_S:
                self._followed.pop(key).close()

    def _renamed(self) -> list[_Found]:
        """Return files that were being read before the last stop, and have names now that are not looked for."""
        lost = self._known.keys() - self._present.keys()
        if not lost:
            return []
        top = self._root if self._root.is_dir() else self._root.parent
        found = [one for one in self._files(top, is_any=True) if one.key in lost]
        self._present |= {one.key: one.status.st_ctime_ns for one in found}
        return found

    def _forget(self) -> None:
        """Keep the position small: forget files that are gone, and tell old ones that are read by a time."""
        if not (self._config.tail or self._config.keep_file):
            self._known = {key: place for key, place in self._known.items() if key in self._present}
            return
        gone = [key for key in self._known if key not in self._present and key not in self._followed]
        spare = KEPT_MAX // 10 if self._config.tail else 0  # of which copies may be found yet
        for key in gone[: max(len(gone) - spare, 0)]:
            del self._known[key]
        finished = (key for key, place in self._known.items() if place.stamp and key in self._present)
        done = sorted((self._present[key], key) for key in finished)
        undone = min([self._undone, *(self._present[found.key] for found in self._queue)])
        for changed, key in done[: max(len(done) - KEPT_MAX, 0)]:
            if changed >= undone:
                break
            self._before = max(self._before, changed)
            del self._known[key]
            if (text := self._followed.pop(key, None)) is not None:
                text.close()
        self._forget_at = len(self._known) + KEPT_MAX


def _key(status: os.stat_result, root: os.stat_result) -> str:
    """Return what a file is known by; the number of a device may be another one after a start of the machine."""
    same = status.st_dev == root.st_dev
    return str(status.st_ino) if same else f"{status.st_dev}:{status.st_ino}"


def _expression(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"{key} {text!r} is no regular expression: {error}") from None
