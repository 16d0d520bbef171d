"""Retry calls to the state store until it replies or the instance stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import ClosedError, StateStoreUnavailable
from ...state.access import StoreAddress, without_token
from ...state.client import TableClient
from ...state.values import Reading
from ...tasks import Backoff, Retry
from ..stopping import InstanceStopping

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
READ_TIMEOUT_S = 2.0  # per attempt
SILENCE_S = 1.0  # time without a reply after which the status reports it

_Answer = TypeVar("_Answer")


class Retries:
    """Calls a function's table on one thread; `stop` and `trouble` may be called from any thread.

    Attributes:
        url: URL of the state store, without secrets.
    """

    def __init__(
        self,
        store: StoreAddress,
        table: str,
        report: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a caller; the first call opens the connection.

        Args:
            store: address of the state store.
            table: table name (`instance.identity.table_of`).
            report: writes a log line, given level and text, when an outage starts and ends.
            clock: monotonic clock, in seconds.

        Raises:
            InvalidConfig: the URL is invalid, or does not match the settings.
        """
        store.check()
        self._store = store
        self.url = without_token(store.url)
        self.table = table
        self._client: TableClient | None = None
        self._opening = threading.Lock()
        self._report = report
        self._clock = clock
        self._stopping = threading.Event()
        self._since_s: float | None = None  # start of the current call
        self._error = ""  # error of its last attempt

    def look(self, writer: bytes, keys: Sequence[bytes]) -> Reading:
        """Read keys, waiting for the store as long as needed.

        Args:
            writer: writer whose own changes do not change the generation (`TableClient.look`).
            keys: keys to read.

        Raises:
            InstanceStopping: the instance is stopping.
            StateStoreFailed: the store cannot read its database.
            StateRefused: a key is invalid.
        """
        return self.call(lambda client: client.look(self.table, keys, writer, READ_TIMEOUT_S))

    def call(self, action: Callable[[TableClient], _Answer]) -> _Answer:
        """Call ``action``, retrying while the store is unavailable, and return the result.

        Raises:
            InstanceStopping: the instance is stopping.
        """

        def attempt() -> _Answer:
            try:
                return action(self._client or self._open())
            except ClosedError as error:
                raise InstanceStopping from error

        began_s = self._since_s = self._clock()
        retry = Retry(
            (StateStoreUnavailable,), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S),
            on_failure=lambda error: self._note(str(error)),
        )  # fmt: skip
        try:
            answer = retry.call_blocking(attempt, self._pause)
            if self._error:
                self._report(
                    "INFO", f"the state store at {self.url} is available again after {self._clock() - began_s:.1f} s"
                )
            return answer
        finally:
            self._since_s = None
            self._error = ""

    def _pause(self, pause_s: float) -> None:
        if self._stopping.wait(pause_s):
            raise InstanceStopping

    def _open(self) -> TableClient:
        with self._opening:
            if self._stopping.is_set():
                raise InstanceStopping
            self._client = TableClient(*self._store)
            return self._client

    def _note(self, error: str) -> None:
        if not self._error and not self._stopping.is_set():
            self._report("ERROR", error)
        self._error = error

    def trouble(self) -> str:
        """Return what the thread is waiting for, on one line, or an empty string."""
        since_s, error = self._since_s, self._error
        if since_s is None:
            return ""
        waited_s = self._clock() - since_s
        if error:
            return f"{error}; the function has waited for {waited_s:.0f} s and will continue; no data is lost"
        if waited_s < SILENCE_S:
            return ""
        return (
            f"the state store at {self.url} has not answered for {waited_s:.0f} s, and the function is waiting: check"
            " that it is running, and that its disk is fast enough"
        )

    def stop(self) -> None:
        """Abort the current call, and reject later ones."""
        with self._opening:
            self._stopping.set()
        if self._client is not None:
            self._client.close()
