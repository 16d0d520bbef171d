"""Create the output entries of an input entry, sealed so that resent entries have identical bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from ...client.config import Compression
from ...client.outgoing_message import NO_VALUE
from ...client.producers.outgoing import describe, encode_entry, seal_entry
from ...client.producers.routing import key_partition
from ...errors import MessageTooLarge
from ...state.values import OutboxEntry
from ...wire.batch import encode_attributes
from ...wire.position_sequence import segment_of
from ...wire.pulsar_api_pb2 import SingleMessageMetadata
from ..gate import runs_within
from ..publish_request import PublishRequest
from .work import Result

if TYPE_CHECKING:
    from ...client.encryption.encryption import Encryption

ENTRY_BYTES_MAX = 5 * 1024 * 1024 - 64 * 1024
"""Limit of an entry before compression: the protocol's frame limit minus room for metadata. Readers apply the same
limit to decompressed data, and would drop a larger entry.
"""
_SIZE_BYTES = 2
"""An empty size in metadata, counted where there are attributes. Changing it would change where entries are split, but
reprocessed entries must be split in the same way.
"""
_FRAMING_BYTES = 16
"""Maximum size of a message's length fields, in addition to payload and header."""


@dataclass(slots=True)
class _Draft:
    """Output messages of one input entry for one topic partition."""

    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    compression: Compression = "NONE"
    has_headers: bool = False
    deliver_at_ms: int = 0
    key: str | None = None
    ordering_key: bytes | None = None


_Group = tuple[str, bool, int, str | None, bytes | None]
"""Properties that messages of one entry share: topic partition, whether the context published them, delivery time, and
key if each key has separate entries.
"""


class EntryMaker:
    """Creates output entries; used only by the function's thread.

    All messages of an input entry for a topic form one entry on one of its partitions. Exceptions are messages with
    keys, which go to their keys' partitions, messages with a delivery time, and messages beyond the size limit.

    Attributes:
        schema_version: returns the schema version of return values, empty if the output has no schema.
        encryption: returns the encryption of entries, or None.
    """

    def __init__(
        self,
        output: str,
        compression: Compression,
        partitions_of: Callable[[str], Sequence[str]],
        *,
        splits_keys: bool = False,
    ) -> None:
        """Create a maker of output entries.

        Args:
            output: the function's output topic, empty if it has none.
            compression: compression of return values.
            partitions_of: returns the full names of a topic's partitions; may block.
            splits_keys: whether each key has separate entries, as required by Key_Shared subscriptions.
        """
        self.schema_version: Callable[[], bytes] = bytes
        self.encryption: Callable[[], Encryption | None] = lambda: None
        self._splits_keys = splits_keys
        self._output = output
        self._compression = compression
        self._partitions_of = partitions_of
        self._turn = random.getrandbits(16)

    def make(self, result: Result, outputs: list[bytes], headers: list[bytes] | None) -> None:
        """Add the output entries of an input entry to its result.

        Args:
            result: result of the input entry, including published messages.
            outputs: return values of the function.
            headers: attributes of each output, if there are any.

        Raises:
            MessageTooLarge: a message exceeds the size limit of an entry.
            SequenceOverflow: the position or the number of entries does not fit into a sequence id.
        """
        drafts: dict[_Group, _Draft] = {}
        self._turn += 1
        if outputs:
            drafts[self._any_of(self._output), False, 0, None, None] = _Draft(
                outputs, headers or [], self._compression, headers is not None
            )
        for request in result.published:
            self._add(request, drafts)
        counts: dict[str, int] = {}
        segment, encryption = segment_of(result.position), self.encryption()
        producer_name = segment.producer_name(result.source.producer_name)
        for (topic, is_published, *_), draft in drafts.items():
            for payloads, some_headers in _cut(topic, draft):
                number = counts[topic] = counts.get(topic, -1) + 1
                entry = encode_entry(payloads, some_headers, compression=draft.compression, key=draft.key)
                sequence = segment.sequence_id(result.position, number)
                now_ms = time.time_ns() // 1_000_000
                payload = seal_entry(
                    entry, producer_name, sequence, now_ms, b"" if is_published else self.schema_version(),
                    deliver_at_ms=draft.deliver_at_ms, ordering_key=draft.ordering_key, encryption=encryption,
                )  # fmt: skip
                result.rows.append(OutboxEntry(topic, sequence, len(payloads), payload, result.position))
                result.messages += len(payloads)
                result.size += len(payload)

    def _any_of(self, topic: str) -> str:
        partitions = self._partitions_of(topic)
        return partitions[self._turn % len(partitions)]

    def _add(self, request: PublishRequest, drafts: dict[_Group, _Draft]) -> None:
        partitions = self._partitions_of(request.topic)
        options = request.options
        key = options.get("key")
        number = self._turn if key is None else key_partition(key, len(partitions), "JavaStringHash")
        deliver_at_ms = options.get("deliver_at_ms", 0)
        own = (key, options.get("ordering_key")) if self._splits_keys else (None, None)
        draft = drafts.setdefault((partitions[number % len(partitions)], True, deliver_at_ms, *own), _Draft())
        if not draft.payloads:
            draft.compression, draft.deliver_at_ms = request.compression, deliver_at_ms
            draft.key, draft.ordering_key = own
        header = b""
        if options or request.payload is NO_VALUE:
            metadata = SingleMessageMetadata()
            describe(
                metadata,
                key,
                options.get("ordering_key"),
                options.get("properties"),
                options.get("event_time_ms", 0),
                has_value=request.payload is not NO_VALUE,
            )
            header = encode_attributes(metadata)
            draft.has_headers = True
        draft.payloads.append(request.payload)
        draft.headers.append(header)


def size_of(payload: bytes, header: bytes) -> int:
    """Return the maximum size of a message in an entry."""
    return len(payload) + _FRAMING_BYTES + (len(header) + _SIZE_BYTES if header else 0)


def is_one_entry(payloads: Sequence[bytes], headers: Sequence[bytes] | None) -> bool:
    """Return whether messages fit into a single entry."""
    size = sum(map(len, payloads)) + _FRAMING_BYTES * len(payloads)
    if headers is not None and size <= ENTRY_BYTES_MAX:
        size += sum(len(header) + _SIZE_BYTES for header in headers if header)
    return size <= ENTRY_BYTES_MAX


def cut(
    payloads: list[bytes], headers: list[bytes] | None, refusal: Callable[[int], str]
) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
    """Split messages into entries within the size limit, usually a single one.

    Args:
        payloads: message payloads.
        headers: attributes of each message; None if there are none.
        refusal: returns the error message for a message size.

    Raises:
        MessageTooLarge: a single message exceeds the limit.
    """
    if is_one_entry(payloads, headers):
        yield payloads, headers
        return
    sizes = list(map(size_of, payloads, headers or repeat(b"")))
    for size in sizes:
        if size > ENTRY_BYTES_MAX:
            raise MessageTooLarge(refusal(size))
    for run in runs_within(sizes, len(sizes), ENTRY_BYTES_MAX):
        yield payloads[run], None if headers is None else headers[run]


def _cut(topic: str, draft: _Draft) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
    def refusal(bytes_: int) -> str:
        return (
            f"message of {bytes_} bytes for {topic}, with key and properties, exceeds the limit of {ENTRY_BYTES_MAX}"
            " bytes: send less data, or store it elsewhere and send a reference"
        )

    return cut(draft.payloads, draft.headers if draft.has_headers else None, refusal)
