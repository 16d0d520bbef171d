"""Sequence ids of a topic's producers: deduplication rules, without I/O.

Design: each producer name has two numbers: ``pushed`` is the highest accepted id, and ``stored`` is the highest id on
disk. Ids above ``pushed`` are new, and ids up to ``stored`` are duplicates. All others are in flight: it is unknown
whether they will be stored, so the client must retry. Once no entry of a name is in flight, accepted entries that have
not been stored have failed, and ``pushed`` is reset to ``stored``.

Names of disconnected producers are retained for some time, so that the producers can reconnect and resend unconfirmed
entries. Names with a connected producer or with entries in flight are always retained.

Source: Pulsar binary protocol, section Deduplication.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum

from google.protobuf.message import DecodeError

from ...errors import ProtocolError
from ...wire.message_id import signed_64
from ...wire.payload import open_payload
from ...wire.pulsar_api_pb2 import CommandSend, MessageMetadata

log = logging.getLogger(__name__)

NEVER = -(1 << 63) - 1
"""A number lower than any sequence id."""


class Verdict(Enum):
    """Classification of an entry by its sequence ids."""

    NEW = "not seen before: recorded as in flight"
    REPEATED = "already stored"
    UNDECIDED = "in flight: may still be stored or fail"


class Sequence:
    """The sequence ids of a producer name.

    Attributes:
        name: producer name.
        pushed: highest accepted id, or `NEVER`.
        stored: highest id on disk, or `NEVER`.
        under_way: number of accepted entries that are in flight.
        is_connected: whether a producer with this name is connected.
    """

    __slots__ = ("is_connected", "name", "pushed", "settled", "stored", "under_way")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pushed = NEVER
        self.stored = NEVER
        self.under_way = 0
        self.is_connected = False
        self.settled: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"Sequence({self.name!r}, pushed={self.pushed}, stored={self.stored}, under_way={self.under_way})"

    @property
    def last(self) -> int:
        """Highest accepted id, or -1; sent to new producers with this name."""
        return self.pushed if self.pushed != NEVER else -1

    def judge(self, first: int, last: int) -> Verdict:
        """Classify an entry with these ids; the first id determines the result for the whole entry."""
        # Compare with `pushed`, not `stored`: of two in-flight entries with the same id, only the first is new.
        if first > self.pushed:
            self.pushed = last
            self.under_way += 1
            return Verdict.NEW
        return Verdict.REPEATED if first <= self.stored else Verdict.UNDECIDED

    def ended(self, last: int, *, is_stored: bool) -> None:
        """Record the outcome of a new entry."""
        if is_stored and last > self.stored:
            self.stored = last
        self.under_way -= 1
        # Not earlier, because ids above `stored` may still be stored while an entry is in flight.
        if not self.under_way:
            self.pushed = self.stored
            if self.settled:
                due, self.settled = self.settled, []
                for tell in due:
                    tell()

    def raise_to(self, last: int) -> None:
        """Record an id that is already stored."""
        self.stored = max(self.stored, last)
        self.pushed = max(self.pushed, last)


class Sequences:
    """The sequence ids of all producer names of a topic.

    Attributes:
        by_name: sequence ids by producer name.
        max_names: maximum number of names without a connected producer; the longest inactive names are dropped first.
        inactive_ms: time for which a name is retained after its producer has disconnected.
    """

    def __init__(self, max_names: int, inactive_ms: int) -> None:
        self.by_name: dict[str, Sequence] = {}
        self.max_names = max_names
        self.inactive_ms = inactive_ms
        self._inactive: dict[str, int] = {}  # name -> time of disconnection, longest inactive first
        self._changed: set[str] = set()
        self._forgotten: set[str] = set()
        self._has_warned = False

    def __repr__(self) -> str:
        return f"Sequences({len(self.by_name)} names, {len(self._inactive)} without producer)"

    @property
    def has_changes(self) -> bool:
        """Whether there are changes since the last `take_changes`."""
        return bool(self._changed or self._forgotten)

    def restore(self, numbers: Mapping[str, int], now_ms: int) -> None:
        """Restore the ids in a snapshot."""
        for name, last in numbers.items():
            self._named(name, now_ms).raise_to(last)

    def replay(self, payload: bytes, now_ms: int) -> None:
        """Record the ids of a stored entry."""
        try:
            metadata, _ = open_payload(payload)
        except (ProtocolError, DecodeError) as error:
            log.warning("deduplication skipped an entry with unreadable metadata: %s", error)
            return
        if is_counted(metadata):
            first, last = ids_of(metadata)
            self._named(metadata.producer_name, now_ms).raise_to(max(first, last))
            self._changed.add(metadata.producer_name)
            self._forgotten.discard(metadata.producer_name)

    def connect(self, name: str) -> Sequence:
        """Mark a producer name as connected, and return its ids."""
        sequence = self.by_name.get(name)
        if sequence is None:
            sequence = self.by_name[name] = Sequence(name)
        sequence.is_connected = True
        self._inactive.pop(name, None)
        return sequence

    def disconnect(self, name: str, now_ms: int) -> None:
        """Mark a producer name as disconnected."""
        sequence = self.by_name.get(name)
        if sequence is None or not sequence.is_connected:
            return
        sequence.is_connected = False
        if sequence.pushed == NEVER:
            del self.by_name[name]
            return
        self._inactive[name] = now_ms
        self._make_room()

    def ended(self, sequence: Sequence, last: int, *, is_stored: bool) -> None:
        """Record the outcome of a new entry."""
        sequence.ended(last, is_stored=is_stored)
        if is_stored:
            self._changed.add(sequence.name)
            self._forgotten.discard(sequence.name)

    def purge(self, now_ms: int) -> None:
        """Drop names whose producers have been disconnected for too long."""
        for name, since_ms in list(self._inactive.items()):
            if now_ms - since_ms < self.inactive_ms:
                return
            if not self.by_name[name].under_way:
                self._forget(name)

    def take_changes(self) -> tuple[dict[str, int], list[str]]:
        """Return the changes since the last call: names with their highest stored id, and dropped names."""
        numbers = {name: self.by_name[name].stored for name in self._changed}
        forgotten = list(self._forgotten)
        self._changed.clear()
        self._forgotten.clear()
        return numbers, forgotten

    def _named(self, name: str, now_ms: int) -> Sequence:
        sequence = self.by_name.get(name)
        if sequence is None:
            sequence = self.by_name[name] = Sequence(name)
            self._inactive[name] = now_ms
            self._make_room()
        return sequence

    def _make_room(self) -> None:
        while len(self._inactive) > self.max_names:
            name = next(iter(self._inactive))
            if self.by_name[name].under_way:
                return
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "a topic has more than %d disconnected producers: dropping the sequence ids of %r and others; raise"
                    " brokerDeduplicationMaxNumberOfProducers if they may reconnect",
                    self.max_names,
                    name,
                )
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self.by_name[name], self._inactive[name]
        self._changed.discard(name)
        self._forgotten.add(name)


def is_counted(metadata: MessageMetadata) -> bool:
    """Return whether an entry is deduplicated; of a chunked message, this only applies to the last chunk.

    All chunks have the same sequence id, so the others would look like duplicates of the first chunk.
    """
    if metadata.HasField("marker_type"):
        return False
    return metadata.chunk_id >= metadata.num_chunks_from_msg - 1


def ids_of(command: CommandSend | MessageMetadata) -> tuple[int, int]:
    """Return the first and last sequence id of an entry as signed integers, as in Pulsar."""
    first = command.sequence_id
    if first >= 1 << 63:
        first = signed_64(first)
    if command.HasField("highest_sequence_id"):
        last = signed_64(command.highest_sequence_id)
        if last > first:
            return first, last
    return first, first
