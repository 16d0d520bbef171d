"""An instance's access to the state store: a session, two connections, and a writing thread.

The function's thread uses the session, the event loop everything else. There are two connections, so that a stop ends a
read immediately while changes still have time to be stored.
"""

from __future__ import annotations

import os
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ...state.access import StoreAddress
from ...state.limits import WRITER_BYTES
from .retries import Retries
from .session import StateSession

END_S = 2.0  # time for the writing thread to end after its connection was closed

_Item = TypeVar("_Item")


class WritingThread(ABC, Generic[_Item]):
    """Sends queued items to the state store on a thread, which the first item starts."""

    def __init__(self, name: str, retries: Retries) -> None:
        """Create a writer without starting the thread.

        Args:
            name: thread name.
            retries: calls the state store; used only by this thread.
        """
        self._name = name
        self._retries = retries
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def _put(self, item: _Item) -> None:
        self._queue.put(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Process queued items until None is received."""

    def close(self, timeout_s: float) -> None:
        """Abandon unstored items, and wait for the thread to end."""
        self._retries.stop()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)


class StateBinding:
    """Base of an instance's state.

    Attributes:
        session: session for the function's context.
    """

    _writer: WritingThread[Any]

    def __init__(self, store: StoreAddress, table: str, report: Callable[[str, str], None]) -> None:
        """Create the binding; connections and thread are created on first use.

        Args:
            store: address of the state store.
            table: table name (`instance.identity.table_of`).
            report: writes a log line, given level and text; called on any thread.

        Raises:
            InvalidConfig: the URL is invalid, or does not match the settings.
        """
        self._reads = Retries(store, table, report)
        self._writes = Retries(store, table, report)
        self._writer_id = os.urandom(WRITER_BYTES)
        self.session = StateSession(partial(self._reads.look, self._writer_id))

    def trouble(self) -> str:
        """Return why the instance is waiting for the store, or an empty string."""
        return self._writes.trouble() or self._reads.trouble()

    def stop_function(self) -> None:
        """End the function's waits; its changes are still stored."""
        self.session.stop()
        self._reads.stop()

    def close(self) -> None:
        """Abandon unstored changes; blocks until the writing thread ends, so do not call it on an event loop."""
        self.stop_function()
        self._writer.close(END_S)
