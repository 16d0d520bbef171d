"""Backup files: copied durably, listed with length and checksum in a manifest, and verified against it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..failure import Failure, Faults

MANIFEST = "manifest.json"
FORMAT = 1
"""Format version of the manifest; later ones are rejected."""
_PIECE_BYTES = 1 << 20


@contextlib.contextmanager
def only_for_owner() -> Iterator[None]:
    """Create files and directories readable only by their owner: a backup contains all messages, and secrets."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def copy_bytes(old: int, new: int, length: int) -> None:
    """Copy bytes from the start of one file descriptor to another, at most up to the end of the source."""
    offset = 0
    while offset < length:
        data = os.pread(old, min(_PIECE_BYTES, length - offset), offset)
        if not data:
            return
        view = memoryview(data)
        while view:
            view = view[os.write(new, view) :]
        offset += len(data)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file up to its current end; raises FileNotFoundError if it is missing."""
    with source.open("rb") as old, target.open("wb", buffering=0) as new:
        copy_bytes(old.fileno(), new.fileno(), 1 << 62)


def sync_tree(directory: Path) -> None:
    """Sync all files and directory entries below a directory, and its own entry."""
    for path in (*directory.rglob("*"), directory, directory.absolute().parent):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def digest(path: Path) -> dict[str, Any]:
    """Return the length and SHA-256 of a file."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": found}


def write_manifest(directory: Path, about: dict[str, Any]) -> None:
    """Write the manifest, which lists the files and marks the backup as complete."""
    files = {str(path.relative_to(directory)): digest(path) for path in sorted(directory.rglob("*")) if path.is_file()}
    sync_tree(directory)
    temporary = directory / f"{MANIFEST}.new"
    with temporary.open("w") as file:
        json.dump({"format": FORMAT, **about, "files": files}, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MANIFEST)
    sync_tree_names(directory)


def sync_tree_names(directory: Path) -> None:
    """Sync the entries of a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def checked_manifest(directory: Path) -> dict[str, Any]:
    """Verify all files of a backup, and return its manifest.

    Raises:
        Failure: the directory does not contain a complete backup, or its format is unsupported.
        Faults: files are missing or differ; one line for each.
    """
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_text())
        files = dict(manifest["files"])
    except FileNotFoundError as exc:
        raise Failure(f"{directory} has no {MANIFEST}: it is not a backup, or the backup was not completed") from exc
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise Failure(f"{directory}/{MANIFEST} cannot be read: {exc}: use another backup") from exc
    if manifest.get("format") != FORMAT:
        raise Failure(
            f"{directory} is a backup of format {manifest.get('format')!r}, not {FORMAT}: restore it with the version"
            " that created it or a later one"
        )
    faults = []
    for name, expected in files.items():
        path = directory / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            faults.append(f"{name} is outside the backup")
        elif not path.is_file():
            faults.append(f"{name} is missing")
        elif digest(path) != expected:
            faults.append(f"{name} is damaged: its length or checksum differs")
    if faults:
        raise Faults(f"{directory}: {fault}: use another backup" for fault in faults)
    return manifest
