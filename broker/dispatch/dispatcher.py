"""The base class of all dispatchers: scheduling, error handling, and rate limits."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from ...errors import MagnetarError, ProtocolError
from ...tasks import Backoff
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.payload import open_payload
from ...wire.position import Position
from .delivery_memory import SHORT_READ_BYTES
from .ports import ConsumerPort, Delivery, SubscriptionPort

if TYPE_CHECKING:
    from ...tasks import TaskSet
    from ..config import BrokerConfig
    from ..storage.compacted_view import CompactedReading
    from ..storage.entry import StoredEntry
    from ..storage.port import Log


log = logging.getLogger(__name__)

RETRY_DELAY_S = 1.0
"""Initial delay before a failed load is retried; it doubles with each consecutive failure."""
LONGEST_RETRY_DELAY_S = 60.0

_position = itemgetter(0)


class EntryReader:
    """Reads a log, or its compacted view, for one subscription."""

    def __init__(
        self,
        source: Log | CompactedReading,
        tasks: TaskSet,
        on_loaded: Callable[[], None],
    ):
        self._source = source
        self._tasks = tasks
        self._on_loaded = on_loaded
        self._task: asyncio.Task[None] | None = None
        self._loaded: list[StoredEntry] = []
        self._loaded_from: Position | None = None
        self._backoff: Backoff | None = None  # while loads fail

    def use(self, source: Log | CompactedReading) -> None:
        """Read from another source from now on."""
        self.forget()
        self._source = source

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from ``start`` on, or an empty list while they are being loaded or do not exist yet.

        When loading has finished, ``on_loaded`` is called, and the same read then returns the loaded entries.
        """
        if self._task is not None:
            return []
        if self._loaded_from is not None:
            if self._loaded_from <= start:
                first = bisect_left(self._loaded, start, key=_position)
                if first < len(self._loaded):
                    return self._loaded[first : first + max_entries]
            self.forget()
        entries = self._source.read(start, max_entries, max_bytes)
        if entries is None:
            self._task = self._tasks.start(self._load(start, max_entries, max_bytes), f"reading {self._source.name}")
            return []
        return entries

    async def _load(self, start: Position, max_entries: int, max_bytes: int) -> None:
        try:
            loaded = await self._source.load(start, max_entries, max_bytes)
            self._backoff = None
        except Exception as error:
            self._backoff = self._backoff or Backoff(RETRY_DELAY_S, LONGEST_RETRY_DELAY_S)
            delay_s = self._backoff.next_s()
            log.error(
                "cannot read %s from %s:%s, retrying in %s s: %s", self._source.name, *start, delay_s, error,
                exc_info=None if isinstance(error, MagnetarError) else error,
            )  # fmt: skip
            await asyncio.sleep(delay_s)
            loaded = []
        self._task = None
        self._loaded = loaded
        self._loaded_from = start
        self._on_loaded()

    def forget(self) -> None:
        """Drop loaded entries and cancel a running load."""
        self._loaded = []
        self._loaded_from = None
        if self._task is not None:
            self._task.cancel()
            self._task = None


C = TypeVar("C", bound=ConsumerPort)

READS_PER_TURN = 8
"""Maximum number of consecutive reads by a subscription before it yields to the event loop."""


class Dispatcher(ABC, Generic[C]):
    """Dispatches the entries of a subscription to its consumers.

    Attributes:
        kind: subscription type (SubType).
        active: consumer that receives all entries, for Exclusive and Failover; otherwise None.
    """

    def __init__(self, subscription: SubscriptionPort, kind: int, log: Log, config: BrokerConfig, tasks: TaskSet):
        self.kind = kind
        self.active: C | None = None
        self._subscription = subscription
        self._log = log
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._reader = EntryReader(log, tasks, self.run)
        self._is_scheduled = False
        self._throttle: asyncio.TimerHandle | None = None
        self._memory = subscription.memory
        self._waits_for_memory = False
        self._next = Position(-1, -1)

    @property
    def read_position(self) -> Position:
        """Position of the next new entry to read."""
        return self._next

    def wake(self) -> None:
        """Run in the next iteration of the event loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def follow_policies(self) -> None:
        """Apply the current policies of the topic."""
        self.wake()

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()

    def run(self) -> None:
        """Dispatch available entries as permits allow, up to a limit per loop iteration."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - isolates subscriptions: others continue, and consumers do not wait forever
            self._subscription.fail(error)

    @property
    def _is_limited(self) -> bool:
        """Whether `_room` must be called before a read."""
        return self._memory.is_short or bool(self._subscription.dispatch_limits)

    def _room(self, entries: int) -> tuple[int, int]:
        """Return the maximum number of entries and bytes to read now; schedule the next run if it is 0.

        A batch counts as its number of messages, so a read may exceed the rate, and then the next read waits longer.
        While memory is short, reads are small, and subscriptions with large messages wait.

        Args:
            entries: maximum number of entries according to the permits.
        """
        bytes_ = self._config.max_read_bytes
        if self._memory.is_short:
            bytes_ = min(bytes_, SHORT_READ_BYTES)
            if self._log.total_bytes > self._log.entry_count * SHORT_READ_BYTES:
                self._wait_for_memory()
                return 0, 0
        for limit in self._subscription.dispatch_limits:
            wait_s = limit.wait_s()
            if wait_s > 0:
                if self._throttle is None:
                    self._throttle = self._loop.call_later(wait_s, self._end_throttle)
                    self._subscription.note_throttled(limit)
                return 0, 0
            most, most_bytes = limit.room()
            entries, bytes_ = min(entries, most), min(bytes_, most_bytes)
        return entries, bytes_

    def _wait_for_memory(self) -> None:
        """Drop entries read ahead, and resume once enough memory is available."""
        self._reader.forget()
        if not self._waits_for_memory:
            self._waits_for_memory = True
            self._memory.wait(self._end_wait_for_memory)

    def _end_wait_for_memory(self) -> None:
        self._waits_for_memory = False
        self.run()

    def _end_throttle(self) -> None:
        self._throttle = None
        self.run()

    def _charge(self, deliveries: list[Delivery], messages: int) -> None:
        """Count dispatched entries towards the rate limits."""
        if self._subscription.dispatch_limits:
            bytes_ = sum(len(entry.payload) for entry, _, _ in deliveries)
            for limit in self._subscription.dispatch_limits:
                limit.take(messages, bytes_)

    def close(self) -> None:
        """Stop reading."""
        self._reader.forget()
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None

    @abstractmethod
    def _run(self) -> None:
        """Dispatch available entries; if this raises, the consumers are closed."""


def limit_message_count(entry: StoredEntry, max_message_bytes: int) -> StoredEntry:
    """Return an entry with its number of messages limited to a plausible value.

    A client returns one permit for each message of an entry, but only one permit for a batch that it cannot parse. So a
    batch that declares more messages than its bytes can contain is charged as one message. Otherwise, its consumer
    would permanently lose permits.

    This parses the entry, so call it only for entries that are too small for their number of messages or exceed the
    permits.

    Source: Pulsar binary protocol, section FLOW permits.

    Args:
        entry: the entry as stored.
        max_message_bytes: maximum uncompressed size of a batch that clients accept.
    """
    try:
        metadata, body = open_payload(entry.payload)
    except ProtocolError:
        return entry._replace(messages=1)
    size = len(entry.payload) - body
    if metadata.compression and metadata.uncompressed_size <= max_message_bytes:
        size = metadata.uncompressed_size
    messages = min(entry.messages, metadata.num_messages_in_batch)
    return entry._replace(messages=messages if 0 < messages * MIN_MESSAGE_BYTES <= size else 1)
