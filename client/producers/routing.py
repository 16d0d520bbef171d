"""Routing of messages to partitions.

The partition of a message with a key is determined by the key's hash, which preserves the order per key; routers choose
the partition of other messages.

Source: Pulsar binary protocol, section Routing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ...errors import InvalidConfig
from ...wire.hashing import boost_hash, java_string_hash, murmur3_32
from ..config import Hashing, ProducerConfig
from ..outgoing_message import OutgoingMessage
from .outgoing import OutgoingEntry

_HASHES: dict[Hashing, Callable[[str], int]] = {
    "JavaStringHash": java_string_hash,
    "Murmur3_32Hash": lambda key: murmur3_32(key.encode()),
    "BoostHash": lambda key: boost_hash(key.encode()),
}


def key_partition(key: str, partitions: int, hashing: Hashing) -> int:
    """Return the partition of a key."""
    return _HASHES[hashing](key) % partitions


class RoundRobin:
    """Round-robin routing that stays on a partition for the duration of a batch, so that batches are not fragmented."""

    def __init__(self, config: ProducerConfig, rng: Random):
        self._config = config
        self._current = rng.randrange(1 << 30)
        self._messages = 0
        self._bytes = 0
        self._since_s = 0.0

    def choose(self, message: OutgoingMessage, partitions: int, now_s: float) -> int:
        """Return the partition of a message."""
        config = self._config
        if message.key is not None:
            return key_partition(message.key, partitions, config.hashing)
        size = len(message.payload)
        is_over = self._messages > 0 and (
            not config.batching
            or self._messages >= config.batch_max_messages
            or self._bytes + size > config.batch_max_bytes
            or now_s - self._since_s >= config.batch_max_delay_ms / 1000
        )
        if is_over:
            self._current += 1
            self._messages = self._bytes = 0
        if not self._messages:
            self._since_s = now_s
        self._messages += 1
        self._bytes += size
        return self._current % partitions

    def choose_entry(self, entry: OutgoingEntry, partitions: int) -> int:
        """Return the partition of a whole entry, which is always the next one, because an entry is already a batch."""
        if entry.key is not None:
            return key_partition(entry.key, partitions, self._config.hashing)
        self._current += 1
        self._messages = self._bytes = 0
        return self._current % partitions


class SinglePartition:
    """A single partition, chosen at random when the producer is created."""

    def __init__(self, config: ProducerConfig, rng: Random):
        self._hashing: Hashing = config.hashing
        self._chosen = rng.randrange(1 << 30)

    def choose(self, message: OutgoingMessage, partitions: int, now_s: float) -> int:
        """Return the partition of a message."""
        if message.key is not None:
            return key_partition(message.key, partitions, self._hashing)
        return self._chosen % partitions

    def choose_entry(self, entry: OutgoingEntry, partitions: int) -> int:
        """Return the partition of a whole entry."""
        if entry.key is not None:
            return key_partition(entry.key, partitions, self._hashing)
        return self._chosen % partitions


class CustomRouting:
    """Routing by an application function, for messages with and without a key."""

    def __init__(self, function: Callable[[OutgoingMessage, int], int]):
        self._function = function

    def choose(self, message: OutgoingMessage, partitions: int, now_s: float) -> int:
        """Return the partition of a message.

        Raises:
            InvalidConfig: the function did not return a valid partition index.
        """
        index = self._function(message, partitions)
        if not isinstance(index, int) or not 0 <= index < partitions:
            raise InvalidConfig(
                f"the routing function returned {index!r}; expected an index from 0 to {partitions - 1}"
            )
        return index

    def choose_entry(self, entry: OutgoingEntry, partitions: int) -> int:
        """Return the partition of a whole entry; the function receives a message with the entry's key and body."""
        message = OutgoingMessage(entry.body, entry.key, sequence_id=entry.sequence_id)
        return self.choose(message, partitions, 0.0)


def make_router(config: ProducerConfig, rng: Random) -> RoundRobin | SinglePartition | CustomRouting:
    """Return the router of a producer's settings."""
    if callable(config.routing):
        return CustomRouting(config.routing)
    return RoundRobin(config, rng) if config.routing == "RoundRobin" else SinglePartition(config, rng)
