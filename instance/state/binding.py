"""StateLink: session, reads and writer of one instance under the other guarantees.

The function's thread uses `session` and `enter`, the event loop everything else. There are two connections, so that
stopping ends a read at once while what was changed still gets its time to be stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import StateRefused
from ..gate import Gate
from .layer import Layer
from .retries import Retries
from .session import StateSession
from .writer import StateWriter

ROWS_MAX = 100_000  # of changes that are not stored yet
BYTES_MAX = 64 * 1024 * 1024
END_S = 2.0  # for the writer's thread, when its connection is closed already


class StateLink:
    """One instance's state.

    Attributes:
        session: what the function's context talks to.
    """

    def __init__(self, url: str, table: str, name: str, report: Callable[[str, str], None]) -> None:
        """Prepare; connections and thread are made when they are first needed.

        Args:
            url: of the state store.
            table: its name, see `instance.identity.table_of`.
            name: of the instance.
            report: takes level and text of lines for the log, from any thread.

        Raises:
            InvalidConfig: the url is none.
        """
        self._reads = Retries(url, table, report)
        self._writes = Retries(url, table, report)
        self._writer = StateWriter(f"state of {name}", self._writes)
        self._gate = Gate(ROWS_MAX, BYTES_MAX)
        self.session = StateSession(self._reads.read)

    def take(self, *, ends_unit: bool) -> tuple[Layer | None, bool]:
        """Return the fresh changes, waiting while too many are under way; with False if the instance is stopping."""
        layer = self.session.take(ends_unit=ends_unit)
        if layer is None or self._gate.enter(layer.rows, layer.size):
            return layer, True
        return None, False

    def store(self, layer: Layer, done: Callable[[BaseException | None], None]) -> None:
        """Bring a layer to the store; ``done`` is called on a thread of ours, with the error if it failed for good."""

        def finish(error: BaseException | None) -> None:
            self.session.forget(layer)
            self._gate.leave(layer.rows, layer.size)
            if isinstance(error, StateRefused) and error.key is not None:
                self.session.suspect(error.key)
            done(error)

        self._writer.store(layer, finish)

    def trouble(self) -> str:
        """Return why the instance waits for the store, empty if it does not."""
        return self._writes.trouble() or self._reads.trouble()

    def stop_function(self) -> None:
        """Let the function wait for nothing any more; what it changed is still stored."""
        self.session.stop()
        self._reads.stop()
        self._gate.close()

    def close(self) -> None:
        """Give up what is not stored; waits for the writer's thread, so not for an event loop."""
        self.stop_function()
        self._writer.close(END_S)
