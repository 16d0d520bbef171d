"""Removal of each file once all its records are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..api.connector import Record, Retry
from .file_finding import Found
from .file_removal import Finish, Identity, recover, remove

STUCK_MAX = 1000
"""Maximum number of files that could not be removed after reading. At this number, the source stops reading."""


@dataclass(slots=True)
class _Progress:
    """A file with records in flight.

    Attributes:
        found: the file's names.
        unsettled: number of reads whose records are not durable yet.
        read: identity of the file when its end was reached, or None.
    """

    found: Found
    unsettled: int = 0
    read: Identity | None = None


class Settling:
    """Tracks which records of each file are durable, and removes completed files.

    Attributes:
        pending: keys of completely read files whose records are not all durable yet.
        stays: keys of completely read files that must not be removed.
    """

    def __init__(
        self, finish: Finish | None, complain: Callable[[str], None], removed: Callable[[str], None], stays: set[str]
    ) -> None:
        """Create a tracker.

        Args:
            finish: deletes or renames a file; None to keep all files.
            complain: called with a message for each file that cannot be removed.
            removed: called with the key of each removed file.
            stays: keys of files that must not be removed, from an earlier run.
        """
        self.pending: set[str] = set()
        self.stays = stays
        self._finish = finish
        self._complain = complain
        self._removed = removed
        self._stuck: set[str] = set()
        self._on_the_way: dict[str, _Progress] = {}

    @property
    def is_removing(self) -> bool:
        """Whether files are deleted or renamed after reading."""
        return self._finish is not None

    def add(self, found: Found, records: Sequence[Record], read: Identity | None) -> None:
        """Remove a completely read file once these and all earlier records are durable.

        Args:
            found: the file.
            records: records of the latest read; sets `Record.acknowledge` of the last one.
            read: identity of the file if its end was reached, or None.
        """
        if self._finish is None:
            return
        progress = self._on_the_way.setdefault(found.key, _Progress(found))
        progress.read = read
        if read is not None:
            self.pending.add(found.key)
        if records:
            progress.unsettled += 1
            records[-1].acknowledge = partial(self._settled, progress)
        elif not progress.unsettled:
            self._end(progress)

    def give_up(self, key: str) -> None:
        """Stop tracking a file that could not be read completely."""
        self._on_the_way.pop(key, None)

    def _settled(self, progress: _Progress) -> None:
        progress.unsettled -= 1
        if not progress.unsettled:
            self._end(progress)

    def _end(self, progress: _Progress) -> None:
        if progress.read is None:
            return
        key = progress.found.key
        self.pending.discard(key)
        if self._on_the_way.get(key) is progress:
            del self._on_the_way[key]
        self.remove(progress.found, progress.read)

    def remove(self, found: Found, read: Identity) -> None:
        """Remove all names of a file that was read, unless it must stay or has changed.

        Raises:
            Retry: too many files could not be removed.
        """
        if self._finish is None or found.key in self.stays or found.key in self._stuck:
            return
        is_gone = True
        for path in (*found.others, found.path):  # symbolic links before their target
            is_gone &= self._remove_name(path, found.key, read, self._finish)
        if is_gone:
            self._removed(found.key)

    def _remove_name(self, path: Path, key: str, read: Identity, finish: Finish) -> bool:
        try:
            return remove(path, read, finish)
        except FileNotFoundError:
            return True
        except OSError as error:
            self._complain(
                f"cannot remove {path} after reading it: {error.strerror}; the file remains and will not be read again"
            )
            self._stuck.add(key)
            if len(self._stuck) >= STUCK_MAX:
                count = len(self._stuck)
                raise Retry(
                    f"cannot remove {count} files after reading them: {error.strerror}; set keepFile to true"
                ) from error
            return False

    def recover(self, interrupted: Sequence[Path]) -> None:
        """Finish removals interrupted by a crash."""
        for private in interrupted:
            try:
                recover(private, self._finish)
            except OSError as error:
                self._complain(f"cannot remove {private}: {error.strerror}")
