"""Load and save a source's position in the state store.

It is written at most every `PAUSE_S`, and at the end. If writing fails, the source continues and `trouble` reports the
error: after a crash more records are read again, but none are lost.

Each write names the version that it is based on. If the stored version differs, a newer instance with the same number
has written, and this instance stops: moving the position back would make records be read again.

Positions of a source that divides them (`Source.divide`) belong to an epoch, which ends when the parallelism changes.
The first instance with the new parallelism rewrites all positions of the previous epoch, so that earlier instances can
no longer save positions, and stores the new epoch. Each new instance then takes its part of them. A position not saved
in an epoch is still that instance's part of the previous epoch.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...api.connector import Position
from ...errors import BadVersion, FencedByPosition, MagnetarError, StateRefused, StateStoreUnavailable
from ...state.client import TableClient, Value
from ...tasks import Backoff, Retry
from ..core import InstanceCore
from ..identity import table_of

PAUSE_S = 0.25
_ATTEMPTS = 3
_EPOCHS = b"__positions__"
"""Key of the epochs: the parallelism of each, and the function version that started the last one."""
LOAD_TIMEOUT_S = 60.0
_NOBODY = (
    "no state store is configured: the position is not saved, and the source starts over at each start. Set"
    " stateStorageServiceUrl: bk://host:port in the worker's configuration, or --state-storage-service-url of localrun"
)


Divide: TypeAlias = Callable[[Sequence[Position], int, int], Position]
"""Signature of `Source.divide`."""


class Kept(NamedTuple):
    """A saved position of a source.

    Attributes:
        text: position as JSON.
        records: number of records read up to the position since the source was created.
        partitions: number of output partitions at that time; 0 at the start.
    """

    text: str = "null"
    records: int = 0
    partitions: int = 0

    @property
    def position(self) -> Position:
        """The parsed position."""
        return json.loads(self.text)


class Positions:
    """Loads and saves the position of one instance, on the event loop.

    Attributes:
        trouble: why the position is not saved, or an empty string.
        is_kept: whether there is a state store.
    """

    def __init__(self, core: InstanceCore) -> None:
        """Create the positions of an instance without sending a request."""
        spec = core.spec
        self.trouble = ""
        self.is_kept = bool(spec.state_url)
        self._core = core
        self._client = TableClient(*spec.state_store) if spec.state_url else None
        self._table = table_of(spec.metadata)
        self._version_deployed = spec.metadata.version
        self._number, self._count = spec.instance_id, spec.details.parallelism
        self._key = _key(0, self._number)
        self._writer = os.urandom(8).hex()
        self._version = 0
        self._newest: Kept | None = None
        self._then: list[Callable[[], None]] = []
        self._is_new = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self, divide: Divide | None = None) -> Kept:
        """Return the last saved position, or the start.

        Args:
            divide: the source's `divide` method; None if positions belong to instance numbers.

        Raises:
            StateStoreUnavailable: the state store did not answer for `LOAD_TIMEOUT_S`.
            FencedByPosition: an instance of a newer version with another parallelism has started.
        """
        if self._client is None:
            return Kept()
        retry = Retry((StateStoreUnavailable,), Backoff(0.1, 2.0), LOAD_TIMEOUT_S)
        if divide is None:
            return await retry.call(self._load_own) or Kept()
        return await retry.call(lambda: self._load_divided(divide))

    async def _load_own(self) -> Kept | None:
        stored = await self._read()
        if stored is None or "position" not in stored:
            return None
        return Kept(_json(stored["position"]), stored["records"], stored["partitions"])

    async def _read(self) -> Any:
        """Return the stored value or None, and record its version for the next write."""
        (value,) = await self._values([self._key])
        self._version = _version_of(value)
        return None if value is None else json.loads(value.data)

    async def _values(self, keys: list[bytes]) -> list[Value | None]:
        assert self._client is not None
        return await asyncio.to_thread(self._client.read, self._table, keys)

    # -- epochs ---------------------------------------------------------------------------------------------------

    async def _load_divided(self, divide: Divide) -> Kept:
        counts = await self._enter()
        epoch = len(counts) - 1
        self._key = _key(epoch, self._number)
        kept = await self._load_own()
        if kept is None and epoch:
            kept = Kept(_json(await self._part(divide, counts, self._number)))
        return kept or Kept()

    async def _enter(self) -> list[int]:
        """Return the parallelism of each epoch, of which the last is this instance's."""
        for _ in range(_ATTEMPTS + self._count):
            (value,) = await self._values([_EPOCHS])
            stored: Any = {"counts": [], "version": 0} if value is None else json.loads(value.data)
            counts: list[int] = stored["counts"]
            if counts and counts[-1] == self._count:
                return counts
            if stored["version"] > self._version_deployed:
                raise FencedByPosition(
                    f"a newer version of {self._core.spec.key} with {counts[-1]} instances has started: this instance"
                    " must stop"
                )
            if counts:
                await self._fence(len(counts) - 1, counts[-1])
            data = _json({"version": self._version_deployed, "counts": [*counts, self._count]}).encode()
            try:
                await self._store(_EPOCHS, data, _version_of(value))
            except BadVersion:
                continue  # another new instance was first
            return [*counts, self._count]
        raise StateStoreUnavailable(
            f"the position epochs were changed by other instances {_ATTEMPTS + self._count} times"
        )

    async def _fence(self, epoch: int, count: int) -> None:
        """Rewrite the positions of an epoch, so that its instances fail when they next save one."""
        for key in (_key(epoch, number) for number in range(count)):
            while True:
                (value,) = await self._values([key])
                stored = {} if value is None else json.loads(value.data)
                try:
                    await self._store(key, _json(stored | {"writer": self._writer}).encode(), _version_of(value))
                except BadVersion:
                    continue
                break

    async def _part(self, divide: Divide, counts: Sequence[int], number: int) -> Position:
        """Return the start position of an instance in the last of several epochs, in which it has saved none.

        Reads earlier epochs from the latest one back to one whose instances have all saved their positions.
        """
        *before, count = counts
        epochs: list[list[Any]] = []  # stored values, latest epoch first
        for epoch in reversed(range(len(before))):
            values = await self._values([_key(epoch, one) for one in range(before[epoch])])
            epochs.append([{} if value is None else json.loads(value.data) for value in values])
            if all("position" in stored for stored in epochs[-1]):
                break
        positions: list[Position] = []
        for stored_ones in reversed(epochs):
            earlier, positions = positions, []
            for one, stored in enumerate(stored_ones):
                if "position" in stored:
                    positions.append(stored["position"])
                elif earlier:
                    positions.append(await asyncio.to_thread(divide, earlier, one, len(stored_ones)))
                else:
                    positions.append(None)
        return await asyncio.to_thread(divide, positions, number, count)

    # -- saving ---------------------------------------------------------------------------------------------------

    def keep(self, kept: Kept, then: Callable[[], None]) -> None:
        """Save a position soon.

        Args:
            kept: the position.
            then: called on the event loop once this or a later position is saved; immediately without a store.
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
        """Write new positions until cancelled.

        Raises:
            FencedByPosition: a newer instance has saved its position.
            StateRefused: the position is too large.
        """
        while True:
            await self._is_new.wait()
            await self._write()
            await asyncio.sleep(PAUSE_S)

    async def flush(self) -> None:
        """Write the pending position, and wait for the one being written."""
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
                self._is_new.set()  # it is unknown whether the position was saved
                raise
            except MagnetarError as error:
                self.trouble = f"cannot save the position: {error}"
                self._then = then + self._then
                self._is_new.set()
            else:
                self.trouble = ""
                for call in then:
                    call()

    async def _put(self, data: bytes) -> int:
        """Write the value, and return its new version."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._store(self._key, data, self._version)
            except BadVersion:
                stored = await self._read()
                if stored is not None and stored["writer"] != self._writer:
                    raise FencedByPosition(
                        f"a newer instance of {self._core.spec.key} has saved its position: this one must stop"
                    ) from None
                # The reply to an earlier write was lost, or the state store was reset.
        raise StateStoreUnavailable(f"the version of the saved position changed {_ATTEMPTS} times")

    async def _store(self, key: bytes, data: bytes, version: int) -> int:
        assert self._client is not None
        return await asyncio.to_thread(self._client.put, self._table, key, data, version)

    async def close(self) -> None:
        """Close the connection, and log a warning if the last position was not saved."""
        if self._is_new.is_set():
            self._core.log.write(
                "WARNING",
                "cannot save the last position: the state store timed out; the next start continues from an earlier"
                " position and rereads the records after it",
            )
        if self._client is not None:
            await asyncio.to_thread(self._client.close)


def _key(epoch: int, number: int) -> bytes:
    """Return the key of a position."""
    return f"__position__/{epoch}/{number}".encode() if epoch else f"__position__/{number}".encode()


def _version_of(value: Value | None) -> int:
    return 0 if value is None else value.version


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
