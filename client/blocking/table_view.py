"""The blocking client's table view."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

from ..listener_threads import ListenerThreads
from ..table_view import OnChange
from ..table_view import TableView as AsyncTableView
from .loop_thread import LoopThread


class TableView:
    """The latest value of each key of a topic; created by `Client.create_table_view`."""

    def __init__(self, thread: LoopThread, inner: AsyncTableView, listeners: ListenerThreads):
        self._thread = thread
        self._inner = inner
        self._listeners = listeners

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return self._inner.topic

    def get(self, key: str) -> Any:
        """Return the value of a key, or None; raises the same errors as the asyncio `TableView.get`."""
        return self._inner.get(key)

    def __getitem__(self, key: str) -> Any:
        return self._inner[key]

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the table."""
        return self._inner.snapshot()

    def for_each(self, callback: OnChange) -> None:
        """Call a function with each key and its value, on this thread."""
        for key, value in self._inner.snapshot().items():
            callback(key, value)

    def for_each_and_listen(self, callback: OnChange) -> None:
        """Call a function with each key and its value, then with each change, on a listener thread.

        Returns after the calls for existing keys.
        """
        lane = self._listeners.lane()
        handled = threading.Event()
        listen = self._inner.for_each_and_listen
        self._thread.run(lambda: listen(lambda key, value: lane.submit(partial(callback, key, value))))
        lane.submit(handled.set)
        handled.wait()

    def refresh(self) -> None:
        """Wait until the table contains everything published before this call."""
        self._thread.call(self._inner.refresh())

    def close(self) -> None:
        """Stop reading."""
        self._thread.call(self._inner.close())
