"""Extraction of untrusted archives. Rejects names outside the directory, links and zip bombs. Blocking."""

from __future__ import annotations

import errno
import lzma
import stat
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..errors import PackageError

if TYPE_CHECKING:
    import zipfile

SUFFIXES = (".py", ".zip", ".whl")
MAX_EXTRACTED_BYTES = 1024 * 1024 * 1024
"""Maximum extracted size, four times the largest upload: code does not compress better, and zip bombs are stopped."""
MAX_FILES = 20_000
_CHUNK_BYTES = 256 * 1024
_NAME_BYTES = 255
"""Maximum length of a file name."""
_UNREADABLE = (zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, EOFError, ValueError)
"""Errors raised for a damaged or encrypted archive, besides `zipfile.BadZipFile`."""


def extract(archive: Path, target: Path, name: str) -> None:
    """Extract a zip file into the new directory `target`.

    Args:
        archive: path of the zip file.
        target: directory to create. It must not exist; after an error the caller must delete it.
        name: package name, for messages.

    Raises:
        PackageError: the file is not a zip file, is damaged, or has invalid entries.
    """
    import zipfile  # imported when the first archive arrives

    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
            _check(entries, name)
            target.mkdir()
            left = MAX_EXTRACTED_BYTES
            for entry in entries:
                left -= _extract_entry(zipped, entry, target, left)
    except (zipfile.BadZipFile, *_UNREADABLE) as exc:
        raise PackageError(f"package {name} is not a readable zip file: {exc}") from exc
    except OSError as exc:
        if exc.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
            raise PackageError(f"package {name} contains the same path as both a file and a directory") from exc
        # A damaged zip directory points before the start of the file; all other errors are from the disk.
        if exc.errno == errno.EINVAL:
            raise PackageError(f"package {name} is not a readable zip file: {exc.strerror}") from exc
        raise


def _check(entries: list[zipfile.ZipInfo], name: str) -> None:
    if len(entries) > MAX_FILES:
        raise PackageError(f"package {name} contains {len(entries)} files: the maximum is {MAX_FILES}")
    if not any(not entry.is_dir() for entry in entries):
        raise PackageError(f"package {name} contains no files: expected an archive of the function's modules")
    size = sum(entry.file_size for entry in entries)
    if size > MAX_EXTRACTED_BYTES:
        raise PackageError(f"package {name} extracts to {size} bytes: the maximum is {MAX_EXTRACTED_BYTES}")
    for entry in entries:
        path = PurePosixPath(entry.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in entry.filename or "\0" in entry.filename:
            raise PackageError(f"package {name} contains {entry.filename[:80]!r}, which is outside its directory")
        longest = max(len(part.encode("utf-8", "surrogatepass")) for part in ("", *path.parts))
        if longest > _NAME_BYTES:
            raise PackageError(f"package {name} contains a file name of {longest} bytes: the maximum is {_NAME_BYTES}")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise PackageError(
                f"package {name} contains a symbolic link ({entry.filename[:80]!r}): only regular files are allowed"
            )


def _extract_entry(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int) -> int:
    path = target.joinpath(*PurePosixPath(entry.filename.replace("\\", "/")).parts)
    if entry.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with zipped.open(entry) as source, path.open("xb") as sink:
        while chunk := source.read(_CHUNK_BYTES):
            written += len(chunk)
            if written > left:
                raise PackageError(f"the package extracts to more than {MAX_EXTRACTED_BYTES} bytes")
            sink.write(chunk)
    return written


def module_root(directory: Path) -> Path:
    """Return the directory of an extracted archive to add to the module search path.

    Pulsar's archives have their modules in `src/`, either at the top or in a single directory of any name. Other
    archives have them at the top.
    """
    if (directory / "src").is_dir():
        return directory / "src"
    children = [child for child in directory.iterdir() if not child.name.startswith(".")]
    if len(children) == 1 and (children[0] / "src").is_dir():
        return children[0] / "src"
    return directory
