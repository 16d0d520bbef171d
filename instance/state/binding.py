"""What an instance has of the state store under every guarantee: a session, two connections, and a thread that writes.

The function's thread uses the session, the event loop everything else. There are two connections, so that stopping ends
a read at once while what was changed still gets its time to be stored.
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

END_S = 2.0  # for the thread that writes, when its connection is closed already

_Item = TypeVar("_Item")


class WritingThread(ABC, Generic[_Item]):
    """Brings what is put into its queue to the store; the thread is begun by the first item."""

    def __init__(self, name: str, retries: Retries) -> None:
        """Prepare.

        Args:
            name: of the thread.
            retries: makes the calls; used by this thread alone.
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
        """Take items until None comes."""

    def close(self, timeout_s: float) -> None:
        """Give up what is not stored yet, and wait for the thread's end."""
        self._retries.stop()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)


class StateBinding:
    """One instance's state.

    Attributes:
        session: what the function's context talks to.
    """

    _writer: WritingThread[Any]

    def __init__(self, store: StoreAddress, table: str, report: Callable[[str, str], None]) -> None:
        """Prepare; connections and thread are made when they are first needed.

        Args:
            store: address of the state store.
            table: its name, see `instance.identity.table_of`.
            report: takes level and text of log lines, from any thread.

        Raises:
            InvalidConfig: the URL is invalid, or does not match the settings.
        """
        self._reads = Retries(store, table, report)
        self._writes = Retries(store, table, report)
        self._writer_id = os.urandom(WRITER_BYTES)
        self.session = StateSession(partial(self._reads.look, self._writer_id))

    def trouble(self) -> str:
        """Return why the instance waits for the store, empty if it does not."""
        return self._writes.trouble() or self._reads.trouble()

    def stop_function(self) -> None:
        """Let the function wait for nothing any more; what it changed is still stored."""
        self.session.stop()
        self._reads.stop()

    def close(self) -> None:
        """Give up what is not stored; waits for the thread that writes, so not for an event loop."""
        self.stop_function()
        self._writer.close(END_S)
