"""The entry that a producer is filling."""

from __future__ import annotations

from asyncio import Future, TimerHandle

from ...wire.batch import encode_batch
from ...wire.message_id import MessageId
from ...wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


class OpenBatch:
    """Messages that will leave as one entry, with the two bounds that do not need a clock.

    Attributes:
        headers: metadata of each message, without its size.
        payloads: content of each message.
        futures: of each message.
        bytes: of all payloads, keys and properties.
        created_s: when the first message came, in seconds of the event loop's clock.
        timer: closes the batch; None while it is empty.
    """

    __slots__ = ("_max_bytes", "_max_messages", "bytes", "created_s", "futures", "headers", "payloads", "timer")

    def __init__(self, max_messages: int, max_bytes: int):
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.headers: list[SingleMessageMetadata] = []
        self.payloads: list[bytes] = []
        self.futures: list[Future[MessageId]] = []
        self.bytes = 0
        self.created_s = 0.0
        self.timer: TimerHandle | None = None

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
        return futures
