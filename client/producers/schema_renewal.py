"""Updates pending messages when a producer's schema version changes because its topic was recreated.

A recreated topic restarts its schema version numbers. A message with a version of the deleted topic would be
unreadable, or read with the wrong schema.
"""

from __future__ import annotations

from ...wire.bulk import send_frame_head
from ...wire.payload import open_payload, seal, verify_checksum
from .pending_queue import PendingQueue, PendingSend


def renew_versions(pending: PendingQueue, producer_id: int, old: bytes, new: bytes) -> None:
    """Replace a schema version in pending messages by another.

    Messages with other versions are unchanged. Messages damaged in memory are not rewritten, so that the broker rejects
    them.

    Args:
        pending: the pending messages.
        producer_id: the producer's id.
        old: the version to replace; not empty.
        new: the new version; an empty one removes the version.
    """
    for send in pending:
        renewed = _renewed(send, producer_id, old, new)
        if renewed is not None:
            pending.rewrite(send, *renewed)


def _renewed(send: PendingSend, producer_id: int, old: bytes, new: bytes) -> tuple[bytes, bytes] | None:
    """Return head and payload section with the new version, or None if unchanged."""
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
