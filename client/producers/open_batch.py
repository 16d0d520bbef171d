"""The entry that a producer is filling, and the encoding of entries."""

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
    """Messages that will leave as one entry, with the two bounds that do not need a clock.

    Attributes:
        headers: metadata of each message, without its size.
        payloads: content of each message.
        futures: of each message.
        bytes: of all payloads, keys and properties.
        created_s: when the first message came, in seconds of the event loop's clock.
        timer: closes the batch; None while it is empty.
        is_awaited: whether a caller waits for one of the messages, so that the batch leaves as soon as nothing is in
            flight.
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
        """Return whether one more message of that size fits; an empty batch takes any."""
        return not self.payloads or self.bytes + payload_bytes <= self._max_bytes

    @property
    def is_full(self) -> bool:
        """Whether the batch must leave now."""
        return len(self.payloads) >= self._max_messages or self.bytes >= self._max_bytes

    def stop_timer(self) -> None:
        """Cancel the timer, if it runs."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def add(
        self, header: SingleMessageMetadata, payload: bytes, future: Future[MessageId], header_bytes: int = 0
    ) -> None:
        """Add a message behind the others; ``header_bytes`` is what its key and properties take."""
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
        # The broker reads keys at the entry only: it takes the first message's for the whole batch.
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
"""What a message in a batch has beside its payload, key and properties, at most."""
_METADATA_ROOM_BYTES = FRAME_PADDING_BYTES - 1024  # of an entry beside its body; the rest is the command's


class Encoder:
    """Encodes for one producer.

    Attributes:
        compression: a CompressionType of the protocol, 0 for none.
        encryption: of the bodies of entries; None if they are not encrypted.
        max_message_bytes: largest message that the broker takes.
        max_batched_bytes: largest payload that is put into a batch: with its header there, it is such a message.
        schema_version: of the schema of all messages, as the broker calls it; empty if they have none.
        plain: encodes messages that go out one by one as they are; None if this producer's do not, or have no name yet.
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
        """Take over what the broker says when the producer is attached to it."""
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
        """Refuse what the broker would not take."""
        if size > self.max_message_bytes:
            raise MessageTooLarge(
                f"{what} of {size} bytes exceeds max_message_bytes={self.max_message_bytes} of the broker"
            )

    def goes_alone(self, payload_bytes: int) -> bool:
        """Return whether a payload above ``max_batched_bytes`` has to leave its producer's batches.

        Raises:
            MessageTooLarge: the broker would not take it.
        """
        if self.compression:
            return False
        self.check_size("message", payload_bytes)
        return self._config.batching

    def metadata(self, sequence_id: int) -> MessageMetadata:
        """Return what each entry begins with."""
        metadata = MessageMetadata(
            producer_name=self._name, sequence_id=sequence_id, publish_time=int(self._clock() * 1000)
        )
        if self.schema_version:
            metadata.schema_version = self.schema_version
        return metadata

    def message(self, metadata: MessageMetadata, payload: bytes, future: asyncio.Future[MessageId]) -> PendingSend:
        """Return the SEND of a message that is an entry of its own."""
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
        """Return the SEND of an entry that was encoded elsewhere; ``first`` is the sequence id of its first message."""
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
        """Return the payload section of an entry, its body encrypted if the producer's are."""
        if self.encryption is not None:
            body = self.encryption.encrypt(metadata, body)
        return seal(metadata, body)

    def _seal(
        self, metadata: MessageMetadata, body: bytes, count: int, future: asyncio.Future[MessageId] | None
    ) -> PendingSend:
        payload = self.section(metadata, body)
        if len(payload) > self.max_message_bytes + _METADATA_ROOM_BYTES:
            # A broker ends the connection at a frame beyond its limit; the entry would come again on every new one.
            raise MessageTooLarge(
                f"entry of {len(body)} bytes has {len(payload) - len(body)} bytes of keys and properties beside it, and"
                f" the limit for both is {self.max_message_bytes + _METADATA_ROOM_BYTES}; send shorter keys"
            )
        first = last = metadata.sequence_id
        highest: int | None = None
        if metadata.HasField("highest_sequence_id"):
            last = highest = metadata.highest_sequence_id
        head = send_frame_head(self._producer_id, first, highest, count, False, len(payload))
        return PendingSend(first, last, head, payload, count, self._loop.time(), future)
