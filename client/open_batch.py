"""The entry that a producer is filling."""

from __future__ import annotations

from asyncio import Future

from ..wire.batch import encode_batch
from ..wire.message_id import MessageId
from ..wire.pulsar_api_pb2 import SingleMessageMetadata


class OpenBatch:
    """Messages that will leave as one entry, with the two bounds that do not need a clock.

    Attributes:
        headers: metadata of each message, without its size.
        payloads: content of each message.
        futures: of each message.
        bytes: of all payloads.
        created_s: when the first message came, in seconds of the event loop's clock.
    """

    __slots__ = ("_max_bytes", "_max_messages", "bytes", "created_s", "futures", "headers", "payloads")

    def __init__(self, max_messages: int, max_bytes: int):
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.headers: list[SingleMessageMetadata] = []
        self.payloads: list[bytes] = []
        self.futures: list[Future[MessageId]] = []
        self.bytes = 0
        self.created_s = 0.0

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def first_sequence_id(self) -> int:
        """Sequence id of the first message."""
        return self.headers[0].sequence_id

    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the last message."""
        return self.headers[-1].sequence_id

    def has_room_for(self, payload_bytes: int) -> bool:
        """Return whether one more message of that size fits; an empty batch takes any."""
        return not self.payloads or self.bytes + payload_bytes <= self._max_bytes

    @property
    def is_full(self) -> bool:
        """Whether the batch must leave now."""
        return len(self.payloads) >= self._max_messages or self.bytes >= self._max_bytes

    def add(self, header: SingleMessageMetadata, payload: bytes, future: Future[MessageId]) -> None:
        """Add a message behind the others."""
        self.headers.append(header)
        self.payloads.append(payload)
        self.futures.append(future)
        self.bytes += len(payload)

    def encode(self) -> bytes:
        """Return the body of the entry."""
        return encode_batch(list(zip(self.headers, self.payloads, strict=True)))

    def take_futures(self) -> list[Future[MessageId]]:
        """Empty the batch and return the futures of its messages."""
        futures = self.futures
        self.headers, self.payloads, self.futures, self.bytes = [], [], [], 0
        return futures
