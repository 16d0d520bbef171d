"""Number of messages that an entry can have, whatever its producer said: what consumers are charged for it.

A client gives a permit back for each message that it took. For a batch that it cannot take apart it gives back one. So
a batch that claims more messages than its bytes can hold is charged as one message; charged as it claims, it would use
up the permits of its consumer for ever.

Source: Pulsar binary protocol, section FLOW permits.
"""

from __future__ import annotations

from ...errors import ProtocolError
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.payload import open_payload
from ..storage.entry import StoredEntry


def limit_message_count(entry: StoredEntry, max_message_bytes: int) -> StoredEntry:
    """Return an entry with a number of messages that it can have.

    Call it for entries that seem too small for their messages, or overdraw the permits; it looks into the entry.

    Args:
        entry: as it is stored.
        max_message_bytes: the largest batch that clients take, uncompressed.
    """
    try:
        metadata, body = open_payload(entry.payload)
    except ProtocolError:
        return entry._replace(messages=1)
    size = len(entry.payload) - body
    if metadata.compression and metadata.uncompressed_size <= max_message_bytes:
        size = metadata.uncompressed_size
    messages = min(entry.messages, metadata.num_messages_in_batch)
    return entry._replace(messages=messages if 0 < messages * MIN_MESSAGE_BYTES <= size else 1)
