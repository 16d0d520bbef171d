"""The servers that connectors are tested against, one at a time."""

from __future__ import annotations

from typing import Any

from tests.connectors.cases.base import Case


class Targets:
    """The server of the cases that run now; one at a time, as they are large."""

    def __init__(self) -> None:
        self._kind: type[Any] | None = None
        self._running: Any = None
        self._server: Any = None

    def get(self, case: type[Case]) -> Any:
        """Return a started server for a case, None if it needs none."""
        if case.server is None:
            return None
        if case.server is not self._kind:
            self.close()
            self._running = case.server.running()
            self._server = self._running.__enter__()
            self._kind = case.server
        return self._server

    def close(self) -> None:
        """Stop it."""
        running, self._running, self._kind = self._running, None, None
        if running is not None:
            running.__exit__(None, None, None)
