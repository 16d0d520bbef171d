"""A disk for SQLite that loses unsynced data, and fails on request.

SQLite does its input and output through a table of C functions, its VFS. Python's module cannot install a VFS, but
where it uses the system's library, ctypes can: the functions that write, truncate and sync are wrapped around those of
the default VFS. They record, for each file, the content made durable by a sync and the operations since; a crash leaves
the durable content with any part of the operations. After a failed sync, its data may never reach the disk, because the
kernel considers it written.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECTOR_BYTES = 512
OK = 0
FULL = 13
IOERR_WRITE, IOERR_FSYNC, IOERR_TRUNCATE = (10 | detail << 8 for detail in (3, 4, 6))
WRITE, TRUNCATE, SYNC = 2, 3, 4
"""Positions in a file's method table, where xClose is 0."""


class _Methods(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("methods", ctypes.c_void_p * 18))


class _File(ctypes.Structure):
    _fields_ = (("methods", ctypes.c_void_p),)


class _Vfs(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("path_bytes", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", ctypes.c_void_p),
        ("delete", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 14),
    )


_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)

Operation = tuple[int, bytes | None]
"""Bytes written at an offset, or a truncation to it."""


class LossyDisk:
    """The possible contents of a directory's files after a crash.

    Attributes:
        operations: number of writes, truncations and syncs so far.
        syncs: number of syncs so far.
        before: called before each operation, while the lock is held.
        Return whether a reply may never arrive: a producer is queued, or the consumer of the acks was closed.
        failures: error codes of a failed write, truncation and sync.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.operations = self.syncs = 0
        self.before: Callable[[], None] = lambda: None
        self.fail_at = 0
        self.failures = (FULL, IOERR_TRUNCATE, IOERR_FSYNC)
        self._rng = random.Random(0)
        self._durable: dict[str, bytes] = {}
        self._pending: dict[str, list[Operation]] = {}
        self._lock = threading.RLock()

    def write(self, path: str, offset: int, data: bytes) -> int:
        with self._lock:
            if self._next_fails():
                return self.failures[0]
            self._pending.setdefault(path, []).append((offset, data))
            return OK

    def truncate(self, path: str, size: int) -> int:
        with self._lock:
            if self._next_fails():
                return self.failures[1]
            self._pending.setdefault(path, []).append((size, None))
            return OK

    def sync(self, path: str) -> int:
        with self._lock:
            fails = self._next_fails()
            pending = self._pending.pop(path, [])
            if fails:
                pending = [part for one in pending for part in _parts_kept(one, self._rng)]
            self.syncs += 1
            self._durable[path] = _applied(self._durable.get(path, b""), pending)
            return self.failures[2] if fails else OK

    def delete(self, path: str) -> None:
        with self._lock:
            self._durable.pop(path, None)
            self._pending.pop(path, None)

    def crash(self, rng: random.Random) -> dict[str, bytes]:
        """Return the files, by name, as a power failure at this moment might leave them."""
        with self._lock:
            left = {}
            for path in {*self._durable, *self._pending}:
                kept = [part for one in self._pending.get(path, []) for part in _parts_kept(one, rng)]
                if path in self._durable or rng.random() < 0.5:  # a file that was never synced may not be there at all
                    left[Path(path).name] = _applied(self._durable.get(path, b""), kept)
            return left

    def _next_fails(self) -> bool:
        self.before()
        self.operations += 1
        return self.operations == self.fail_at


def _applied(image: bytes, operations: list[Operation]) -> bytes:
    content = bytearray(image)
    for offset, data in operations:
        if data is None:
            del content[offset:]
            continue
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
    return bytes(content)


def _parts_kept(operation: Operation, rng: random.Random) -> Iterator[Operation]:
    """Yield what remains of an operation: nothing, all, or some sectors of a write."""
    offset, data = operation
    chance = rng.random()
    if chance < 0.4:
        return
    if chance < 0.8 or data is None:
        yield operation
        return
    for start in range(0, len(data), SECTOR_BYTES):
        if rng.random() < 0.5:
            yield offset + start, data[start : start + SECTOR_BYTES]


@contextlib.contextmanager
def installed(disk: LossyDisk) -> Iterator[bool]:
    """Use the disk for all databases opened meanwhile; yield False if Python's module has its own SQLite."""
    try:
        library = ctypes.CDLL("libsqlite3.so.0")
    except OSError:
        yield False
        return
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    library.sqlite3_vfs_find.argtypes = (ctypes.c_char_p,)
    default = library.sqlite3_vfs_find(None)
    shim = _Shim(disk, default.contents)
    library.sqlite3_vfs_register(ctypes.byref(shim.vfs), 1)
    try:
        connection = sqlite3.connect(Path(disk.directory) / "probe")
        connection.execute("CREATE TABLE probe (x)")
        connection.close()
        yield disk.syncs > 0
    finally:
        library.sqlite3_vfs_register(default, 1)
        library.sqlite3_vfs_unregister(ctypes.byref(shim.vfs))


class _Shim:
    """Wrappers of SQLite's functions, which must outlive every file opened through them."""

    def __init__(self, disk: LossyDisk, default: _Vfs) -> None:
        self._disk = disk
        self._default = default
        self._paths: dict[int, str] = {}
        self._originals: dict[int, Any] = {}
        self._wrapped: dict[int, tuple[_Methods, list[object]]] = {}
        self._kept = (_OPEN(self._open), _DELETE(self._delete))
        self.vfs = _Vfs.from_buffer_copy(default)
        self.vfs.name = b"lossy"
        self.vfs.next = None
        self.vfs.open, self.vfs.delete = (ctypes.cast(kept, ctypes.c_void_p).value for kept in self._kept)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out_flags: int | None) -> int:
        code: int = _OPEN(self._default.open)(vfs, name, file, flags, out_flags)
        path = ctypes.string_at(name).decode() if name else ""
        if code == OK and path.startswith(self._disk.directory):
            self._paths[file] = path
            opened = _File.from_address(file)
            assert opened.methods is not None
            opened.methods = ctypes.addressof(self._wrap(opened.methods))
        return code

    def _delete(self, vfs: int, name: int, sync_directory: int) -> int:
        code: int = _DELETE(self._default.delete)(vfs, name, sync_directory)
        self._disk.delete(ctypes.string_at(name).decode())
        return code

    def _wrap(self, address: int) -> _Methods:
        if address not in self._wrapped:
            theirs = _Methods.from_address(address)
            write, truncate, sync = (theirs.methods[place] for place in (WRITE, TRUNCATE, SYNC))
            ours = _Methods.from_buffer_copy(theirs)

            def on_write(file: int, data: int, size: int, offset: int) -> int:
                code = self._disk.write(self._paths[file], offset, ctypes.string_at(data, size))
                return code or int(_WRITE(write)(file, data, size, offset))

            def on_truncate(file: int, size: int) -> int:
                code = self._disk.truncate(self._paths[file], size)
                return code or int(_TRUNCATE(truncate)(file, size))

            def on_sync(file: int, flags: int) -> int:
                return self._disk.sync(self._paths[file]) or int(_SYNC(sync)(file, flags))

            kept = [_WRITE(on_write), _TRUNCATE(on_truncate), _SYNC(on_sync)]
            for place, function in zip((WRITE, TRUNCATE, SYNC), kept, strict=True):
                ours.methods[place] = ctypes.cast(function, ctypes.c_void_p).value
            self._wrapped[address] = (ours, list(kept))
        return self._wrapped[address][0]
