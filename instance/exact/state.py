"""ExactState: session, reads and committer of one instance under EFFECTIVELY_ONCE."""

from __future__ import annotations

from collections.abc import Callable

from ..state.retries import Retries
from ..state.session import StateSession
from .committer import Committed, Committer

END_S = 2.0  # for the committer's thread, when its connection is closed already


class ExactState:
    """One instance's state.

    Attributes:
        session: what the function's context talks to.
        committer: stores its changes.
    """

    def __init__(
        self, url: str, table: str, name: str, function: str, report: Callable[[str, str], None], committed: Committed
    ) -> None:
        """Prepare; connections and thread are made when they are first needed.

        Args:
            url: of the state store.
            table: ``tenant/namespace/name``.
            name: of the instance.
            function: uuid and incarnation.
            report: takes level and text of lines for the log, from any thread.
            committed: see `Committer`.

        Raises:
            InvalidConfig: the url is none.
        """
        self._reads = Retries(url, table, report)
        self._writes = Retries(url, table, report)
        self.session = StateSession(self._reads.read)
        self.committer = Committer(f"commits of {name}", function, self._writes, self.session, committed)

    def trouble(self) -> str:
        """Return why the instance waits for the store, empty if it does not."""
        return self._writes.trouble() or self._reads.trouble()

    def stop_function(self) -> None:
        """Let the function wait for nothing any more; what it changed is still committed."""
        self.session.stop()
        self._reads.stop()

    def close(self) -> None:
        """Give up what is not committed; waits for the committer's thread, so not for an event loop."""
        self.stop_function()
        self.committer.close(END_S)
