"""Received entries, and the messages inside them.

Design: an entry remains encoded until its messages are read. The event loop parses only the entry's metadata; a batch
is decompressed and split once, on first access, on the accessing thread. If this module is compiled, metadata in the
usual form also remains encoded until `ReceivedEntry.metadata`, which few applications need, is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Generic, TypeVar

import google_crc32c
from google.protobuf.message import DecodeError

from ...errors import CryptoError, ProtocolError
from ...wire import ack_set
from ...wire.batch import MessageHeaders, header_text, split_batch
from ...wire.compression import decompress
from ...wire.message_id import MessageId
from ...wire.payload import MAGIC_CHECKSUM, open_payload, verify_checksum
from ...wire.pulsar_api_pb2 import CommandAck, CommandMessage, MessageMetadata, SingleMessageMetadata
from ...wire.runs import (
    COUNT_MASK,
    HAS_PROPERTIES,
    IN_BATCH,
    IS_COMPILED,
    MessageRow,
    properties_of_usual,
    usual_metadata,
)
from ..checks import BATCH_SIZE_MAX, check_message_id

T = TypeVar("T")

EntryKey = tuple[int, int]
"""An entry's ledger id and entry id. A plain tuple, because one is created per entry and a NamedTuple is slower."""

_SECTION_HEAD = Struct(">HII")  # magic, checksum, size of the metadata
_unpack_head = _SECTION_HEAD.unpack_from
_HEAD_BYTES = _SECTION_HEAD.size
_checksum = google_crc32c.value
_parse_metadata = MessageMetadata.FromString


class DamagedEntry(ProtocolError):
    """An entry cannot be read.

    Attributes:
        validation_error: the CommandAck.ValidationError to send to the broker.
        permits: number of messages that the broker counted for the entry, as far as known.
    """

    def __init__(self, text: str, validation_error: int, permits: int):
        super().__init__(text)
        self.validation_error = validation_error
        self.permits = permits


def open_entry(message: CommandMessage, payload: bytes, topic: str, partition: int, max_bytes: int) -> ReceivedEntry:
    """Return the entry in a MESSAGE frame.

    Args:
        message: the frame's command.
        payload: the frame's payload section.
        topic: full name.
        partition: index, -1 if the topic is not a partition.
        max_bytes: size limit of the decompressed body.

    Raises:
        DamagedEntry: the metadata cannot be read, or the checksum does not match.
    """
    data = message.message_id
    position = (data.ledgerId, data.entryId)
    ack_words = tuple(message.ack_set)
    return _open_parsed(position, message.redelivery_count, ack_words, payload, topic, partition, max_bytes)


def open_rows(
    rows: list[MessageRow], topic: str, partition: int, max_bytes: int
) -> tuple[list[ReceivedEntry], list[tuple[EntryKey, DamagedEntry]]]:
    """Return the entries in MESSAGE frames in order, with an error for each damaged one.

    Args:
        rows: the frames.
        topic: full name.
        partition: index, -1 if the topic is not a partition.
        max_bytes: size limit of a decompressed body.
    """
    entries: list[ReceivedEntry] = []
    damaged: list[tuple[EntryKey, DamagedEntry]] = []
    for ledger_id, entry_id, redeliveries, _, section in rows:
        position = (ledger_id, entry_id)
        try:
            entry = None
            if IS_COMPILED:
                entry = _open_usual(position, redeliveries, section, topic, partition, max_bytes)
            if entry is None:
                entry = _open_parsed(position, redeliveries, (), section, topic, partition, max_bytes)
        except DamagedEntry as error:
            damaged.append((position, error))
        else:
            entries.append(entry)
    return entries, damaged


def _open_usual(
    position: EntryKey, redelivery_count: int, section: bytes, topic: str, partition: int, max_bytes: int
) -> ReceivedEntry | None:
    """Return an entry whose metadata has the usual form and whose checksum is valid, or None for any other."""
    if len(section) < _HEAD_BYTES or section[0] != 0x0E or section[1] != 0x01:
        return None
    body = _HEAD_BYTES + int.from_bytes(section[6:_HEAD_BYTES], "big")
    if body > len(section):
        return None
    found = usual_metadata(section, _HEAD_BYTES, body)
    count = found & COUNT_MASK
    if found < 0 or not 0 < count <= BATCH_SIZE_MAX:
        return None
    if _checksum(section[6:]) != int.from_bytes(section[2:6], "big"):
        return None
    head = section[_HEAD_BYTES:body]
    return ReceivedEntry(position, topic, head, redelivery_count, count, (section, body, max_bytes), partition, found)


def _open_parsed(  # noqa: PLR0913 - an object would be an extra allocation per frame
    position: EntryKey,
    redelivery_count: int,
    ack_words: tuple[int, ...],
    section: bytes,
    topic: str,
    partition: int,
    max_bytes: int,
) -> ReceivedEntry:
    """Return any entry, with its metadata parsed; raises the same errors as `open_entry`."""
    try:
        magic, checksum, size = _unpack_head(section)
        body = _HEAD_BYTES + size
        if magic != MAGIC_CHECKSUM or body > len(section):
            metadata, body, does_fit = _opened(section)
        else:
            metadata = _parse_metadata(section[_HEAD_BYTES:body])
            does_fit = _checksum(section[6:]) == checksum
    except (StructError, DecodeError):
        metadata, body, does_fit = _opened(section)
    count = metadata.num_messages_in_batch
    if not 0 < count <= BATCH_SIZE_MAX:
        text = f"invalid message count {count} in an entry: expected 1 to {BATCH_SIZE_MAX}"
        raise DamagedEntry(text, CommandAck.BatchDeSerializeError, 1)
    permits = ack_set.count(ack_words) if ack_words else count
    if not does_fit:
        text = f"checksum mismatch in an entry of {len(section)} bytes"
        raise DamagedEntry(text, CommandAck.ChecksumMismatch, permits)
    entry = ReceivedEntry(position, topic, metadata, redelivery_count, permits, (section, body, max_bytes), partition)
    if ack_words:
        entry.ack_set = ack_words
    return entry


def _opened(section: bytes) -> tuple[MessageMetadata, int, bool]:
    """Return a payload section's metadata, the offset of its body, and whether its checksum, if any, is valid.

    Raises:
        DamagedEntry: the metadata cannot be read.
    """
    try:
        metadata, body = open_payload(section)
        return metadata, body, verify_checksum(section) is not False
    except ProtocolError as error:
        raise DamagedEntry(str(error), CommandAck.BatchDeSerializeError, 1) from error


class ReceivedEntry:
    """One entry of a topic: a batch or an unbatched message.

    Use it from one thread at a time.

    Attributes:
        position: ledger and entry.
        topic: full name; the partition's name for a partitioned topic.
        redelivery_count: number of redeliveries of the entry.
        ack_set: the unacknowledged messages of a partly acknowledged entry; empty if all are unacknowledged.
        permits: number of messages that the broker counted for the entry.
        is_batch: whether this is a batch, possibly of one message.
        num_messages: number of messages in the entry, including acknowledged ones.
    """

    __slots__ = (
        "_body_offset",
        "_found",
        "_head",
        "_headers",
        "_max_bytes",
        "_message_id",
        "_metadata",
        "_partition",
        "_payload",
        "_payloads",
        "ack_set",
        "is_batch",
        "num_messages",
        "permits",
        "position",
        "redelivery_count",
        "topic",
    )

    def __init__(  # noqa: PLR0913 - a builder would be an extra allocation per entry
        self,
        message_id: MessageId | EntryKey,
        topic: str,
        metadata: MessageMetadata | bytes,
        redelivery_count: int,
        permits: int,
        source: tuple[bytes, int, int],
        partition: int = -1,
        found: int = 0,
    ):
        """Create an entry from a received frame.

        Args:
            message_id: the entry's position.
            topic: full topic name.
            metadata: the entry's metadata, as bytes if it has the usual form.
            redelivery_count: number of redeliveries of the entry.
            permits: number of messages that the broker counted for the entry.
            source: payload section, offset of the body in it, and size limit of the decompressed body.
            partition: partition index, or -1; only used if ``message_id`` lacks it.
            found: the result of `usual_metadata`; only used if ``metadata`` is bytes.
        """
        self._message_id: MessageId | None = None
        self._partition = partition
        if isinstance(message_id, MessageId):
            self._message_id = message_id
            self.position: EntryKey = (message_id.ledger_id, message_id.entry_id)
        else:
            self.position = message_id
        self.topic = topic
        self._metadata: MessageMetadata | None = None
        self._head = b""
        self._found = found
        if isinstance(metadata, bytes):
            self._head = metadata
            self.is_batch = found & IN_BATCH != 0
            self.num_messages = found & COUNT_MASK
        else:
            self._metadata = metadata
            self.num_messages = metadata.num_messages_in_batch  # 1 if the field is absent
            self.is_batch = metadata.HasField("num_messages_in_batch")
        self.redelivery_count = redelivery_count
        self.permits = permits
        self.ack_set: tuple[int, ...] = ()
        self._payload, self._body_offset, self._max_bytes = source
        self._payloads: list[bytes] | None = None
        self._headers: MessageHeaders | None = None

    def __repr__(self) -> str:
        return f"ReceivedEntry({self.message_id}, topic={self.topic!r}, messages={self.num_messages})"

    @property
    def message_id(self) -> MessageId:
        """Id of the entry; ``batch_index`` is -1."""
        found = self._message_id
        if found is None:
            found = self._message_id = MessageId(self.position[0], self.position[1], self._partition)
        return found

    @property
    def metadata(self) -> MessageMetadata:
        """The entry's metadata."""
        found = self._metadata
        if found is None:
            found = self._metadata = _parse_metadata(self._head)
        return found

    @property
    def has_properties(self) -> bool:
        """Whether an unbatched message has properties; not meaningful for a batch."""
        if self._metadata is None:
            return self._found & HAS_PROPERTIES != 0
        return bool(self._metadata.properties)

    @property
    def properties(self) -> bytes:
        """Properties of an unbatched message, encoded as in a batch; empty if it has none."""
        if not self.has_properties:
            return b""
        if IS_COMPILED and self._head:
            return properties_of_usual(self._head)
        return SingleMessageMetadata(properties=self.metadata.properties).SerializePartialToString()

    @property
    def body_bytes(self) -> int:
        """Size of the entry's body as sent."""
        return len(self._payload) - self._body_offset

    @property
    def is_chunk(self) -> bool:
        """Whether the entry is a chunk of a larger message."""
        return self._metadata is not None and self._metadata.num_chunks_from_msg > 1

    @property
    def stored_body(self) -> bytes:
        """The body as stored, before decompression and decryption."""
        return self._payload[self._body_offset :]

    @property
    def is_encrypted(self) -> bool:
        """Whether the body is encrypted."""
        return self._metadata is not None and len(self._metadata.encryption_keys) > 0

    def decrypted(self, decrypt: Callable[[MessageMetadata, bytes], bytes]) -> ReceivedEntry:
        """Return the entry with its body decrypted by ``decrypt``, which takes the metadata and the encrypted body.

        Raises:
            DamagedEntry: the body cannot be decrypted.
        """
        metadata = MessageMetadata()
        metadata.CopyFrom(self.metadata)
        try:
            body = decrypt(metadata, self.stored_body)
        except CryptoError as error:
            text = f"entry {self.message_id} cannot be decrypted: {error}"
            raise DamagedEntry(text, CommandAck.DecryptionError, self.permits) from error
        metadata.ClearField("encryption_keys")
        return self._replaced(metadata, body)

    def undecrypted(self) -> ReceivedEntry:
        """Return the entry as one message with the encrypted body; its metadata describes the encryption."""
        entry = self._replaced(self.metadata, self.stored_body)
        entry.is_batch = False
        entry.num_messages = 1
        entry.ack_set = ()
        entry._payloads = [entry._payload]
        return entry

    def _replaced(self, metadata: MessageMetadata, body: bytes) -> ReceivedEntry:
        source = (body, 0, self._max_bytes)
        entry = ReceivedEntry(
            self.position, self.topic, metadata, self.redelivery_count, self.permits, source, self._partition
        )
        entry.ack_set = self.ack_set
        return entry

    def with_body(self, body: bytes, max_bytes: int) -> ReceivedEntry:
        """Return a copy of this entry with another body, whose decompressed size is at most ``max_bytes``."""
        return ReceivedEntry(
            self.message_id, self.topic, self.metadata, self.redelivery_count, self.permits, (body, 0, max_bytes)
        )

    @property
    def payloads(self) -> list[bytes]:
        """Payload of each message, including acknowledged ones.

        Raises:
            DamagedEntry: the body cannot be decompressed or split; see `Consumer.discard`.
        """
        found = self._payloads
        return self._decode() if found is None else found

    @property
    def headers(self) -> MessageHeaders | None:
        """Metadata of each message of a batch; None if the entry is not a batch.

        Raises:
            DamagedEntry: see `payloads`.
        """
        if self._payloads is None:
            self._decode()
        return self._headers

    def _decode(self) -> list[bytes]:
        body = self._payload[self._body_offset :]
        if self._metadata is not None:  # otherwise it has the usual form: neither compressed nor encrypted
            body = self._plain_body(self._metadata, body)
        if not self.is_batch:
            payloads = [body]
        else:
            try:
                payloads, self._headers = split_batch(body, self.num_messages)
            except ProtocolError as error:
                raise DamagedEntry(str(error), CommandAck.BatchDeSerializeError, self.permits) from error
        self._payloads = payloads
        self._payload = b""  # the messages are copies, so keeping the entry as well would double the memory
        self._body_offset = 0
        return payloads

    def _plain_body(self, metadata: MessageMetadata, body: bytes) -> bytes:
        if metadata.encryption_keys:
            text = f"entry {self.message_id} is encrypted, and the consumer has no crypto_key_reader"
            raise DamagedEntry(text, CommandAck.DecryptionError, self.permits)
        if not metadata.compression:
            return body
        try:
            return decompress(metadata.compression, body, metadata.uncompressed_size, self._max_bytes)
        except ProtocolError as error:
            raise DamagedEntry(str(error), CommandAck.DecompressionError, self.permits) from error

    def wanted_indexes(self) -> list[int]:
        """Return the indexes of the messages to process, which are neither acknowledged nor removed by compaction."""
        headers, payloads = self.headers, self.payloads
        indexes = ack_set.wanted(self.ack_set) if self.ack_set else range(len(payloads))
        if headers is None:
            return list(indexes)
        # Messages removed by compaction have no payload; only then must the metadata be inspected.
        return [
            index for index in indexes if index < len(headers) and (payloads[index] or not headers[index].compacted_out)
        ]

    def messages(self) -> list[Message]:
        """Return the messages to process.

        Raises:
            DamagedEntry: see `payloads`.
        """
        return [Message(self, index) for index in self.wanted_indexes()]


class Message:
    """A message; its properties are read from the entry on access.

    Attributes:
        entry: the entry that contains the message.
    """

    __slots__ = ("_index", "entry")

    def __init__(self, entry: ReceivedEntry, index: int):
        self.entry = entry
        self._index = index

    def __repr__(self) -> str:
        return f"Message({self.message_id}, topic={self.topic!r}, {len(self.data)} bytes)"

    @property
    def index(self) -> int:
        """Index within the entry."""
        return self._index

    @property
    def data(self) -> bytes:
        """The payload."""
        return self.entry.payloads[self._index]

    @property
    def value(self) -> Any:
        """The payload, decoded by the consumer's schema if it has one."""
        return self.entry.payloads[self._index]

    @property
    def _header(self) -> SingleMessageMetadata | MessageMetadata:
        headers = self.entry.headers
        return self.entry.metadata if headers is None else headers[self._index]

    @property
    def message_id(self) -> MessageId:
        """Position, with batch index and batch size if the message was batched."""
        entry = self.entry
        if not entry.is_batch:
            return entry.message_id
        ledger_id, entry_id, partition, _, _ = entry.message_id
        return MessageId(ledger_id, entry_id, partition, self._index, entry.num_messages)

    @property
    def topic(self) -> str:
        """Full name of the topic or partition."""
        return self.entry.topic

    @property
    def key(self) -> str | None:
        """Partition key."""
        header: Any = self._header  # in compiled code, a field annotated as str must not be bytes
        return header_text(header.partition_key) if header.HasField("partition_key") else None

    @property
    def has_value(self) -> bool:
        """Whether the message has a value; a missing value is distinct from an empty one."""
        return not self._header.null_value

    @property
    def key_is_base64(self) -> bool:
        """Whether the partition key is base64-encoded bytes."""
        return self._header.partition_key_b64_encoded

    @property
    def schema_version(self) -> bytes:
        """Version of the schema that the message was written with, assigned by the broker; empty without a schema."""
        return self.entry.metadata.schema_version

    @property
    def ordering_key(self) -> bytes | None:
        """Ordering key."""
        header = self._header
        return header.ordering_key if header.HasField("ordering_key") else None

    @property
    def properties(self) -> Mapping[str, str]:
        """Application-defined string pairs; invalid UTF-8 is replaced."""
        header: Any = self._header  # see `key`
        return {header_text(pair.key): header_text(pair.value) for pair in header.properties}

    @property
    def publish_time_ms(self) -> int:
        """Time at which the producer sent the message, by the producer's clock."""
        return self.entry.metadata.publish_time

    @property
    def event_time_ms(self) -> int:
        """Time set by the producing application, or 0."""
        return self._header.event_time

    @property
    def sequence_id(self) -> int:
        """Sequence id assigned by the producer."""
        header = self._header
        if header.HasField("sequence_id"):
            return header.sequence_id
        return self.entry.metadata.sequence_id + self._index

    @property
    def producer_name(self) -> str:
        """Producer name."""
        return self.entry.metadata.producer_name

    @property
    def redelivery_count(self) -> int:
        """Number of redeliveries."""
        return self.entry.redelivery_count


_UNREAD: Any = object()


class TypedMessage(Message, Generic[T]):
    """One message of a consumer with a schema."""

    __slots__ = ("_decode", "_value")

    def __init__(self, entry: ReceivedEntry, index: int, decode: Callable[[Message], T]):
        """Create a message whose value is decoded once, on first access."""
        super().__init__(entry, index)
        self._decode = decode
        self._value: Any = _UNREAD

    @property
    def value(self) -> T:
        """The value, decoded by the consumer's schema; None if the message has no value.

        Raises:
            SchemaSerializationError: the payload cannot be decoded with the schema.
            BrokerError: the broker no longer has the required writer's schema.
        """
        found: T
        if self._value is _UNREAD:
            found = self._value = self._decode(self)
        else:
            found = self._value
        return found


def given_id(what: Message | ReceivedEntry | MessageId) -> MessageId:
    """Return the id of a message or entry; a given id is validated and returned.

    Raises:
        InvalidConfig: the id is out of range.
    """
    if not isinstance(what, MessageId):
        return what.message_id
    check_message_id(what)
    return what


def position_of(entry: ReceivedEntry | MessageId) -> EntryKey:
    """Return the position of an entry; raises the same errors as `given_id`."""
    return entry.position if isinstance(entry, ReceivedEntry) else given_id(entry)[:2]
