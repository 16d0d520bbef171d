"""The payload section of SEND and MESSAGE: checksum, metadata and body.

``[u16 0x0e02][u32 size][BrokerEntryMetadata]`` (brokers only, optional), ``[u16 0x0e01][u32 crc32c]`` (optional),
``[u32 metadata size][MessageMetadata][body]``. The checksum covers everything from the metadata size on. A broker
stores and sends the section unchanged.

Source: Pulsar binary protocol, section Framing.
"""

from __future__ import annotations

from struct import Struct

import google_crc32c
from google.protobuf.message import DecodeError

from ..errors import ProtocolError
from .pulsar_api_pb2 import MessageMetadata

MAGIC_CHECKSUM = 0x0E01
MAGIC_BROKER_ENTRY = 0x0E02

_U16 = Struct(">H")
_U32 = Struct(">I")
_CHECKSUM_HEAD = Struct(">HI")
_checksum = google_crc32c.value
_extend = google_crc32c.extend
_parse_metadata = MessageMetadata.FromString


def seal(metadata: MessageMetadata, body: bytes) -> bytes:
    """Encode the payload section of ``metadata`` and ``body``, including the checksum."""
    head = metadata.SerializeToString()
    sized = _U32.pack(len(head)) + head
    return b"".join((_CHECKSUM_HEAD.pack(MAGIC_CHECKSUM, _extend(_checksum(sized), body)), sized, body))


def _after_broker_entry(payload: bytes) -> int:
    """Return the offset after the broker entry metadata, or 0 without it."""
    if len(payload) >= 6 and _U16.unpack_from(payload, 0)[0] == MAGIC_BROKER_ENTRY:
        return 6 + int(_U32.unpack_from(payload, 2)[0])
    return 0


def metadata_offset(payload: bytes) -> int:
    """Return the offset of the metadata size field, after the optional blocks."""
    offset = _after_broker_entry(payload)
    if len(payload) >= offset + 6 and _U16.unpack_from(payload, offset)[0] == MAGIC_CHECKSUM:
        offset += 6
    return offset


def open_payload(payload: bytes) -> tuple[MessageMetadata, int]:
    """Return a payload section's metadata and the offset of its body, without verifying the checksum.

    Raises:
        ProtocolError: the sizes exceed the section or the metadata cannot be parsed.
    """
    offset = metadata_offset(payload)
    if len(payload) < offset + 4:
        raise ProtocolError(f"payload section of {len(payload)} bytes ends before its metadata size")
    body = offset + 4 + int(_U32.unpack_from(payload, offset)[0])
    if body > len(payload):
        raise ProtocolError(
            f"metadata of {body - offset - 4} bytes exceeds its payload section of {len(payload)} bytes"
        )
    try:
        return _parse_metadata(payload[offset + 4 : body]), body
    except DecodeError as error:
        raise ProtocolError(f"metadata of {body - offset - 4} bytes cannot be parsed: {error}") from error


def is_encrypted(payload: bytes) -> bool:
    """Return whether the body of a payload section is encrypted, which means that its metadata has encryption keys."""
    try:
        return len(open_payload(payload)[0].encryption_keys) > 0
    except ProtocolError:
        return False


def verify_checksum(payload: bytes) -> bool | None:
    """Return whether the checksum is valid, or None if the section has none."""
    offset = _after_broker_entry(payload)
    if len(payload) < offset + 6:
        return None
    magic, stored = _CHECKSUM_HEAD.unpack_from(payload, offset)
    if magic != MAGIC_CHECKSUM:
        return None
    return bool(_checksum(payload[offset + 6 :]) == stored)


def strip_checksum(payload: bytes) -> bytes:
    """Return the section without checksum and broker metadata, for peers that support neither (before version 6)."""
    return payload[metadata_offset(payload) :]
