"""Message ids: the position of an entry, and the index of a message within it."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from ..errors import ProtocolError
from .pulsar_api_pb2 import MessageIdData

_U64 = (1 << 64) - 1
_MAX = (1 << 63) - 1


class MessageId(NamedTuple):
    """Message id: ledger, entry, partition (-1 if not partitioned) and batch index (-1 if not in a batch)."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = 0

    def serialize(self) -> bytes:
        """Return the id as bytes in the format of other clients (MessageIdData)."""
        return to_data(self).SerializeToString()

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(_MAX, _MAX)


def to_data(message_id: MessageId) -> MessageIdData:
    """Return the id as a protocol message, with -1 as the largest unsigned number."""
    data = MessageIdData(ledgerId=message_id.ledger_id & _U64, entryId=message_id.entry_id & _U64)
    if message_id.partition >= 0:
        data.partition = message_id.partition
    if message_id.batch_index >= 0:
        data.batch_index = message_id.batch_index
    if message_id.batch_size > 0:
        data.batch_size = message_id.batch_size
    return data


def from_data(data: MessageIdData) -> MessageId:
    """Return the id in a protocol message."""
    return MessageId(
        signed_64(data.ledgerId), signed_64(data.entryId), data.partition, data.batch_index, data.batch_size
    )


def signed_64(number: int) -> int:
    """Convert an unsigned 64-bit number to the signed number that it represents."""
    return number - (1 << 64) if number > _MAX else number


def deserialize(data: bytes) -> MessageId:
    """Parse an id serialized by `MessageId.serialize` or another client.

    Raises:
        ProtocolError: the bytes are not a valid MessageIdData.
    """
    try:
        return from_data(MessageIdData.FromString(data))
    except DecodeError as error:
        raise ProtocolError(f"{len(data)} bytes are not a valid serialized message id: {error}") from error
