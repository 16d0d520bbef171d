"""Disk errors whose messages name the file and a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free space on that disk; a running broker then resumes automatically",
    errno.EDQUOT: "raise the quota or free space; a running broker then resumes automatically",
    errno.EACCES: "grant this user write access, or use another data directory",
    errno.EPERM: "grant this user write access, or use another data directory",
    errno.EROFS: "remount the file system read-write, or use another data directory",
    errno.ENOTDIR: "use another data directory",
    errno.EEXIST: "use another data directory",
    errno.EMFILE: "raise the open file limit (ulimit -n)",
    errno.ENFILE: "raise the system-wide open file limit",
}
_OTHER_REMEDY = "check the disk and the system log; a running broker resumes automatically once the disk works"


class DiskFailure(StorageError):
    """A disk operation failed.

    Attributes:
        path: file or directory.
        error_number: errno of the operating system; 0 if unknown.
    """

    def __init__(self, action: str, path: str, cause: OSError) -> None:
        self.path = path
        self.error_number = cause.errno or 0
        reason = os.strerror(self.error_number) if self.error_number else str(cause)
        name = errno.errorcode.get(self.error_number, "no errno")
        remedy = _REMEDIES.get(self.error_number, _OTHER_REMEDY)
        super().__init__(f"cannot {action} {path}: {reason} ({name}); {remedy}")


class DamagedFile(StorageError):
    """A file does not have the content that was synced to it.

    Attributes:
        path: path of the file.
        offset: offset of the damage, in bytes.
    """

    def __init__(self, path: str, offset: int, what: str) -> None:
        self.path = path
        self.offset = offset
        super().__init__(
            f"{path} is damaged at offset {offset}: {what}; restore the data directory from a backup, "
            "or move it away to start with an empty one"
        )


class NewerFormat(StorageError):
    """The data directory was written by a later version of Magnetar."""

    def __init__(self, directory: str, found: int, known: int) -> None:
        super().__init__(
            f"data directory {directory} has format {found}, but this version supports formats up to {known}: "
            "use the version of Magnetar that wrote the directory, or a later one"
        )


class UnknownLogs(StorageError):
    """The journal contains records of logs that were neither created nor deleted."""


class Congested(StorageError):
    """Unwritten data exceeds the hard limit, because the caller continued to append during congestion."""


@contextmanager
def disk_action(action: str, path: str) -> Iterator[None]:
    """Translate an OSError raised in the block into a DiskFailure for this action and path."""
    try:
        yield
    except OSError as exc:
        raise DiskFailure(action, path, exc) from exc


def as_storage_error(error: Exception, action: str) -> StorageError:
    """Return ``error`` if it is a StorageError; otherwise wrap it in one that names ``action``."""
    if isinstance(error, StorageError):
        return error
    return StorageError(f"cannot {action}: {error!r}; retrying, see the broker log for the traceback")
