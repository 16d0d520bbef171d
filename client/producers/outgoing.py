"""Outgoing messages and encoded entries of a producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import InvalidConfig
from ...wire.batch import encode_attributes, encode_plain_batch, encode_rows
from ...wire.compression import NAMES, compress
from ...wire.payload import seal
from ...wire.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from ..checks import INT64_MAX, check_integer, check_options
from ..config import Compression
from ..outgoing_message import Base64Key

if TYPE_CHECKING:
    from ..encryption.encryption import Encryption


class OutgoingEntry(NamedTuple):
    """An encoded batch; created by `encode_entry`, on any thread.

    Attributes:
        body: encoded messages, compressed with ``compression``.
        num_messages: number of messages.
        uncompressed_bytes: size of the body before compression.
        compression: the protocol's CompressionType.
        sequence_id: sequence id of the first message; the others follow. None continues after the producer's last id.
        key: partition key of the entry, used for routing and by Key_Shared subscriptions.
        highest_sequence_id: the id that the broker records for the entry and returns to the next producer with the same
            name; None for the sequence id of the last message. Brokers detect duplicates by the first id only.
    """

    body: bytes
    num_messages: int
    uncompressed_bytes: int
    compression: int = 0
    sequence_id: int | None = None
    key: str | None = None
    highest_sequence_id: int | None = None


def encode_entry(
    payloads: Sequence[bytes],
    headers: Sequence[SingleMessageMetadata | bytes | None] | None = None,
    *,
    compression: Compression = "NONE",
    sequence_id: int | None = None,
    key: str | None = None,
    highest_sequence_id: int | None = None,
) -> OutgoingEntry:
    """Encode several messages as one entry.

    Messages have no individual sequence ids unless their headers contain them, so that readers can share one header
    object per batch, which makes large batches fast.

    Args:
        payloads: at least one payload.
        headers: metadata per message (key, properties, event time), or the result of `encode_attributes`; None for a
            message without metadata.
        compression: compression of the whole entry.
        sequence_id: sequence id of the first message; None continues after the last one.
        key: partition key of the entry.
        highest_sequence_id: the id that the broker records for the entry; None for the id of its last message.
    """
    if not payloads:
        raise ValueError("an entry must contain at least one message")
    if highest_sequence_id is not None and (sequence_id is None or highest_sequence_id < sequence_id):
        raise ValueError(f"highest_sequence_id={highest_sequence_id} is below sequence_id={sequence_id}")
    if headers is None:
        body = encode_plain_batch(payloads)
    else:
        body = encode_rows(
            payloads, [header if isinstance(header, bytes) else encode_attributes(header) for header in headers]
        )
    kind = NAMES[compression]
    packed = compress(kind, body) if kind else body
    return OutgoingEntry(packed, len(payloads), len(body), kind, sequence_id, key, highest_sequence_id)


def seal_entry(  # noqa: PLR0913  each is a field of the metadata
    entry: OutgoingEntry,
    producer_name: str,
    sequence_id: int,
    publish_time_ms: int,
    schema_version: bytes = b"",
    *,
    deliver_at_ms: int = 0,
    ordering_key: bytes | None = None,
    encryption: Encryption | None = None,
) -> bytes:
    """Encode an entry as a payload section for `Producer.send_sealed`, on any thread.

    Args:
        entry: the entry to send.
        producer_name: name of the producer that will send the entry.
        sequence_id: sequence id of the entry and all its messages.
        publish_time_ms: publish time.
        schema_version: version of the messages' schema, assigned by the broker; empty without a schema.
        deliver_at_ms: delivery time on Shared and Key_Shared subscriptions, in ms since 1970; 0 means immediately.
        ordering_key: used by Key_Shared subscriptions instead of the entry's key.
        encryption: encrypts the body, or None.
    """
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        highest_sequence_id=sequence_id,
        publish_time=publish_time_ms,
        num_messages_in_batch=entry.num_messages,
    )
    if entry.compression:
        metadata.compression = entry.compression  # type: ignore[assignment]  # the protocol's number itself
        metadata.uncompressed_size = entry.uncompressed_bytes
    if schema_version:
        metadata.schema_version = schema_version
    if entry.key is not None:
        metadata.partition_key = entry.key
    if ordering_key is not None:
        metadata.ordering_key = ordering_key
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    return seal(metadata, entry.body if encryption is None else encryption.encrypt(metadata, entry.body))


def delayed(deliver_at_ms: int) -> MessageMetadata:
    """Return the metadata of a message with a delivery time, in ms since 1970.

    Raises:
        InvalidConfig: the time is invalid.
    """
    check_integer("deliver_at_ms", deliver_at_ms, 0)
    return MessageMetadata(deliver_at_time=deliver_at_ms)


def describe(
    metadata: MessageMetadata | SingleMessageMetadata,
    key: str | None,
    ordering_key: bytes | None,
    properties: Mapping[str, str] | None,
    event_time_ms: int,
    *,
    has_value: bool = True,
) -> None:
    """Write a message's options into its metadata.

    Raises:
        InvalidConfig: an option is invalid.
    """
    try:
        if key is not None:
            metadata.partition_key = key
            if type(key) is Base64Key:
                metadata.partition_key_b64_encoded = True
        if not has_value:
            metadata.null_value = True
        if ordering_key is not None:
            metadata.ordering_key = ordering_key
        if properties:
            metadata.properties.extend(KeyValue(key=name, value=value) for name, value in properties.items())
        if event_time_ms:
            metadata.event_time = event_time_ms
    except (TypeError, ValueError, AttributeError) as error:
        check_options(key, ordering_key, properties, event_time_ms)
        raise InvalidConfig(f"invalid key, properties or event time: {error}") from error
    if event_time_ms and event_time_ms > INT64_MAX:
        check_options(event_time_ms=event_time_ms)
