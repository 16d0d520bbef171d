"""HTTP endpoints that read single entries: peek, get by id, examine, and message id by timestamp.

The response body is the decompressed payload of the entry, and ``X-Pulsar-…`` headers contain its metadata. A batch is
returned whole, with a count header from which the client splits it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.responses import Response

from ....errors import ProtocolError
from ....web.answers import Refused, as_json
from ....wire.compression import decompress
from ....wire.payload import open_payload
from ....wire.position import Position
from ....wire.pulsar_api_pb2 import CompressionType, MessageMetadata
from ...storage.entry import StoredEntry
from .. import bodies
from ..call import Call
from ..routing import TOPIC, Routes
from .lookup import load_single, persistent
from .stats import as_message_id, iso, nth_unacknowledged, read_entry

if TYPE_CHECKING:
    from ...topics.topic import Topic

MAX_PEEK = 1_000_000
"""Maximum position of a peek; the cursor advances one step per position."""
MAX_UNCOMPRESSED_BYTES = 64 * 1024 * 1024
"""Maximum size of a message to decompress for a response. Clients limit the compressed size, so a message may be larger
than `maxMessageSize`. However, its size is only claimed by the producer, and that much memory is allocated.
"""
_LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, the maximum date. Producers may send any number."""
_TEXT_FIELDS = (
    "producer_name",
    "sequence_id",
    "replicated_from",
    "partition_key",
    "highest_sequence_id",
    "uuid",
    "num_chunks_from_msg",
    "total_chunk_msg_size",
    "chunk_id",
    "marker_type",
)
_FLAG_FIELDS = ("partition_key_b64_encoded", "null_partition_key")


async def _peek(call: Call) -> Response:
    place = call.number("place")
    persistent(call, 405, "Peek messages on a non-persistent topic is not allowed")
    topic = await load_single(call, "Peek messages on a partitioned topic is not allowed")
    subscription = topic.subscriptions.get(call.subscription)
    if not 0 < place <= MAX_PEEK:
        raise Refused(
            400, f"position {place} is out of range: expected 1 to {MAX_PEEK}, from the first unacknowledged message"
        )
    if subscription is None:
        # Pulsar creates the subscription, at the earliest message; here a peek does not change the topic.
        position = None if place > topic.log.entry_count else _nth_position(topic, place)
    else:
        position = await nth_unacknowledged(topic, subscription, place)
    entry = None if position is None else await read_entry(topic, position)
    return await _show(call, entry)


async def _by_id(call: Call) -> Response:
    wanted = Position(call.number("ledger"), call.number("entry"))
    persistent(call)
    topic = await load_single(call, "GetMessageById is not allowed on partitioned-topic")
    if all(ledger.id != wanted.ledger_id for ledger in topic.log.ledgers()):
        raise Refused(404, "Message id not found")
    entry = await read_entry(topic, wanted) if wanted.entry_id >= 0 else None
    if entry is None or entry.position != wanted:
        raise Refused(404, f"Message not found: ledger {wanted.ledger_id} has no entry {wanted.entry_id}")
    return await _show(call, entry)


async def _examine(call: Call) -> Response:
    persistent(call, 405, "Examine messages on a non-persistent topic is not allowed")
    remedy = "please try examine message on specific topic partition"
    topic = await load_single(call, f"Examine messages on a partitioned topic is not allowed, {remedy}")
    count = topic.log.entry_count
    if not count:
        raise Refused(412, "Could not examine messages due to the total message is zero")
    asked = bodies.as_int(call.request.query_params.get("messagePosition", "1"), "messagePosition") or 1
    place = min(max(asked, 1), count)
    if call.request.query_params.get("initialPosition") != "earliest":
        place = count - place + 1
    entry = await read_entry(topic, _nth_position(topic, place))
    return await _show(call, entry)


async def _id_at_time(call: Call) -> Response:
    time_ms = call.number("timestamp")
    persistent(call, 405, "Get message ID by timestamp on a non-persistent topic is not allowed")
    remedy = "please try do it on specific topic partition"
    topic = await load_single(call, f"Get message ID by timestamp on a partitioned topic is not allowed, {remedy}")
    before = await topic.log.position_before_time(time_ms)
    return as_json(as_message_id(topic.log.next_position(before), topic.name.partition))


def _nth_position(topic: Topic, place: int) -> Position:
    """Return the position of the ``place``-th entry of the topic (from 1)."""
    for ledger in topic.log.ledgers():
        if place <= ledger.entries:
            return Position(ledger.id, place - 1)
        place -= ledger.entries
    raise Refused(404, "Message not found")


async def _show(call: Call, entry: StoredEntry | None) -> Response:
    if entry is None:
        raise Refused(404, "Message not found")
    try:
        metadata, start = open_payload(entry.payload)
        body = entry.payload[start:]
        if metadata.compression and not metadata.encryption_keys:
            limit = max(call.broker.config.max_message_bytes, MAX_UNCOMPRESSED_BYTES)
            # In a thread: decompressing megabytes would block the event loop.
            body = await asyncio.to_thread(decompress, metadata.compression, body, metadata.uncompressed_size, limit)
    except ProtocolError as error:
        raise Refused(
            500, f"entry {entry.position.ledger_id}:{entry.position.entry_id} is unreadable: {error}"
        ) from error
    headers = {name: _ascii(value) for name, value in _headers(metadata, entry.position, len(body))}
    return Response(bytes(body), headers=headers, media_type="application/json")


def _headers(metadata: MessageMetadata, position: Position, size: int) -> Iterator[tuple[str, str]]:
    yield "X-Pulsar-Message-ID", f"{position.ledger_id}:{position.entry_id}"
    is_batch = metadata.HasField("num_messages_in_batch")
    properties = {} if is_batch else {item.key: item.value for item in metadata.properties}
    yield "X-Pulsar-PROPERTY", json.dumps(properties, separators=(",", ":"))
    for field in ("publish_time", "event_time", "deliver_at_time"):
        if metadata.HasField(field) and (time_ms := getattr(metadata, field)) > 0:
            yield _header(field), iso(min(time_ms, _LAST_MS)).replace("+00:00", "Z")
    if is_batch:
        yield "X-Pulsar-num-batch-message", str(metadata.num_messages_in_batch)
        yield "X-Pulsar-batch-size", str(size)
    if metadata.null_value:
        yield "X-Pulsar-null-value", "true"
    if metadata.HasField("num_chunks_from_msg"):
        yield "X-Pulsar-PROPERTY-TOTAL-CHUNKS", str(metadata.num_chunks_from_msg)
        yield "X-Pulsar-PROPERTY-CHUNK-ID", str(metadata.chunk_id)
    yield "X-Pulsar-Is-Encrypted", "true" if metadata.encryption_keys else "false"
    for field in _TEXT_FIELDS:
        if metadata.HasField(field):
            yield _header(field), str(getattr(metadata, field))
    for field in _FLAG_FIELDS:
        if getattr(metadata, field):
            yield _header(field), "true"
    if metadata.compression:
        yield "X-Pulsar-compression", CompressionType.Name(metadata.compression)
        yield "X-Pulsar-uncompressed-size", str(metadata.uncompressed_size)
    yield "X-Pulsar-txn-uncommitted", "false"


def _header(field: str) -> str:
    return f"X-Pulsar-{field.replace('_', '-')}"


def _ascii(value: str) -> str:
    """Return a valid HTTP header value; control characters and characters outside Latin-1 become ``?``."""
    return "".join(char if char.isprintable() and ord(char) < 256 else "?" for char in value)


ROUTES: Routes = (
    ("GET", f"{TOPIC}/subscription/{{subscription}}/position/{{place}}", _peek),
    ("GET", f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}", _by_id),
    ("GET", f"{TOPIC}/examinemessage", _examine),
    ("GET", f"{TOPIC}/messageid/{{timestamp}}", _id_at_time),
)
