"""A disk that tests can fill up or stall."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from typing import Any

from magnetar.broker.storage.disk.disk import DiskFile, LocalDisk


class MoodyDisk(LocalDisk):
    """The machine's file system with two switches.

    Attributes:
        is_full: every write fails.
        may_sync: cleared, syncs wait until it is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.may_sync = threading.Event()
        self.may_sync.set()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return _MoodyFile(super().open(path, create=create), self)


class _MoodyFile:
    def __init__(self, file: DiskFile, disk: MoodyDisk):
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, "no space left on device")
        self._file.write(offset, parts)

    def sync(self) -> None:
        assert self._disk.may_sync.wait(30)
        self._file.sync()
