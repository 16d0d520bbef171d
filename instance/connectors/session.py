"""A connector between its opening and its closing, with what goes wrong in between.

A call that finds the other system away is made again until it succeeds or the instance is to stop: after a pause that
grows, and with the connector closed and opened anew, so that a connector may leave reconnecting to this. Meanwhile
`trouble` says what is wrong.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from ...api.connector import Connector, ConnectorContext, Retry
from ...tasks import Backoff
from ..stopping import InstanceStopping

AWAY = (Retry, OSError, TimeoutError)
"""What a connector raises when the other system is away; a full disk is an OSError too."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0


class ConnectorSession:
    """One connector, called from one thread.

    Attributes:
        trouble: why the last call is made again, empty if it is not (from any thread).
        retries: how often calls were made again.
        is_open: whether the connector is.
    """

    def __init__(self, connector: Connector, config: Any, context: ConnectorContext, logger: logging.Logger) -> None:
        """Prepare; nothing is opened yet."""
        self.trouble = ""
        self.retries = 0
        self._connector = connector
        self._config = config
        self._context = context
        self._log = logger
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_open = False
        self._was_opened = False

    def request_stop(self) -> None:
        """Make no call again (from any thread)."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the instance is to stop."""
        return self._stopping.is_set()

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than until the instance is to stop."""
        self._stopping.wait(seconds)

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the connector, plain or asynchronous, until it succeeds.

        Raises:
            InstanceStopping: the instance is to stop before that.
            Exception: whatever else the connector raises.
        """
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        for tries in count(1):
            try:
                if not self.is_open:
                    self._was_opened = True
                    self._run(self._connector.open, self._config, self._context)
                    self.is_open = True
                result = self._run(method, *arguments)
            except AWAY as error:
                self._wait(error, tries, backoff.next_s())
            else:
                if self.trouble:
                    self._log.info("goes on after %d retries", self.retries)
                    self.trouble = ""
                return result
        raise AssertionError("the count has no end")

    def _wait(self, error: Exception, tries: int, pause_s: float) -> None:
        cause = str(error) or type(error).__name__
        if not isinstance(error, Retry):
            cause = f"{type(error).__name__}: {cause}"
        elif error.after_s:
            pause_s = max(pause_s, error.after_s)
        if not self.trouble:
            self._log.warning("retrying: %s", cause)
        self.trouble = f"retrying ({tries} {'try' if tries == 1 else 'tries'}): {cause}"
        self.retries += 1
        self._close()
        if self._stopping.wait(pause_s):
            raise InstanceStopping

    def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        result = method(*arguments)
        if not inspect.isawaitable(result):
            return result
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_awaited(result))

    def _close(self) -> None:
        if not self._was_opened:
            return
        self.is_open = self._was_opened = False
        try:
            self._run(self._connector.close)
        except Exception as error:  # noqa: BLE001  whatever a connector raises; it is given up anyway
            self._log.warning("closing failed: %s: %s", type(error).__name__, error)

    def close(self) -> None:
        """Close the connector for good."""
        self._close()
        if self._loop is not None:
            self._loop.close()


async def _awaited(result: Any) -> Any:
    return await result
