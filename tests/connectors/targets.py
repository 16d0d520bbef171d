"""Servers for connector tests, one at a time."""

from __future__ import annotations

from typing import Any

from tests.connectors.cases.base import Case


class Targets:
    """Runs the server of the current cases; one at a time, because they are large."""

    def __init__(self) -> None:
        self._kind: type[Any] | None = None
        self._running: Any = None
        self._server: Any = None

    def get(self, case: type[Case]) -> Any:
        """Return a running server for a case, or None if it needs none."""
        if case.server is None:
            return None
        if case.server is not self._kind:
            self.close()
            self._running = case.server.running()
            self._server = self._running.__enter__()
            self._kind = case.server
        return self._server

    def close(self) -> None:
        """Stop the server."""
        running, self._running, self._kind = self._running, None, None
        if running is not None:
            running.__exit__(None, None, None)
