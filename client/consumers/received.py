"""What a consumer receives: whole entries, and the messages inside them.

Design: an entry stays bytes until its messages are asked for. The event loop only reads the entry's metadata; a batch
is decompressed and split at the first access, in whichever thread that is, once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ProtocolError
from ...wire import ack_set
from ...wire.batch import MessageHeaders, split_batch
from ...wire.compression import decompress
from ...wire.message_id import MessageId
from ...wire.payload import open_payload, verify_checksum
from ...wire.pulsar_api_pb2 import CommandAck, CommandMessage, MessageMetadata, SingleMessageMetadata
from ..checks import BATCH_SIZE_MAX, check_message_id

EntryKey = tuple[int, int]
"""Ledger and entry of an entry, as a plain tuple: one is made for each entry, and a NamedTuple takes longer."""


class DamagedEntry(ProtocolError):
    """An entry cannot be read.

    Attributes:
        validation_error: what the broker is told, a CommandAck.ValidationError.
        permits: how many messages the broker counted the entry as, as far as that can be said.
    """

    def __init__(self, text: str, validation_error: int, permits: int):
        super().__init__(text)
        self.validation_error = validation_error
        self.permits = permits


def open_entry(message: CommandMessage, payload: bytes, topic: str, partition: int, max_bytes: int) -> ReceivedEntry:
    """Return the entry that a MESSAGE frame brings.

    Args:
        message: its command.
        payload: its payload section.
        topic: full name.
        partition: index, -1 if the topic is none.
        max_bytes: limit of the body when decompressed.

    Raises:
        DamagedEntry: the metadata cannot be read or the checksum does not fit.
    """
    try:
        metadata, body_offset = open_payload(payload)
    except ProtocolError as error:
        raise DamagedEntry(str(error), CommandAck.BatchDeSerializeError, 1) from error
    ack_words = tuple(message.ack_set)
    count = metadata.num_messages_in_batch
    if not 0 < count <= BATCH_SIZE_MAX:
        text = f"an entry announces {count} messages, and has 1 to {BATCH_SIZE_MAX}"
        raise DamagedEntry(text, CommandAck.BatchDeSerializeError, 1)
    permits = ack_set.count(ack_words) if ack_words else count
    if verify_checksum(payload) is False:
        text = f"the checksum of an entry of {len(payload)} bytes does not fit"
        raise DamagedEntry(text, CommandAck.ChecksumMismatch, permits)
    data = message.message_id
    entry = ReceivedEntry(
        MessageId(data.ledgerId, data.entryId, partition),
        topic,
        metadata,
        message.redelivery_count,
        permits,
        (payload, body_offset, max_bytes),
    )
    entry.ack_set = ack_words
    return entry


class ReceivedEntry:
    """One entry of a topic: a batch, or a message sent alone.

    Use it from one thread at a time.

    Attributes:
        message_id: position; ``batch_index`` is -1.
        topic: full name, of the partition where there are some.
        metadata: of the entry.
        redelivery_count: how often it was asked for again.
        ack_set: which messages are still wanted, empty if all; the others were acknowledged before.
        permits: how many messages the broker counted the entry as.
    """

    __slots__ = (
        "_body_offset",
        "_headers",
        "_max_bytes",
        "_payload",
        "_payloads",
        "ack_set",
        "message_id",
        "metadata",
        "permits",
        "redelivery_count",
        "topic",
    )

    def __init__(
        self,
        message_id: MessageId,
        topic: str,
        metadata: MessageMetadata,
        redelivery_count: int,
        permits: int,
        source: tuple[bytes, int, int],
    ):
        self.message_id = message_id
        self.topic = topic
        self.metadata = metadata
        self.redelivery_count = redelivery_count
        self.permits = permits
        self.ack_set: tuple[int, ...] = ()
        self._payload, self._body_offset, self._max_bytes = source
        self._payloads: list[bytes] | None = None
        self._headers: MessageHeaders | None = None

    def __repr__(self) -> str:
        return f"ReceivedEntry({self.message_id}, topic={self.topic!r}, messages={self.num_messages})"

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch; a batch of one is one too."""
        return self.metadata.HasField("num_messages_in_batch")

    @property
    def num_messages(self) -> int:
        """How many messages the entry has, acknowledged ones included."""
        return self.metadata.num_messages_in_batch if self.is_batch else 1

    @property
    def body_bytes(self) -> int:
        """Size of the entry's body as it was sent."""
        return len(self._payload) - self._body_offset

    @property
    def payloads(self) -> list[bytes]:
        """Content of each message, those that are not wanted any more included.

        Raises:
            DamagedEntry: the body cannot be decompressed or split; see `Consumer.discard`.
        """
        if self._payloads is None:
            self._decode()
            assert self._payloads is not None
        return self._payloads

    @property
    def headers(self) -> MessageHeaders | None:
        """Metadata of each message of a batch; None if it is no batch.

        Raises:
            DamagedEntry: as `payloads`.
        """
        if self._payloads is None:
            self._decode()
        return self._headers

    def _decode(self) -> None:
        metadata = self.metadata
        body = self._payload[self._body_offset :]
        if metadata.encryption_keys:
            text = f"entry {self.message_id} is encrypted, which is not supported"
            raise DamagedEntry(text, CommandAck.DecryptionError, self.permits)
        if metadata.compression:
            try:
                body = decompress(metadata.compression, body, metadata.uncompressed_size, self._max_bytes)
            except ProtocolError as error:
                raise DamagedEntry(str(error), CommandAck.DecompressionError, self.permits) from error
        if not self.is_batch:
            self._payloads = [body]
        else:
            try:
                self._payloads, self._headers = split_batch(body, metadata.num_messages_in_batch)
            except ProtocolError as error:
                raise DamagedEntry(str(error), CommandAck.BatchDeSerializeError, self.permits) from error
        self._payload = b""  # the messages are copies; keeping the entry too would double the memory
        self._body_offset = 0

    def wanted_indexes(self) -> list[int]:
        """Return the indexes of the messages to process: neither acknowledged before nor removed by compaction."""
        headers, payloads = self.headers, self.payloads
        indexes = ack_set.wanted(self.ack_set) if self.ack_set else range(len(payloads))
        if headers is None:
            return list(indexes)
        # What compaction removed has no payload: only then the metadata has to be looked at.
        return [
            index for index in indexes if index < len(headers) and (payloads[index] or not headers[index].compacted_out)
        ]

    def messages(self) -> list[Message]:
        """Return the messages to process.

        Raises:
            DamagedEntry: as `payloads`.
        """
        return [Message(self, index) for index in self.wanted_indexes()]


class Message:
    """One message; its properties are read from the entry when asked for.

    Attributes:
        entry: holds the message.
    """

    __slots__ = ("_index", "entry")

    def __init__(self, entry: ReceivedEntry, index: int):
        self.entry = entry
        self._index = index

    def __repr__(self) -> str:
        return f"Message({self.message_id}, topic={self.topic!r}, {len(self.data)} bytes)"

    @property
    def data(self) -> bytes:
        """Content."""
        return self.entry.payloads[self._index]

    @property
    def _header(self) -> SingleMessageMetadata | MessageMetadata:
        headers = self.entry.headers
        return self.entry.metadata if headers is None else headers[self._index]

    @property
    def message_id(self) -> MessageId:
        """Position, with index and size of the batch if the message came in one."""
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
        header = self._header
        return header.partition_key if header.HasField("partition_key") else None

    @property
    def ordering_key(self) -> bytes | None:
        """Ordering key."""
        header = self._header
        return header.ordering_key if header.HasField("ordering_key") else None

    @property
    def properties(self) -> Mapping[str, str]:
        """Free pairs of text."""
        return {pair.key: pair.value for pair in self._header.properties}

    @property
    def publish_time_ms(self) -> int:
        """When the producer sent it, by its clock."""
        return self.entry.metadata.publish_time

    @property
    def event_time_ms(self) -> int:
        """Set by the producing application; 0 is none."""
        return self._header.event_time

    @property
    def sequence_id(self) -> int:
        """Number given by the producer."""
        header = self._header
        if header.HasField("sequence_id"):
            return header.sequence_id
        return self.entry.metadata.sequence_id + self._index

    @property
    def producer_name(self) -> str:
        """Name of the producer."""
        return self.entry.metadata.producer_name

    @property
    def redelivery_count(self) -> int:
        """How often the message was asked for again."""
        return self.entry.redelivery_count


def given_id(what: Message | ReceivedEntry | MessageId) -> MessageId:
    """Return the id of what was received, or the one given if the protocol can carry it.

    Raises:
        InvalidConfig: it cannot.
    """
    if not isinstance(what, MessageId):
        return what.message_id
    check_message_id(what)
    return what


def position_of(entry: ReceivedEntry | MessageId) -> EntryKey:
    """Return the position of an entry; raises as `given_id`."""
    return entry.message_id[:2] if isinstance(entry, ReceivedEntry) else given_id(entry)[:2]
