"""Archive of the classes that Spark's JVM loads, which halves the JVM's start time.

It uses Java's class-data sharing; `build_class_archive` builds it.

Design: the archive is written by a JVM that has exercised a bit of everything. It is valid for one Java version and one
set of jars; its name identifies both, and the JVM verifies them. Because it is mapped into memory unchanged, its name
also contains its checksum, which is verified at each start. It is used only if it belongs to the user and is not
writable by others. If an archive cannot be used or built, the JVM starts without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from .java import Java, module_options

ARCHIVES_KEPT = 3
"""Number of archives kept for other Java versions and jars; each takes about 150 MB."""
_LOCK, _UNFINISHED = "building.lock", "unfinished-"
_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{8})\.jsa")
_PIECE_BYTES = 4 * 1024 * 1024
_log = logging.getLogger(__name__)


def archive_directory(environment: Mapping[str, str]) -> Path | None:
    """Return the archive directory in ``XDG_CACHE_HOME`` or the home directory, or None if neither is set."""
    for name, below in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
        base = environment.get(name)
        if base and os.path.isabs(base):
            return Path(base, below, "magnetar", "spark-classes")
    return None


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java version and one set of jars; the file may not exist.

    Attributes:
        directory: archive directory.
        key: file name prefix.
    """

    directory: Path
    key: str

    @staticmethod
    def of(directory: Path, java: Java, jars: Path) -> ClassArchive:
        """Return the archive for a Java installation and Spark's jar directory.

        Raises:
            OSError: one of them cannot be read.
        """
        parts = [str(java.home.resolve()), str(jars), *module_options(java, jars)]
        for path in (java.home / "release", java.home / "lib" / "modules", *sorted(jars.iterdir())):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                parts.append(f"{path.name} {found.st_size} {found.st_mtime_ns}")
        return ClassArchive(directory, hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32])

    def file(self) -> Path | None:
        """Return the archive's path if it exists, is intact and belongs to the user; remove a damaged archive."""
        for path in self._files():
            found = path.stat()
            if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                continue
            if path.name == f"{self.key}-{_checksum(path)}.jsa":
                return path
            _log.warning("removing damaged class archive %s; it will be rebuilt", path)
            path.unlink(missing_ok=True)
        return None

    def options(self) -> list[str]:
        """Return the JVM options for using the archive; empty without a usable archive."""
        try:
            path = self.file()
        except OSError as error:
            _log.warning("cannot read the class archive, so Spark starts more slowly: %s", error)
            return []
        # Quiet: the JVM ignores an archive that it cannot use.
        return [] if path is None else [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds*=off"]

    def discard(self) -> None:
        """Remove the archive."""
        with contextlib.suppress(OSError):
            for path in self._files():
                path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob(f"{self.key}-*.jsa"))

    @contextlib.contextmanager
    def building(self) -> Iterator[Path | None]:
        """Yield the path for the JVM to write the archive to, or None if it exists or another process is building it.

        Raises:
            OSError: the directory is not writable.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.directory / _LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            if self.file() is not None:
                yield None
                return
            for left in self.directory.glob(f"{_UNFINISHED}*"):
                left.unlink()
            path = self.directory / f"{_UNFINISHED}{os.getpid()}.jsa"
            try:
                yield path
                if path.exists():
                    path.chmod(0o400)
                    path.rename(self.directory / f"{self.key}-{_checksum(path)}.jsa")
                    self._remove_others()
            finally:
                path.unlink(missing_ok=True)

    def _remove_others(self) -> None:
        others = [path for path in self.directory.glob("*.jsa") if _NAME.fullmatch(path.name)]
        others = [path for path in others if not path.name.startswith(self.key)]
        for path in sorted(others, key=lambda one: one.stat().st_mtime)[:-ARCHIVES_KEPT]:
            path.unlink()


def _checksum(path: Path) -> str:
    value = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            value = google_crc32c.extend(value, piece)
    return f"{value:08x}"
