"""The thread that brings an instance's layers to the state store.

Design: one call is under way at a time; layers that come meanwhile are merged into the next, so that an instance makes
as many commits as the store's disk gives it and no more. A call has the number `sequence` of this writer, and is
repeated with it until it is answered: the store makes it once, also when an answer was lost.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from ...errors import StateRefused
from ...state.limits import WRITER_BYTES
from ...state.values import Change, Put
from ..stopping import InstanceStopping
from .layer import Layer, changes_of, merge
from .retries import Retries

CALL_ROWS_MAX = 10_000  # the state store serves others between two calls
CALL_BYTES_MAX = 4 * 1024 * 1024

Done = Callable[[BaseException | None], None]


class StateWriter:
    """Stores layers in their order; the thread is begun by the first."""

    def __init__(self, name: str, retries: Retries) -> None:
        """Prepare.

        Args:
            name: of the thread.
            retries: makes the calls; used by this thread alone.
        """
        self._name = name
        self._retries = retries
        self._writer = os.urandom(WRITER_BYTES)
        self._sequence = 0
        self._waiting: queue.SimpleQueue[tuple[Layer, Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def store(self, layer: Layer, done: Done) -> None:
        """Take a layer.

        Args:
            layer: what to store.
            done: called on the writer's thread, with None once it is stored, else with why it never will be.
        """
        self._waiting.put((layer, done))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Give up what is not stored yet, and wait for the thread's end."""
        self._retries.stop()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        following: tuple[Layer, Done] | None = None
        while True:
            first = following or self._waiting.get()
            following = None
            if first is None:
                return
            batch = [first]
            rows, size = first[0].rows, first[0].size
            while not self._waiting.empty():
                item = self._waiting.get()
                if item is None:
                    self._waiting.put(None)  # found again after this batch
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
            # One of them is at fault; the others are stored.
            for layer, done in batch:
                done(self._try([layer]))
            return
        for _, done in batch:
            done(error)

    def _try(self, layers: Sequence[Layer]) -> BaseException | None:
        """Store layers, and return why not, or None."""
        try:
            for part in _parts(changes_of(merge(layers))):
                self._apply(part)
        except (Exception, InstanceStopping) as error:  # noqa: BLE001  whatever it is, the instance must hear of it
            return error
        return None

    def _apply(self, changes: Sequence[Change]) -> None:
        self._sequence += 1
        sequence, table = self._sequence, self._retries.table
        self._retries.call(lambda client: client.apply(table, self._writer, sequence, changes))


def _parts(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Cut changes into calls; mostly there is one."""
    begin = size = 0
    for position, change in enumerate(changes):
        size += len(change.data) if isinstance(change, Put) else 0
        if position - begin >= CALL_ROWS_MAX or size > CALL_BYTES_MAX:
            yield changes[begin:position]
            begin, size = position, len(change.data) if isinstance(change, Put) else 0
    yield changes[begin:]
