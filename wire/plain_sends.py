"""SEND frames for a producer's plain unbatched messages, which consist only of a payload.

For equal lengths, such frames differ only in payload, sequence id, publish time and checksum. The rest is cached, as
protobuf takes three times as long. Tests compare the results of both.
"""

from __future__ import annotations

from struct import Struct

import google_crc32c

from .bulk import send_frame_head, varint
from .payload import MAGIC_CHECKSUM
from .pulsar_api_pb2 import MessageMetadata

MAX_KEPT_HEADS = 1024
"""Maximum number of cached heads per producer, one for each payload size and sequence id length."""

_CHECKSUM_HEAD = Struct(">HI")
_METADATA_SIZE = Struct(">I")
_NAME, _SEQUENCE, _TIME = (
    bytes((MessageMetadata.DESCRIPTOR.fields_by_name[name].number << 3 | wire_type,))
    for name, wire_type in (("producer_name", 2), ("sequence_id", 0), ("publish_time", 0))
)
_ONE_MESSAGE = b"\x18\x01"  # num_messages of CommandSend, which ends the command
_checksum = google_crc32c.value
_extend = google_crc32c.extend


class PlainSends:
    """Encodes the messages of a producer as long as its id and name remain the same."""

    __slots__ = ("_before_sequence", "_heads", "_name", "_producer_id", "_time", "_time_ms")

    def __init__(self, producer_id: int, producer_name: str):
        name = producer_name.encode()
        self._producer_id = producer_id
        self._name = _NAME + varint(len(name)) + name + _SEQUENCE
        self._before_sequence: dict[int, bytes] = {}  # size and start of the metadata, by the length of the rest
        self._heads: dict[int, bytes] = {}  # the frame up to the sequence id, by payload size and id length
        self._time_ms = -1
        self._time = b""

    def frame(self, sequence_id: int, publish_time_ms: int, body: bytes) -> tuple[bytes, bytes]:
        """Encode the frame of one message; return the part before its payload section, and that section."""
        if publish_time_ms != self._time_ms:
            self._time_ms = publish_time_ms
            self._time = _TIME + varint(publish_time_ms)
        sequence = varint(sequence_id)
        rest = sequence + self._time
        before = self._before_sequence.get(len(rest))
        if before is None:
            before = _METADATA_SIZE.pack(len(self._name) + len(rest)) + self._name
            self._before_sequence[len(rest)] = before
        metadata = before + rest
        checksum = _CHECKSUM_HEAD.pack(MAGIC_CHECKSUM, _extend(_checksum(metadata), body))
        section = b"".join((checksum, metadata, body))
        key = len(section) << 4 | len(sequence)
        head = self._heads.get(key)
        if head is None:
            head = self._new_head(key, sequence_id, len(section))
        return head + sequence + _ONE_MESSAGE, section

    def _new_head(self, key: int, sequence_id: int, section_bytes: int) -> bytes:
        if len(self._heads) >= MAX_KEPT_HEADS:
            self._heads.clear()
        whole = send_frame_head(self._producer_id, sequence_id, None, 1, False, section_bytes)
        head = self._heads[key] = whole[: -len(varint(sequence_id)) - len(_ONE_MESSAGE)]
        return head
