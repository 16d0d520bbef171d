"""Commit results to the state store: position, changes and outputs of an input partition in one step.

Design: one commit is in flight at a time, and results that wait meanwhile are merged into the next commit of their
partition. The order matters: a function's reads include uncommitted changes, so a result may depend on changes of an
earlier result, even of another partition, and must not be committed before it. Uncommitted increments are never read
(the session waits for their commit), so results without writes may be overtaken, but only by others without writes: a
write replaces increments, so an earlier increment must not follow it.

A commit expects the position that this instance committed last. If the store has another position, another instance has
taken over; this one is then fenced and must stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import FencedByPosition, MagnetarError, StateRefused
from ...state.access import StoreAddress
from ...state.values import Opened, OutboxEntry
from ...wire.position import Position
from ..state.binding import StateBinding, WritingThread
from ..state.layer import changes_of, merge
from ..state.retries import Retries
from ..state.session import StateSession
from ..stopping import InstanceStopping
from .work import Result

COMMIT_ROWS_MAX = 10_000  # changes and output entries; other functions wait during a commit
COMMIT_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class Ledger:
    """The commits of one input partition during one activation.

    Attributes:
        partition: full name of the partition.
        position: last committed position; used by the committer.
        published: position up to which outputs are published; used by the event loop.
        cleared: last published position reported to the store; used by the committer.
    """

    partition: str
    position: Position | None = None
    published: Position | None = None
    cleared: Position | None = None


Opening = Callable[[Opened | BaseException], None]
Committed = Callable[[Sequence[Result], BaseException | None], None]


@dataclass(slots=True)
class _Job:
    """One job: open a partition, commit a result, or delete published outputs from the outbox."""

    ledger: Ledger
    result: Result | None = None
    opening: Opening | None = None

    @property
    def writes(self) -> bool:
        """Whether later results may depend on this job."""
        return self.result is not None and self.result.changes is not None and bool(self.result.changes.values)

    @property
    def amount(self) -> tuple[int, int]:
        """Number of rows and bytes to write."""
        if self.result is None:
            return 0, 0
        changes, rows, size = self.result.changes, len(self.result.rows), self.result.size
        return (rows, size) if changes is None else (rows + changes.rows, size + changes.size)


class Committer(WritingThread[_Job]):
    """Commits results in order, on its own thread."""

    def __init__(
        self,
        name: str,
        function: str,
        retries: Retries,
        session: StateSession,
        writer: bytes,
        committed: Committed,
    ) -> None:
        """Create a committer; the first job starts its thread.

        Args:
            name: thread name.
            function: the function's incarnation (`incarnation_of`).
            retries: calls the state store; used only by this thread.
            session: session that forgets committed changes.
            writer: writer id of the session (`TableClient.commit`).
            committed: called on this thread after each commit, with the error if it failed permanently.
        """
        super().__init__(name, retries)
        self._function = function
        self._session = session
        self._writer = writer
        self._committed = committed
        self._waiting: deque[_Job] = deque()

    def open(self, ledger: Ledger, opening: Opening) -> None:
        """Load the last commit of a partition; ``opening`` is called on the committer's thread."""
        self._put(_Job(ledger, opening=opening))

    def commit(self, ledger: Ledger, result: Result) -> None:
        """Commit a result."""
        self._put(_Job(ledger, result))

    def clear(self, ledger: Ledger) -> None:
        """Make the store delete published outputs without waiting for the next commit."""
        self._put(_Job(ledger))

    def _run(self) -> None:
        while True:
            while not self._waiting or not self._queue.empty():
                job = self._queue.get()
                if job is None:
                    return
                self._waiting.append(job)
            first = self._waiting.popleft()
            try:
                if first.opening is not None:
                    self._open(first.ledger, first.opening)
                elif not self._commit([first, *self._take_mergeable(first)]):
                    return  # later results must not be committed after a failure
            except InstanceStopping:
                return  # uncommitted results are reprocessed
            except Exception as error:  # noqa: BLE001  the last handler of this thread
                self._committed((), error)
                return

    def _take_mergeable(self, first: _Job) -> list[_Job]:
        """Remove and return the queued jobs that can be committed together with the first one."""
        taken: list[_Job] = []
        kept: deque[_Job] = deque()
        rows, size = first.amount
        while self._waiting:
            job = self._waiting.popleft()
            more_rows, more_bytes = job.amount
            fits = rows + more_rows <= COMMIT_ROWS_MAX and size + more_bytes <= COMMIT_BYTES_MAX
            if job.ledger is first.ledger and job.opening is None and fits and not (job.writes and kept):
                taken.append(job)
                rows += more_rows
                size += more_bytes
                continue
            kept.append(job)
            if job.writes or job.ledger is first.ledger:
                break
        kept.extend(self._waiting)
        self._waiting = kept
        return taken

    def _open(self, ledger: Ledger, opening: Opening) -> None:
        table = self._retries.table
        try:
            opened = self._retries.call(lambda client: client.open(table, self._function, ledger.partition))
        except MagnetarError as error:
            opening(error)
            return
        ledger.position = opened.position
        opening(opened)

    def _commit(self, jobs: Sequence[_Job]) -> bool:
        """Commit jobs of one partition; return False if one failed permanently."""
        ledger = jobs[0].ledger
        results = [job.result for job in jobs if job.result is not None]
        error = self._try(ledger, results)
        if isinstance(error, StateRefused) and len(results) > 1:
            # Find the result that was refused; those before it are committed.
            for result in results:
                error = self._try(ledger, [result])
                self._committed([result], error)
                if error is not None:
                    return False
            return True
        if results or error is not None:
            self._committed(results, error)
        return error is None

    def _try(self, ledger: Ledger, results: Sequence[Result]) -> BaseException | None:
        """Commit results; return the error, or None."""
        layers = [result.changes for result in results if result.changes is not None]
        changes = changes_of(merge(layers)) if layers else []
        rows: list[OutboxEntry] = [row for result in results for row in result.rows]
        published = ledger.published
        expected = ledger.position
        new = results[-1].position if results else expected
        if new is None or (not results and published == ledger.cleared):
            return None
        table, partition = self._retries.table, ledger.partition
        try:
            self._retries.call(
                lambda client: client.commit(
                    table, self._function, partition, expected, new, changes, rows, published, writer=self._writer
                )
            )
        except FencedByPosition as error:
            return error if results else None  # without results, nothing is lost
        except MagnetarError as error:
            return error
        ledger.position = new
        ledger.cleared = published
        for layer in layers:
            self._session.forget(layer)
        return None


class ExactState(StateBinding):
    """One instance's state with EFFECTIVELY_ONCE.

    Attributes:
        committer: stores state changes together with positions and outputs.
    """

    def __init__(
        self,
        store: StoreAddress,
        table: str,
        name: str,
        function: str,
        report: Callable[[str, str], None],
        committed: Committed,
    ) -> None:
        """Create the state of the instance ``name``, with the arguments of `StateBinding` and `Committer`."""
        super().__init__(store, table, report)
        self.committer = Committer(
            f"commits of {name}", function, self._writes, self.session, self._writer_id, committed
        )
        self._writer = self.committer
