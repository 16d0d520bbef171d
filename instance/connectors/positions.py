"""The position of a source in the state store.

It is written at most every `PAUSE_S`, and at the end. Where it cannot be written the source goes on, and `trouble` says
so: after a crash more of what it read comes again, and nothing is lost.

Each write names the version that it builds on. Where the stored one is another, a later instance of this number was
faster, and this one stops: a position that moves back would have the records between read again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ...api.connector import Position
from ...errors import BadVersion, FencedByPosition, MagnetarError, StateRefused, StateStoreUnavailable
from ...state.client import TableClient
from ...tasks import Backoff, Retry
from ..core import InstanceCore
from ..identity import table_of

PAUSE_S = 0.25
_ATTEMPTS = 3
LOAD_TIMEOUT_S = 60.0
_NOBODY = (
    "the position is not kept, and the next start begins anew: no state store is known; give workers its address as"
    " stateStorageServiceUrl: bk://host:port, and localrun as --state-storage-service-url"
)


class Kept(NamedTuple):
    """Where a source stands.

    Attributes:
        text: its position as JSON.
        records: how many records it had read up to there since it was created.
        partitions: of the output at that time; 0 at the beginning.
    """

    text: str = "null"
    records: int = 0
    partitions: int = 0

    @property
    def position(self) -> Position:
        """The position."""
        return json.loads(self.text)


class Positions:
    """Loads and keeps one position; on the event loop.

    Attributes:
        trouble: why it is not kept, empty if it is.
        is_kept: whether there is a state store.
    """

    def __init__(self, core: InstanceCore) -> None:
        """Prepare; nothing is asked yet."""
        spec = core.spec
        self.trouble = ""
        self.is_kept = bool(spec.state_url)
        self._core = core
        self._client = TableClient(*spec.state_store) if spec.state_url else None
        self._table = table_of(spec.metadata)
        self._key = f"__position__/{spec.instance_id}".encode()
        self._writer = os.urandom(8).hex()
        self._version = 0
        self._newest: Kept | None = None
        self._then: list[Callable[[], None]] = []
        self._is_new = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self) -> Kept:
        """Return the position that was kept last, that of the beginning if none was.

        Raises:
            StateStoreUnavailable: the state store did not answer for `LOAD_TIMEOUT_S`.
        """
        if self._client is None:
            return Kept()
        retry = Retry((StateStoreUnavailable,), Backoff(0.1, 2.0), LOAD_TIMEOUT_S)
        stored = await retry.call(self._read)
        return (
            Kept()
            if stored is None
            else Kept(json.dumps(stored["position"], separators=(",", ":")), stored["records"], stored["partitions"])
        )

    async def _read(self) -> Any:
        """Return what is stored, None if nothing is, and take its version for the one to build on."""
        assert self._client is not None
        (value,) = await asyncio.to_thread(self._client.read, self._table, [self._key])
        self._version = 0 if value is None else value.version
        return None if value is None else json.loads(value.data)

    def keep(self, kept: Kept, then: Callable[[], None]) -> None:
        """Keep a position, soon.

        Args:
            kept: the position.
            then: called on the event loop once it is kept, or a later one; at once without a state store.
        """
        if self._client is None:
            if not self.trouble and kept.text != "null":
                self.trouble = _NOBODY
                self._core.log.write("WARNING", self.trouble)
            then()
            return
        self._newest = kept
        self._then.append(then)
        self._is_new.set()

    async def run(self) -> None:
        """Write what is to be kept, over and over.

        Raises:
            FencedByPosition: a later instance has kept one.
            StateRefused: the position is too large.
        """
        while True:
            await self._is_new.wait()
            await self._write()
            await asyncio.sleep(PAUSE_S)

    async def flush(self) -> None:
        """Write what is not written yet, and wait for what is being written."""
        await self._write()

    async def _write(self) -> None:
        async with self._writing:
            newest = self._newest
            if newest is None or not self._is_new.is_set():
                return
            self._is_new.clear()
            then, self._then = self._then, []
            text, records, partitions = newest
            values = f'"writer":"{self._writer}","records":{records},"partitions":{partitions},"position":{text}'
            data = f"{{{values}}}".encode()
            try:
                self._version = await self._put(data)
            except (StateRefused, FencedByPosition):
                raise
            except asyncio.CancelledError:
                self._is_new.set()  # nobody knows whether it is kept
                raise
            except MagnetarError as error:
                self.trouble = f"the position is not kept: {error}"
                self._then = then + self._then
                self._is_new.set()
            else:
                self.trouble = ""
                for call in then:
                    call()

    async def _put(self, data: bytes) -> int:
        """Write what is to be stored, and return its version."""
        assert self._client is not None
        for _ in range(_ATTEMPTS):
            try:
                return await asyncio.to_thread(self._client.put, self._table, self._key, data, self._version)
            except BadVersion:
                stored = await self._read()
                if stored is not None and stored["writer"] != self._writer:
                    raise FencedByPosition(
                        f"a later instance of {self._core.spec.key} has kept its position, and this one must stop"
                    ) from None
                # The answer to an earlier write was lost, or the state store begins anew.
        raise StateStoreUnavailable(f"the version of the position changed {_ATTEMPTS} times")

    async def close(self) -> None:
        """Let go of the connection, and say so if the last position is not kept."""
        if self._is_new.is_set():
            self._core.log.write(
                "WARNING",
                "the last position is not kept, as the state store did not take it in time: the next start goes on from"
                " an earlier one, and reads again what came since",
            )
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
