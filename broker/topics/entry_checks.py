"""Validation of the numbers in the metadata of entries.

The number of messages in a batch decides what consumers are charged and how much memory is reserved for it, so it must
be plausible: each message takes at least `MIN_MESSAGE_BYTES` of the body. For a compressed body, the announced size
counts, up to the broker's largest message, which is also the limit of clients. Encryption makes a body longer, never
shorter.

Pulsar itself stores any number.
"""

from __future__ import annotations

from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.pulsar_api_pb2 import NONE, MessageMetadata

MAX_TIME_MS = (1 << 63) - 1


def unacceptable(metadata: MessageMetadata, body_bytes: int, max_message_bytes: int) -> str | None:
    """Return why an entry is refused, or None.

    Args:
        metadata: of the entry.
        body_bytes: size of the body after the metadata.
        max_message_bytes: the largest message of the broker.
    """
    if metadata.publish_time > MAX_TIME_MS:
        return f"publish_time={metadata.publish_time} is out of range; give milliseconds below 2^63"
    messages = metadata.num_messages_in_batch
    if not metadata.HasField("num_messages_in_batch"):
        return None
    plain_bytes = body_bytes
    if metadata.compression != NONE:
        plain_bytes = max(body_bytes, min(metadata.uncompressed_size, max_message_bytes))
    if not 1 <= messages <= max(1, plain_bytes // MIN_MESSAGE_BYTES):
        return (
            f"num_messages_in_batch={messages} is out of range; a batch has 1 message or more, and each takes"
            f" {MIN_MESSAGE_BYTES} of its {plain_bytes} bytes at least"
        )
    return None
