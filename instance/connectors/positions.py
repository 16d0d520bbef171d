"""The position of a source in the state store.

It is written at most every `PAUSE_S`, and at the end. Where it cannot be written the source goes on, and `trouble` says
so: after a crash more of what it read comes again, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
import os

from ...api.connector import Position
from ...errors import MagnetarError, StateRefused, StateStoreUnavailable
from ...state.client import Put, TableClient
from ...tasks import Backoff, Retry
from ..core import InstanceCore
from ..identity import table_of

PAUSE_S = 0.25
LOAD_TIMEOUT_S = 60.0


class Positions:
    """Loads and keeps one position; on the event loop.

    Attributes:
        trouble: why it is not kept, empty if it is.
    """

    def __init__(self, core: InstanceCore) -> None:
        """Prepare; nothing is asked yet."""
        spec = core.spec
        self.trouble = ""
        self._core = core
        self._client = TableClient(spec.state_url) if spec.state_url else None
        self._table = table_of(spec.metadata)
        self._key = f"__position__/{spec.instance_id}".encode()
        self._writer = os.urandom(16)
        self._sequence = 0
        self._newest: Position = None
        self._is_new = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self) -> Position:
        """Return the position that was kept last, None if none was.

        Raises:
            StateStoreUnavailable: the state store did not answer for `LOAD_TIMEOUT_S`.
        """
        client = self._client
        if client is None:
            return None
        retry = Retry((StateStoreUnavailable,), Backoff(0.1, 2.0), LOAD_TIMEOUT_S)
        (value,) = await retry.call(lambda: asyncio.to_thread(client.read, self._table, [self._key]))
        return None if value is None else json.loads(value.data)

    def keep(self, position: Position) -> None:
        """Keep a position, soon."""
        if self._client is None:
            if not self.trouble:
                self.trouble = (
                    "the position is not kept, and the next start begins anew: this worker knows no state store; give"
                    " workers its address as stateStorageServiceUrl: bk://host:port"
                )
                self._core.log.write("WARNING", self.trouble)
            return
        self._newest = position
        self._is_new.set()

    async def run(self) -> None:
        """Write what is to be kept, over and over."""
        while True:
            await self._is_new.wait()
            await self._write()
            await asyncio.sleep(PAUSE_S)

    async def flush(self) -> None:
        """Write what is not written yet."""
        if self._is_new.is_set():
            await self._write()

    async def _write(self) -> None:
        client = self._client
        if client is None:
            return
        async with self._writing:
            self._is_new.clear()
            change = Put(self._key, json.dumps(self._newest).encode())
            self._sequence += 1
            try:
                await asyncio.to_thread(client.apply, self._table, self._writer, self._sequence, [change])
            except StateRefused:
                raise
            except MagnetarError as error:
                self.trouble = f"the position is not kept: {error}"
                self._is_new.set()
            else:
                self.trouble = ""

    async def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
