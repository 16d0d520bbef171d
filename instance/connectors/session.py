"""Open, call and close a connector, with error handling.

If the other system is unavailable, a call is repeated until it succeeds or the instance stops. Before each retry the
connector is closed, and reopened after a growing pause, so that connectors need no reconnection logic. Meanwhile
`trouble` describes the error. It also reports a call that has not returned for `SILENCE_S`.

Asynchronous methods run on an event loop of the connector's thread. The loop also runs while the connector is idle, for
background work such as replies to pings and reading ahead.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from ...api.connector import Connector, ConnectorContext, EndOfInput, Retry
from ...errors import MagnetarError
from ...tasks import Backoff
from ..acks.dead_letters import text_of
from ..stats import format_error
from ..stopping import InstanceStopping

AWAY = (Retry, OSError, TimeoutError)
"""Exceptions that mean the other system is unavailable; a full disk is an OSError, too."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
SILENCE_S = 20.0
"""Duration after which the status reports a running call."""
LOOK_S = 0.2
"""Interval between checks whether a pause is still needed."""
CLOSE_S = 2.0
"""Time for cancelled background work to finish."""
_TURN_S = 0.01


class Unwanted(Exception):
    """A retry was given up because `ConnectorSession.is_wanted` returned false; the connector continues."""


class OpenFailed(MagnetarError):
    """Opening the connector failed with an error other than unavailability; the instance ends."""


class ConnectorSession:
    """A connector that is called from one thread.

    Attributes:
        retries: number of retries so far.
        is_open: whether the connector is open.
        is_wanted: returns whether to retry the current call; checked during pauses.
        opening: number of times that the connector was opened; values from earlier openings are stale.
        before_open: called before each opening.
    """

    def __init__(self, connector: Connector, config: Any, context: ConnectorContext, logger: logging.Logger) -> None:
        """Create the session without opening the connector."""
        self.retries = 0
        self.is_open = False
        self.is_wanted: Callable[[], bool] = lambda: True
        self._trouble = ""
        self._connector = connector
        self._config = config
        self._context = context
        self._log = logger
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.opening = 0
        self.before_open: Callable[[], None] = lambda: None
        self._was_opened = False
        self._at_hand: tuple[str, float] | None = None  # the current method, and its start time
        self._tries = 0  # attempts since the last successful call

    @property
    def trouble(self) -> str:
        """Why the last call is retried, or which call does not return, or an empty string (from any thread)."""
        at_hand = self._at_hand
        if at_hand is not None and (silent_s := time.monotonic() - at_hand[1]) > SILENCE_S:
            return self._trouble or f"{at_hand[0]} of the connector has not returned for {silent_s:.0f} s"
        return self._trouble

    def request_stop(self) -> None:
        """Stop retrying (from any thread)."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the instance is stopping."""
        return self._stopping.is_set()

    def wait(self, seconds: float) -> None:
        """Wait for some time, or until the instance is stopping."""
        self._stopping.wait(seconds)

    def pause(self, seconds: float) -> None:
        """Pause before a retry.

        Raises:
            InstanceStopping: the instance is stopping.
            Unwanted: `is_wanted` returned false.
        """
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.wait(min(left_s, LOOK_S)):
                raise InstanceStopping
            if not self.is_wanted():
                raise Unwanted

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the connector, synchronous or asynchronous, until it succeeds.

        Raises:
            InstanceStopping: the instance is stopping.
            Unwanted: `is_wanted` returned false.
            OpenFailed: the connector cannot be opened.
            Exception: any other error of the method.
        """
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        for tries in count(1):
            try:
                if not self.is_open:
                    self._was_opened = True
                    self.opening += 1
                    self.before_open()
                    self._open()
                result = self.run(method, *arguments)
            except AWAY as error:
                after_s = error.after_s if isinstance(error, Retry) else 0.0
                self._failed(error, tries)
                self.pause(max(after_s, backoff.next_s()))
            else:
                self._succeeded()
                return result
        raise AssertionError("unreachable")

    def _open(self) -> None:
        try:
            self.run(self._connector.open, self._config, self._context)
        except (*AWAY, EndOfInput, InstanceStopping):
            raise
        except Exception as error:
            raise OpenFailed(_why(error)) from error
        self.is_open = True

    def call_once(self, method: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the connector once, without retries; opening the connector is retried.

        Raises:
            Retry, OSError, TimeoutError: raised by the method; the connector is closed.
            Exception: any other error of the method, or of opening the connector.
        """
        trouble, tries = self._trouble, self._tries
        if not self.is_open:
            self.call(lambda: None)
            self._trouble, self._tries = trouble, tries
        try:
            self.run(method, *arguments)
        except AWAY as error:
            self._tries += 1
            self._failed(error, self._tries)
            raise
        self._tries = 0
        self._succeeded()

    def idle(self, method: Callable[[], Any]) -> None:
        """Call a periodic method, with the retries and errors of `call`."""
        self.call(method)
        if self._loop is not None:
            self._loop.run_until_complete(asyncio.sleep(_TURN_S))

    def call_back(self, opening: int, method: Callable[[], Any]) -> None:
        """Call a callback once, unless the connector has been closed since the opening that created it.

        Raises:
            InstanceStopping: the instance is stopping.
            Exception: any error of the connector other than unavailability.
        """
        if not self.is_open or opening != self.opening:
            return
        try:
            self.run(method)
        except AWAY as error:
            self.lost(error)

    def reopen(self) -> None:
        """Close the connector; the next call reopens it."""
        self._close()

    def lost(self, error: Exception) -> None:
        """Close the connector because the other system is unavailable; the next call reopens it.

        Raises:
            InstanceStopping: the instance is stopping.
        """
        self._failed(error, 1)
        self.pause(FIRST_PAUSE_S)

    def _succeeded(self) -> None:
        if self._trouble:
            self._log.info("recovered after %d retries", self.retries)
            self._trouble = ""

    def _failed(self, error: Exception, tries: int) -> None:
        cause = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, Retry):
            cause = f"{type(error).__name__}: {cause}"
        if not self._trouble:
            self._log.warning("call failed, retrying: %s", cause)
        self._trouble = f"retrying ({tries} {'attempt' if tries == 1 else 'attempts'}): {cause}"
        self.retries += 1
        self._close()

    def run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a synchronous or asynchronous method once. Calls may be nested."""
        before, self._at_hand = self._at_hand, (getattr(method, "__name__", "a method"), time.monotonic())
        try:
            result = method(*arguments)
            if not inspect.isawaitable(result):
                return result
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
            return self._loop.run_until_complete(_awaited(result))
        finally:
            self._at_hand = before

    def _close(self) -> None:
        if not self._was_opened:
            return
        self.is_open = self._was_opened = False
        try:
            self.run(self._connector.close)
        except Exception as error:  # noqa: BLE001  the connector is discarded anyway
            self._log.warning("cannot close the connector: %s: %s", type(error).__name__, error)

    def close(self) -> None:
        """Close the connector permanently, and end its background work on the event loop."""
        self._close()
        if self._loop is not None:
            loop, self._loop = self._loop, None
            if tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


def _why(error: Exception) -> str:
    said = f"open failed: {text_of(error)}; it is retried at each start"
    return said if isinstance(error, MagnetarError) else f"{said}\n{format_error(error)}"


async def _awaited(result: Any) -> Any:
    return await result
