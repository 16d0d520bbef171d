"""Disk errors that name the file and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free space on that disk; a running broker then goes on by itself",
    errno.EDQUOT: "raise the quota or free space; a running broker then goes on by itself",
    errno.EACCES: "give this user the right to write there, or choose another data directory",
    errno.EPERM: "give this user the right to write there, or choose another data directory",
    errno.EROFS: "remount the disk writable, or choose another data directory",
    errno.ENOTDIR: "choose another data directory",
    errno.EEXIST: "a file is in the way; choose another data directory",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
}
_OTHER_REMEDY = "check the disk (system log); a running broker goes on by itself once it works"


class DiskFailure(StorageError):
    """A disk operation failed.

    Attributes:
        path: the file or directory.
        error_number: the operating system's errno.
    """

    def __init__(self, action: str, path: str, cause: OSError) -> None:
        self.path = path
        self.error_number = cause.errno or 0
        reason = os.strerror(self.error_number) if self.error_number else str(cause)
        name = errno.errorcode.get(self.error_number, "no errno")
        remedy = _REMEDIES.get(self.error_number, _OTHER_REMEDY)
        super().__init__(f"cannot {action} {path}: {reason} ({name}); {remedy}")


class DamagedFile(StorageError):
    """The content of a file is not what was synced.

    Attributes:
        path: the file.
        offset: where in the file, in bytes.
    """

    def __init__(self, path: str, offset: int, what: str) -> None:
        self.path = path
        self.offset = offset
        super().__init__(
            f"{path} is damaged at offset {offset}: {what}; restore the data directory from a copy, "
            "or move it away to start empty"
        )


class NewerFormat(StorageError):
    """A data directory was written by a later version of the software."""

    def __init__(self, directory: str, found: int, known: int) -> None:
        super().__init__(
            f"data directory {directory} has format {found}, this version reads formats up to {known}; "
            "start it with the version of Magnetar that wrote it, or a later one"
        )


class UnknownLogs(StorageError):
    """The journal holds records of logs that were neither created nor deleted."""


class Congested(StorageError):
    """The journal queue is over its hard limit: the caller did not stop when the storage was congested."""


@contextmanager
def disk_action(action: str, path: str) -> Iterator[None]:
    """Translate an OSError inside the block into a DiskFailure that names ``action`` and ``path``."""
    try:
        yield
    except OSError as exc:
        raise DiskFailure(action, path, exc) from exc


def as_storage_error(error: Exception, action: str) -> StorageError:
    """Return ``error`` if it is a StorageError, else one that names ``action`` and the error."""
    if isinstance(error, StorageError):
        return error
    return StorageError(f"cannot {action}: {error!r}; it is tried again, see the log for where it came from")
