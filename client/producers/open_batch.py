"""The open batch of a producer, and the encoding of entries."""

from __future__ import annotations

import asyncio
from asyncio import Future, TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import MessageTooLarge
from ...wire.batch import encode_batch
from ...wire.bulk import send_frame_head
from ...wire.compression import NAMES, compress
from ...wire.frames import DEFAULT_MAX_MESSAGE_BYTES, FRAME_PADDING_BYTES
from ...wire.message_id import MessageId
from ...wire.payload import seal
from ...wire.plain_sends import PlainSends
from ...wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from ..config import ProducerConfig
from .outgoing import OutgoingEntry
from .pending_queue import PendingSend

if TYPE_CHECKING:
    from ..encryption.encryption import Encryption


class OpenBatch:
    """Messages that will be sent as one entry, and the two limits that do not depend on time.

    Attributes:
        headers: metadata of each message, without its size.
        payloads: payload of each message.
        futures: future of each message.
        bytes: total size of payloads, keys and properties.
        created_s: time when the first message was added, by the event loop's clock.
        timer: closes the batch; None while it is empty.
        is_awaited: whether a caller awaits one of the messages; the batch is then sent once nothing is in flight.
    """

    __slots__ = (
        "_max_bytes",
        "_max_messages",
        "bytes",
        "created_s",
        "futures",
        "headers",
        "is_awaited",
        "payloads",
        "timer",
    )

    def __init__(self, max_messages: int, max_bytes: int):
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.headers: list[SingleMessageMetadata] = []
        self.payloads: list[bytes] = []
        self.futures: list[Future[MessageId]] = []
        self.bytes = 0
        self.created_s = 0.0
        self.timer: TimerHandle | None = None
        self.is_awaited = False

    def __len__(self) -> int:
        return len(self.payloads)

    def has_room_for(self, payload_bytes: int) -> bool:
        """Return whether another message of this size fits; an empty batch accepts any size."""
        return not self.payloads or self.bytes + payload_bytes <= self._max_bytes

    @property
    def is_full(self) -> bool:
        """Whether the batch is full and must be sent."""
        return len(self.payloads) >= self._max_messages or self.bytes >= self._max_bytes

    def stop_timer(self) -> None:
        """Cancel the timer, if any."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def add(
        self, header: SingleMessageMetadata, payload: bytes, future: Future[MessageId], header_bytes: int = 0
    ) -> None:
        """Append a message; ``header_bytes`` is the size of its key and properties."""
        self.headers.append(header)
        self.payloads.append(payload)
        self.futures.append(future)
        self.bytes += len(payload) + header_bytes

    def metadata(self, producer_name: str, publish_time_ms: int) -> MessageMetadata:
        """Return the metadata of the entry."""
        count = len(self.payloads)
        first = self.headers[0]
        metadata = MessageMetadata(
            producer_name=producer_name,
            sequence_id=first.sequence_id,
            publish_time=publish_time_ms,
            num_messages_in_batch=count,
        )
        if count > 1:
            metadata.highest_sequence_id = self.headers[-1].sequence_id
        # The broker only reads the entry's key, so the first message's key is used for the whole batch.
        if first.HasField("partition_key"):
            metadata.partition_key = first.partition_key
            if first.partition_key_b64_encoded:
                metadata.partition_key_b64_encoded = True
        if first.HasField("ordering_key"):
            metadata.ordering_key = first.ordering_key
        return metadata

    def encode(self) -> bytes:
        """Return the body of the entry."""
        return encode_batch(list(zip(self.headers, self.payloads, strict=True)))

    def take_futures(self) -> list[Future[MessageId]]:
        """Empty the batch and return the futures of its messages."""
        futures = self.futures
        self.headers, self.payloads, self.futures, self.bytes = [], [], [], 0
        self.is_awaited = False
        return futures


def split_by_key(batch: OpenBatch) -> list[OpenBatch]:
    """Empty a batch and return its messages as one batch per key, in the order of their first messages.

    Messages without a key share a batch. Sequence ids are reassigned so that they increase within and across the
    batches: receipts and deduplication identify an entry by its first and last id.
    """
    ids = sorted(header.sequence_id for header in batch.headers)
    parts: dict[tuple[bool, bytes | str], OpenBatch] = {}
    for header, payload, future in zip(batch.headers, batch.payloads, batch.futures, strict=True):
        is_ordering = header.HasField("ordering_key")
        key = is_ordering, header.ordering_key if is_ordering else header.partition_key
        part = parts.get(key)
        if part is None:
            part = parts[key] = OpenBatch(len(batch), batch.bytes)
            part.created_s = batch.created_s
        part.add(header, payload, future)
    batch.take_futures()
    numbers = iter(ids)
    for part in parts.values():
        for header in part.headers:
            header.sequence_id = next(numbers)
    return list(parts.values())


_HEADER_ROOM_BYTES = 64
"""Upper bound on the size of a batched message beyond its payload, key and properties."""
_METADATA_ROOM_BYTES = FRAME_PADDING_BYTES - 1024  # an entry's size beyond its body; the rest is for the command


class Encoder:
    """Encodes the entries of one producer.

    Attributes:
        compression: the protocol's CompressionType, or 0.
        encryption: encrypts entry bodies; None if they are not encrypted.
        max_message_bytes: the broker's message size limit.
        max_batched_bytes: size of the largest payload that is batched; lower than the limit because of the batch
            header.
        schema_version: version of the messages' schema, assigned by the broker; empty without a schema.
        plain: encodes plain unbatched messages; None if this producer sends no such messages, or has no name yet.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_loop",
        "_name",
        "_producer_id",
        "compression",
        "encryption",
        "max_batched_bytes",
        "max_message_bytes",
        "plain",
        "schema_version",
    )

    def __init__(self, producer_id: int, config: ProducerConfig, clock: Callable[[], float]):
        self._producer_id = producer_id
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._name = ""
        self.compression = NAMES[config.compression]
        self.encryption: Encryption | None = None
        self.max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self.max_batched_bytes = DEFAULT_MAX_MESSAGE_BYTES - _HEADER_ROOM_BYTES
        self.plain: PlainSends | None = None
        self.schema_version = b""

    def attached(self, producer_name: str, max_message_bytes: int, schema_version: bytes = b"") -> None:
        """Apply the broker's response to the creation of the producer."""
        self._name = producer_name
        self.max_message_bytes = max_message_bytes
        self.max_batched_bytes = max_message_bytes - _HEADER_ROOM_BYTES
        self.schema_version = schema_version
        config = self._config
        is_plain = not (
            config.batching or config.empty_deletes or self.compression or schema_version or self.encryption
        )
        self.plain = PlainSends(self._producer_id, producer_name) if is_plain else None

    def check_size(self, what: str, size: int) -> None:
        """Reject a size above the broker's limit."""
        if size > self.max_message_bytes:
            raise MessageTooLarge(
                f"{what} of {size} bytes exceeds the broker's max_message_bytes={self.max_message_bytes}"
            )

    def goes_alone(self, payload_bytes: int) -> bool:
        """Return whether a payload above ``max_batched_bytes`` must be sent unbatched.

        Raises:
            MessageTooLarge: the payload exceeds the broker's limit.
        """
        if self.compression:
            return False
        self.check_size("message", payload_bytes)
        return self._config.batching

    def metadata(self, sequence_id: int) -> MessageMetadata:
        """Return the metadata common to all entries."""
        metadata = MessageMetadata(
            producer_name=self._name, sequence_id=sequence_id, publish_time=int(self._clock() * 1000)
        )
        if self.schema_version:
            metadata.schema_version = self.schema_version
        return metadata

    def message(self, metadata: MessageMetadata, payload: bytes, future: asyncio.Future[MessageId]) -> PendingSend:
        """Return the SEND of an unbatched message."""
        if self.compression:
            payload = self._compress(metadata, payload)
        self.check_size("entry", len(payload))
        return self._seal(metadata, payload, 1, future)

    def batch(self, batch: OpenBatch) -> PendingSend:
        """Return the SEND of a batch, without the futures of its messages."""
        metadata = batch.metadata(self._name, int(self._clock() * 1000))
        if self.schema_version:
            metadata.schema_version = self.schema_version
        body = batch.encode()
        if self.compression:
            body = self._compress(metadata, body)
        self.check_size("entry", len(body))
        return self._seal(metadata, body, len(batch), None)

    def entry(self, entry: OutgoingEntry, first: int, future: asyncio.Future[MessageId]) -> PendingSend:
        """Return the SEND of an encoded entry; ``first`` is the sequence id of its first message."""
        metadata = self.metadata(first)
        metadata.num_messages_in_batch = entry.num_messages
        if entry.highest_sequence_id is not None:
            metadata.highest_sequence_id = entry.highest_sequence_id
        elif entry.num_messages > 1:
            metadata.highest_sequence_id = first + entry.num_messages - 1
        if entry.compression:
            metadata.compression = entry.compression  # type: ignore[assignment]  # the protocol's number itself
            metadata.uncompressed_size = entry.uncompressed_bytes
        if entry.key is not None:
            metadata.partition_key = entry.key
        return self._seal(metadata, entry.body, entry.num_messages, future)

    def _compress(self, metadata: MessageMetadata, body: bytes) -> bytes:
        metadata.compression = self.compression  # type: ignore[assignment]  # the protocol's number itself
        metadata.uncompressed_size = len(body)
        return compress(self.compression, body)

    def section(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """Return the payload section of an entry, encrypting its body if the producer encrypts."""
        if self.encryption is not None:
            body = self.encryption.encrypt(metadata, body)
        return seal(metadata, body)

    def _seal(
        self, metadata: MessageMetadata, body: bytes, count: int, future: asyncio.Future[MessageId] | None
    ) -> PendingSend:
        payload = self.section(metadata, body)
        if len(payload) > self.max_message_bytes + _METADATA_ROOM_BYTES:
            # A broker closes the connection on an oversized frame, and the entry would be resent on each new one.
            raise MessageTooLarge(
                f"entry of {len(body)} bytes with {len(payload) - len(body)} bytes of keys and properties exceeds the"
                f" limit of {self.max_message_bytes + _METADATA_ROOM_BYTES} bytes: shorten the keys and properties"
            )
        first = last = metadata.sequence_id
        highest: int | None = None
        if metadata.HasField("highest_sequence_id"):
            last = highest = metadata.highest_sequence_id
        head = send_frame_head(self._producer_id, first, highest, count, False, len(payload))
        return PendingSend(first, last, head, payload, count, self._loop.time(), future)
