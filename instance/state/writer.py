"""Send an instance's layers to the state store.

Design: one call is in flight at a time; layers that arrive meanwhile are merged into the next call, so that an instance
makes only as many commits as the store's disk allows. A call has a `sequence` number of this writer, with which it is
retried until it succeeds: the store executes it once, even if a reply was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import StateRefused
from ...state.access import StoreAddress
from ...state.values import Change, Put
from ..gate import Gate, runs_within
from ..stopping import InstanceStopping
from .binding import StateBinding, WritingThread
from .layer import Layer, changes_of, merge
from .retries import Retries

CALL_ROWS_MAX = 10_000  # between two calls, the state store serves other clients
CALL_BYTES_MAX = 4 * 1024 * 1024
ROWS_MAX = 100_000  # limit of unstored changes
BYTES_MAX = 64 * 1024 * 1024

Done = Callable[[BaseException | None], None]


class StateWriter(WritingThread[tuple[Layer, Done]]):
    """Stores layers in order, on its own thread."""

    def __init__(self, name: str, retries: Retries, writer: bytes) -> None:
        """Create a writer, with the arguments of `WritingThread` and the ``writer`` of `TableClient.apply`."""
        super().__init__(name, retries)
        self._writer = writer
        self._sequence = 0

    def store(self, layer: Layer, done: Done) -> None:
        """Queue a layer.

        Args:
            layer: layer to store.
            done: called on the writer's thread with None when the layer is stored, or with a permanent error.
        """
        self._put((layer, done))

    def _run(self) -> None:
        following: tuple[Layer, Done] | None = None
        while True:
            first = following or self._queue.get()
            following = None
            if first is None:
                return
            batch = [first]
            rows, size = first[0].rows, first[0].size
            while not self._queue.empty():
                item = self._queue.get()
                if item is None:
                    self._queue.put(None)  # seen again after this batch
                    break
                rows += item[0].rows
                size += item[0].size
                if rows > CALL_ROWS_MAX or size > CALL_BYTES_MAX:
                    following = item
                    break
                batch.append(item)
            self._store(batch)

    def _store(self, batch: Sequence[tuple[Layer, Done]]) -> None:
        error = self._try([layer for layer, _ in batch])
        if isinstance(error, StateRefused) and len(batch) > 1:
            # Find the layer that was refused; the others are stored.
            for layer, done in batch:
                done(self._try([layer]))
            return
        for _, done in batch:
            done(error)

    def _try(self, layers: Sequence[Layer]) -> BaseException | None:
        """Store layers in one batch, and return the error, or None."""
        try:
            changes = changes_of(merge(layers))
            sizes = [len(change.data) if isinstance(change, Put) else 0 for change in changes]
            for part in runs_within(sizes, CALL_ROWS_MAX, CALL_BYTES_MAX):
                self._apply(changes[part])
        except (Exception, InstanceStopping) as error:  # noqa: BLE001  any error must be reported to the instance
            return error
        return None

    def _apply(self, changes: Sequence[Change]) -> None:
        self._sequence += 1
        sequence, table = self._sequence, self._retries.table
        self._retries.call(lambda client: client.apply(table, self._writer, sequence, changes))


class StateLink(StateBinding):
    """One instance's state with all guarantees except effectively once."""

    _writer: StateWriter

    def __init__(self, store: StoreAddress, table: str, name: str, report: Callable[[str, str], None]) -> None:
        """Create the state of the instance ``name``, with the arguments of `StateBinding`."""
        super().__init__(store, table, report)
        self._writer = StateWriter(f"state of {name}", self._writes, self._writer_id)
        self._gate = Gate(ROWS_MAX, BYTES_MAX)

    def take(self, *, ends_unit: bool) -> tuple[Layer | None, bool]:
        """Take the new changes, waiting while too many are in flight; return False if the instance is stopping."""
        layer = self.session.take(ends_unit=ends_unit)
        if layer is None or self._gate.enter(layer.rows, layer.size):
            return layer, True
        return None, False

    def store(self, layer: Layer, done: Callable[[BaseException | None], None]) -> None:
        """Send a layer to the store; ``done`` is called on the writer's thread with None or a permanent error."""

        def finish(error: BaseException | None) -> None:
            self.session.forget(layer, is_stored=error is None)
            self._gate.leave(layer.rows, layer.size)
            if isinstance(error, StateRefused) and error.key is not None:
                self.session.suspect(error.key)
            done(error)

        self._writer.store(layer, finish)

    def stop_function(self) -> None:
        """End the function's waits; its changes are still stored."""
        super().stop_function()
        self._gate.close()
