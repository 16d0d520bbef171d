"""What is pending when a producer's schema gets another version: its topic was deleted and created again meanwhile.

A topic numbers its schemas in each life anew. With the version of the life before, a message could not be read, or
would be read by another schema.
"""

from __future__ import annotations

from ...wire.bulk import send_frame_head
from ...wire.payload import open_payload, seal, verify_checksum
from .pending_queue import PendingQueue, PendingSend


def renew_versions(pending: PendingQueue, producer_id: int, old: bytes, new: bytes) -> None:
    """Write what is pending with one version of the schema anew with another one.

    What has a version of its own keeps it. What was damaged in memory stays as it is, so that the broker refuses it.

    Args:
        pending: what is not stored yet.
        producer_id: of the producer.
        old: version that they have; not empty.
        new: version that they get; empty for none.
    """
    for send in pending:
        renewed = _renewed(send, producer_id, old, new)
        if renewed is not None:
            pending.rewrite(send, *renewed)


def _renewed(send: PendingSend, producer_id: int, old: bytes, new: bytes) -> tuple[bytes, bytes] | None:
    """Return head and payload section with the new version; None if the old ones stay."""
    if verify_checksum(send.payload) is False:
        return None
    metadata, body = open_payload(send.payload)
    if metadata.schema_version != old:
        return None
    metadata.ClearField("schema_version")
    if new:
        metadata.schema_version = new
    payload = seal(metadata, send.payload[body:])
    highest = metadata.highest_sequence_id if metadata.HasField("highest_sequence_id") else None
    is_chunk = metadata.HasField("chunk_id")
    head = send_frame_head(producer_id, send.sequence_id, highest, send.num_messages, is_chunk, len(payload))
    return head, payload
