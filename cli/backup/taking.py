"""A consistent copy of broker and state store while they run.

Design: ledgers first, which is most of the bytes; they only grow at their ends. Then in one go: what is new of the
ledgers, the metadata, the state as it is at a moment, the end of the journal at that same moment, and the journal's
files up to there. If catalogue and metadata are the same after that as before, all of it belongs together, and is what
a crash of everything at that moment would have left; if not, that part is done again. The state has to be of the
journal's moment: older, it would lack what functions acknowledged; newer, it would know of outputs that the broker has
not got.

Rejected: a file of what is held back, for a broker that does not read it would be copied torn.
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
"""How often the moment is sought at which the state does not change while the journal's end is read: milliseconds."""
_SETTLED_NS = 2_000_000_000
"""A file changed longer ago than this before it was copied is told from a later one by its time."""
Clock = Callable[[], int]


class Backup:
    """Copies one data directory.

    Args:
        data: the broker's data directory.
        state: that of the state store; None if there is none.
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
            Failure: it did not come about; says why.
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
        raise Failure(f"the broker wrote too much for a copy, {ATTEMPTS_MAX} times: {reason}; try it when there is less"
                      " to do, or stop the broker")  # fmt: skip

    def _copy_moment(self) -> None:
        """Copy what must be of one moment; raises Moved if it is not."""
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
            raise Moved("there is a new catalogue")
        if fingerprint(self._metadata) != metadata:
            raise Moved("the metadata was changed")

    def _copy_state(self, state: Path, cut: JournalCut) -> None:
        """Copy the state as it is at the end of the journal, which is sought anew until both are of one moment."""
        snapshot = Snapshot(state)
        try:
            for _ in range(MOMENTS_MAX):
                snapshot.take()
                cut.advance()
                if snapshot.is_current():
                    break
            else:
                raise Moved("the state changed all the time")
            copy = self._target / "state" / STATE_FILE
            copy.unlink(missing_ok=True)
            snapshot.write(copy)
        finally:
            snapshot.close()

    def _copy_ledgers(self) -> None:
        """Copy the ledgers that are new or were changed, and remove those that are gone."""
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
            except FileNotFoundError:  # deleted by a record that stands in the journal
                (target / name).unlink(missing_ok=True)
                continue
            if is_settled:
                self._copied[name] = seen
            else:
                self._copied.pop(name, None)
