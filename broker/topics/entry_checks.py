"""Validation of numbers in entry metadata.

The number of messages in a batch determines the permits deducted from consumers and the memory reserved for the batch.
It must therefore be plausible: each message takes at least `MIN_MESSAGE_BYTES` of the body. For a compressed body, the
declared uncompressed size is used, up to the broker's maximum message size, which also applies to clients. Encryption
never makes a body shorter.

Apache Pulsar performs no such validation.
"""

from __future__ import annotations

from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.pulsar_api_pb2 import NONE, MessageMetadata

MAX_TIME_MS = (1 << 63) - 1


def unacceptable(metadata: MessageMetadata, body_bytes: int, max_message_bytes: int) -> str | None:
    """Return the reason for rejecting an entry, or None if it is valid.

    Args:
        metadata: metadata of the entry.
        body_bytes: size of the body after the metadata.
        max_message_bytes: the broker's maximum message size.
    """
    if metadata.publish_time > MAX_TIME_MS:
        return f"publish_time={metadata.publish_time} is out of range: expected milliseconds below 2^63"
    messages = metadata.num_messages_in_batch
    if not metadata.HasField("num_messages_in_batch"):
        return None
    plain_bytes = body_bytes
    if metadata.compression != NONE:
        plain_bytes = max(body_bytes, min(metadata.uncompressed_size, max_message_bytes))
    if not 1 <= messages <= max(1, plain_bytes // MIN_MESSAGE_BYTES):
        return (
            f"num_messages_in_batch={messages} is out of range: expected at least 1 message, and at least"
            f" {MIN_MESSAGE_BYTES} bytes per message in a batch of {plain_bytes} bytes"
        )
    return None
