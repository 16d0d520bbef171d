"""Consistent copies of a running broker and state store.

Design: the ledgers are copied first, as they are most of the data and only grow at the end. One pass then copies new
data in the ledgers, the metadata, a snapshot of the state, and the journal up to its end at the time of the snapshot.
If catalogue and metadata are unchanged afterwards, all parts are consistent: they equal the files after a crash of all
servers at that moment. Otherwise the pass is repeated. The state must match the journal: an older state would lack
changes whose inputs were acknowledged; a newer one would include outputs that the broker does not have.

Rejected: a file that makes the broker pause writes, as the backup of a broker that does not check it would be torn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...broker.storage.catalogue import read_catalogue
from ...broker.storage.disk.disk import LocalDisk
from ...broker.storage.journal_cut import JournalCut, Moved, copy_part
from ...state.database import FILE as STATE_FILE
from ..failure import Failure
from ..servers.data_directory import METADATA_FILE, STORAGE_FOLDER
from .databases import Snapshot, check_database, copy_database, fingerprint
from .files import copy_bytes, copy_file

ATTEMPTS_MAX = 100
MOMENTS_MAX = 10_000
"""Maximum number of attempts to read the journal's end while the state is unchanged; each takes milliseconds."""
_SETTLED_NS = 2_000_000_000
"""Age, in nanoseconds, above which a file's modification time at the copy reliably reveals later changes."""
Clock = Callable[[], int]


class Backup:
    """Copies one data directory.

    Args:
        data: the broker's data directory.
        state: the state store's data directory; None without a state store.
        target: an empty directory.
        clock: wall time in nanoseconds.
    """

    def __init__(self, data: Path, state: Path | None, target: Path, clock: Clock = time.time_ns) -> None:
        self._storage = data / STORAGE_FOLDER
        self._metadata = data / METADATA_FILE
        self._state = None if state is None else state / STATE_FILE
        self._target = target
        self._clock = clock
        self._copied: dict[str, tuple[int, int, int]] = {}
        self.attempts = 0

    def take(self) -> None:
        """Make the copy.

        Raises:
            Failure: the copy failed; the message contains the reason.
        """
        for folder in ("storage/journal", "storage/ledgers", *(["state"] if self._state else [])):
            (self._target / folder).mkdir(parents=True, exist_ok=True)
        self._copy_ledgers()
        reason: Moved | None = None
        while self.attempts < ATTEMPTS_MAX:
            self.attempts += 1
            try:
                self._copy_moment()
            except Moved as exc:
                reason = exc
                continue
            check_database(self._target / METADATA_FILE)
            return
        raise Failure(
            f"backup failed after {ATTEMPTS_MAX} attempts because the servers were too busy: {reason}; retry when there"
            " is less load, or stop the broker"
        )

    def _copy_moment(self) -> None:
        """Copy the parts that must be consistent with each other; raise Moved if they changed meanwhile."""
        target = self._target / STORAGE_FOLDER
        catalogue = self._storage / "catalogue"
        copy_file(catalogue, target / "catalogue")
        content = (target / "catalogue").read_bytes()
        read = read_catalogue(LocalDisk(), str(target))
        assert read is not None
        self._copy_ledgers()
        metadata = copy_database(self._metadata, self._target / METADATA_FILE)
        for old in (target / "journal").iterdir():
            old.unlink()
        cut = JournalCut(self._storage / "journal", read.head.start)
        cut.advance()
        if self._state is not None:
            self._copy_state(self._state, cut)
        for part in cut.parts():
            copy_part(self._storage / "journal", target / "journal", part, copy_bytes)
        if catalogue.read_bytes() != content:
            raise Moved("the catalogue changed")
        if fingerprint(self._metadata) != metadata:
            raise Moved("the metadata changed")

    def _copy_state(self, state: Path, cut: JournalCut) -> None:
        """Copy the state as of the journal's end, rereading both until they match."""
        snapshot = Snapshot(state)
        try:
            for _ in range(MOMENTS_MAX):
                snapshot.take()
                cut.advance()
                if snapshot.is_current():
                    break
            else:
                raise Moved("the state kept changing")
            copy = self._target / "state" / STATE_FILE
            copy.unlink(missing_ok=True)
            snapshot.write(copy)
        finally:
            snapshot.close()

    def _copy_ledgers(self) -> None:
        """Copy new and changed ledgers, and remove deleted ones from the copy."""
        source, target = self._storage / "ledgers", self._target / STORAGE_FOLDER / "ledgers"
        names = {path.name for path in source.iterdir() if path.name.endswith(".ledger")}
        for name in self._copied.keys() - names:
            (target / name).unlink(missing_ok=True)
            del self._copied[name]
        for name in sorted(names):
            try:
                stat = (source / name).stat()
                seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                if self._copied.get(name) == seen:
                    continue
                is_settled = self._clock() - stat.st_mtime_ns > _SETTLED_NS
                copy_file(source / name, target / name)
            except FileNotFoundError:  # deleted by a record in the journal
                (target / name).unlink(missing_ok=True)
                continue
            if is_settled:
                self._copied[name] = seen
            else:
                self._copied.pop(name, None)
