"""The thread that callbacks of `context.publish` run on: user code, which must not run on an event loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial

from .publish_request import PublishRequest, Result

_STOP = object()


class Callbacks:
    """Calls back in order; the thread is begun by the first request that has a callback."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        """Prepare.

        Args:
            on_error: told what a callback raised, on the callbacks' thread.
        """
        self._on_error = on_error
        self._waiting: queue.SimpleQueue[object] | None = None

    def call(self, request: PublishRequest, result: Result) -> None:
        """Have a request's callback called, if it has one."""
        if request.callback is None:
            return
        if self._waiting is None:
            self._waiting = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(self._waiting,), name="callbacks", daemon=True).start()
        self._waiting.put(partial(request.callback, result, request.message))

    def _run(self, waiting: queue.SimpleQueue[object]) -> None:
        while (callback := waiting.get()) is not _STOP:
            assert callable(callback)
            try:
                callback()
            except BaseException as error:  # noqa: BLE001  user code, sys.exit() too: later callbacks are called all the same
                self._on_error(error)

    def close(self) -> None:
        """End the thread after what is due."""
        if self._waiting is not None:
            self._waiting.put(_STOP)
