"""A worker's access to the state tables of functions: reads and changes single keys, copies and removes tables.

The client of the table service is blocking, so its calls run in a small thread pool. gRPC is imported on the first
call, so that workers whose functions have no state do not load it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ...errors import (
    FencedByPosition,
    MagnetarError,
    RequestRefused,
    StateRefused,
    StateStoreFailed,
    StateStoreUnavailable,
)
from ...security.credentials.client_security import ClientSecurity
from ...state.access import TableKey, with_token
from ...tasks import TaskSet

if TYPE_CHECKING:
    from ...state.client import TableClient, Value

NO_STATE_STORE = "State storage client is not done initializing. Please try again in a little while."
_THREADS = 4
_TIMEOUT_S = 5.0
_COPY_TIMEOUT_S = 20.0
"""Timeout in seconds for copying a state; a larger copy continues, and the next call waits for the rest."""
_DROP_DELAYS_S = (0.0, 1.0, 5.0, 20.0)
_STATUS = {StateRefused: 400, FencedByPosition: 409, StateStoreUnavailable: 503, StateStoreFailed: 500}
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class StateTables:
    """Tables of the state store, if a store is configured."""

    def __init__(self, url: str, key: TableKey | None = None, security: ClientSecurity | None = None) -> None:
        """Create the access without connecting, which the first request does.

        Args:
            url: URL of the state store, ``bk://host:port`` or ``bk+ssl://…``; empty without a state store.
            key: key that signs a token for all tables; None if the state store requires no token.
            security: trusted CAs and client certificate for TLS.
        """
        self._security = security
        self._url = with_token(url, key.full_token()) if url and key is not None else url
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="state")
        self._client: TableClient | None = None
        self._drops = TaskSet("state tables")

    @property
    def is_configured(self) -> bool:
        """Whether a state store is configured."""
        return bool(self._url)

    def check_configured(self) -> None:
        """Check that a state store is configured.

        Raises:
            RequestRefused: 503, no state store is configured.
        """
        if not self._url:
            raise RequestRefused(
                503, f"{NO_STATE_STORE} This worker has no state store; set stateStorageServiceUrl (bk://host:4181)"
            )

    async def get(self, table: str, key: bytes) -> Value | None:
        """Return the value of a key, or None if the key is missing.

        Raises:
            RequestRefused: 503, no state store is configured or it did not answer; 500, the store cannot read; 400, the
                key is too long.
        """
        return (await self._call(lambda client: client.read(table, [key], _TIMEOUT_S)))[0]

    async def put(self, table: str, key: bytes, data: bytes) -> int:
        """Set a key unconditionally and return its new version.

        Cancellation: the key may be set.

        Raises:
            RequestRefused: 503, no state store is configured, or it did not answer and the key may or may not be set;
                500, the store cannot write; 400, the key or value is too long; 409, the state is being restored.
        """
        return await self._call(lambda client: client.put(table, key, data, timeout_s=_TIMEOUT_S))

    async def kept(self, table: str) -> list[int]:
        """Return the versions with a saved state, newest first.

        Raises:
            RequestRefused: 503, no state store is configured or it did not answer.
        """
        return await self._call(lambda client: client.kept(table, _TIMEOUT_S))

    async def keep(self, table: str, version: int) -> None:
        """Save a copy of the state under a version number. Cancellation: the copy may have been made.

        Raises:
            RequestRefused: no state store is configured, it did not answer, or its disk is full or failed; retry.
        """
        await self._call(lambda client: client.keep(table, version, _COPY_TIMEOUT_S))

    async def restore(self, table: str, version: int, epoch: int) -> bool:
        """Restore the saved state of a version, and return whether there was one.

        Cancellation: the state may have been restored.

        Raises:
            RequestRefused: same as `keep`.
        """
        return await self._call(lambda client: client.restore(table, version, epoch, _COPY_TIMEOUT_S))

    def drop(self, table: str) -> None:
        """Remove a table in the background once the state store answers.

        After several failed attempts the table remains, which only wastes space, because a new function with the same
        name gets a new table.
        """
        if self._url:
            self._drops.start(self._drop(table), f"drop {table}")

    async def _drop(self, table: str) -> None:
        for delay_s in _DROP_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                await self._call(lambda client: client.drop(table))
            except MagnetarError as error:
                reason = error
            else:
                return
        _log.warning("cannot delete state table %s of a deleted function: %s", table, reason)

    async def _call(self, call: Callable[[TableClient], _T]) -> _T:
        self.check_configured()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(self._connected()))
        except (StateRefused, FencedByPosition, StateStoreUnavailable, StateStoreFailed) as error:
            raise RequestRefused(_STATUS[type(error)], str(error)) from error

    def _connected(self) -> TableClient:
        from ...state.client import TableClient

        if self._client is None:
            self._client = TableClient(self._url, self._security)
        return self._client

    async def close(self) -> None:
        """Cancel pending operations and disconnect. Cancellation: safe."""
        await self._drops.close()
        if self._client is not None:
            self._client.close()
        self._threads.shutdown(wait=False)
