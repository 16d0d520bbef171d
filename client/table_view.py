"""A topic as a table with the latest value of each key, kept up to date.

Design: one reader per partition reads the compacted topic from the start; the view is ready once it has read all
messages published before it was created. A message with no value or an empty one removes its key, as in Pulsar's
clients; messages without a key are ignored. With a schema, values are decoded on arrival; messages that cannot be
decoded are logged and ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, ItemsView, Iterator, KeysView, ValuesView
from functools import partial
from typing import Any

from ..errors import ClosedError, MagnetarError
from ..tasks import TaskSet
from .consumers.reader import Reader
from .consumers.received import Message
from .receiving import Closing
from .typed.consumer import TypedReader

log = logging.getLogger(__name__)

OnChange = Callable[[str, Any], object]
"""Called with a key and its value, or None if the key was removed."""


class TableView(Closing):
    """The latest value of each key; created by `AsyncClient.create_table_view` and used on its event loop.

    Attributes:
        topic: full name.
    """

    def __init__(
        self,
        topic: str,
        find_parts: Callable[[], Awaitable[list[str]]],
        open_reader: Callable[[str], Awaitable[Reader | TypedReader[Any]]],
        partition_update_s: float,
    ):
        """Create an empty view; `open` reads the topic.

        Args:
            topic: full name.
            find_parts: returns the names of the topic's partitions, or the topic's own name.
            open_reader: opens a reader of one of these, starting at the first message.
            partition_update_s: interval for discovering new partitions; 0 disables it.
        """
        self.topic = topic
        self._find_parts = find_parts
        self._open_reader = open_reader
        self._partition_update_s = partition_update_s
        self._values: dict[str, Any] = {}
        self._readers: dict[str, Reader | TypedReader[Any]] = {}
        self._on_change: list[OnChange] = []
        self._tasks = TaskSet(f"table view of {topic}")
        self._error: MagnetarError | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"TableView(topic={self.topic!r}, keys={len(self._values)})"

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        """Return the value of a key (bytes, or decoded by the view's schema), or None.

        Raises:
            ClosedError: the view is closed.
            MagnetarError: the topic can no longer be read, so the table would be stale.
        """
        return self._now().get(key)

    def __getitem__(self, key: str) -> Any:
        return self._now()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._now()

    def __len__(self) -> int:
        return len(self._now())

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot())

    def keys(self) -> KeysView[str]:
        """Return the current keys; raises the same errors as `get`."""
        return self.snapshot().keys()

    def values(self) -> ValuesView[Any]:
        """Return the current values; raises the same errors as `get`."""
        return self.snapshot().values()

    def items(self) -> ItemsView[str, Any]:
        """Return the current keys and values; raises the same errors as `get`."""
        return self.snapshot().items()

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the table; raises the same errors as `get`."""
        return dict(self._now())

    def _now(self) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClosedError(f"the table view of {self.topic} is closed")
        return self._values

    def for_each(self, callback: OnChange) -> None:
        """Call a function with each key and its value."""
        for key, value in self.snapshot().items():
            callback(key, value)

    def for_each_and_listen(self, callback: OnChange) -> None:
        """Call a function with each key and its value, and then with each change, in order."""
        self.for_each(callback)
        self._on_change.append(callback)

    async def refresh(self) -> None:
        """Wait until the table contains everything published before this call.

        Cancellation: safe.
        """
        self._now()
        for reader in list(self._readers.values()):
            while await reader.has_message_available():
                self._now()
                # Yield to the reader's task, which applies the messages.
                await asyncio.sleep(0)
        self._now()

    # -- following ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read existing messages, then keep reading (called by the client).

        Cancellation: the view is closed.
        """
        try:
            await self._follow(await self._find_parts())
        except BaseException:
            await self.close()
            raise
        if self._partition_update_s:
            self._tasks.keep(self._update, "look for partitions", longest_pause_s=self._partition_update_s)

    async def _follow(self, parts: list[str]) -> None:
        """Read the existing messages of partitions, then keep reading them."""
        readers = await asyncio.gather(*map(self._open_reader, parts))
        self._readers.update(zip(parts, readers, strict=True))
        await asyncio.gather(*map(self._read_all, readers))
        for reader in readers:
            self._tasks.start(self._go_on(reader), f"read {reader.topic}", partial(self._failed, reader.topic))

    async def _read_all(self, reader: Reader | TypedReader[Any]) -> None:
        while await reader.has_message_available():
            self._take(await reader.read_next())

    async def _go_on(self, reader: Reader | TypedReader[Any]) -> None:
        while True:
            self._take(await reader.read_next())

    async def _update(self) -> None:
        while True:
            await asyncio.sleep(self._partition_update_s)
            try:
                new = [part for part in await self._find_parts() if part not in self._readers]
                # A topic that becomes partitioned retains its own messages, so they remain part of the table.
                if new:
                    await self._follow(new)
            except MagnetarError as error:
                log.warning("%s: cannot check for new partitions: %s", self.topic, error)

    def _failed(self, topic: str, failure: BaseException) -> None:
        if not self._is_closed:
            log.error("%s: cannot keep the table view up to date: %s", topic, failure)
            self._error = failure if isinstance(failure, MagnetarError) else MagnetarError(f"{topic}: {failure!r}")

    def _take(self, message: Message) -> None:
        key = message.key
        if key is None:
            return
        try:
            value = message.value if message.data else None
        except MagnetarError as error:
            log.error("%s: ignored message %s in the table view: %s", self.topic, message.message_id, error)
            return
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        for callback in self._on_change:
            try:
                callback(key, value)
            except Exception:
                log.exception("%s: table view listener raised", self.topic)

    async def close(self) -> None:
        """Stop reading; a second call does nothing.

        Cancellation: the view is closed nevertheless.
        """
        if self._is_closed:
            return
        self._is_closed = True
        await self._tasks.close()
        await asyncio.gather(*(reader.close() for reader in self._readers.values()), return_exceptions=True)
