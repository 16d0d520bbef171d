"""Producers that split messages too large for one entry into chunks, one entry each.

These are separate classes, so that other producers do not pay for chunking. A message has the id of its last chunk.

Source: Pulsar binary protocol, section Chunked messages.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from functools import partial
from typing import Unpack

from ...errors import MessageTooLarge
from ...tasks import settle
from ...wire.bulk import send_frame_head
from ...wire.compression import compress
from ...wire.message_id import MessageId
from ..checks import as_bytes
from ..outgoing_message import NO_VALUE, SendOptions, with_time
from .intercepted import InterceptedProducer
from .outgoing import delayed, describe
from .pending_queue import PendingSend
from .producer import Producer

_CHUNK_FIELDS_BYTES = 64
"""Upper bound on the size of the metadata's chunk fields, without the message's uuid."""


class ChunkingProducer(Producer):
    """A producer of one topic, without batching, that sends large messages in chunks."""

    def send_nowait(self, payload: bytes, **options: Unpack[SendOptions]) -> Future[MessageId]:
        """Send a message as in `Producer.send_nowait`; a large message is split into chunks."""
        if payload is not NO_VALUE and type(payload) is not bytes:
            payload = as_bytes(payload)
        limit = self._encoder.max_message_bytes
        if len(payload) <= limit // 2:
            return super().send_nowait(payload, **options)
        self._check_room()
        options = with_time(options, self._clock)
        encoder = self._encoder
        metadata = encoder.metadata(0)
        describe(
            metadata,
            options.get("key"),
            options.get("ordering_key"),
            options.get("properties"),
            options.get("event_time_ms", 0),
        )
        if deliver_at_ms := options.get("deliver_at_ms", 0):
            metadata.MergeFrom(delayed(deliver_at_ms))
        metadata.uncompressed_size = len(payload)
        body = payload
        if encoder.compression:
            metadata.compression = encoder.compression  # type: ignore[assignment]  # the protocol's number itself
            body = compress(encoder.compression, payload)
        room = limit - metadata.ByteSize() - len(self.name) - _CHUNK_FIELDS_BYTES
        if encoder.encryption is not None:
            room -= encoder.encryption.overhead_bytes
        if len(body) <= room:
            return super().send_nowait(payload, **options)
        if room < limit // 2:
            raise MessageTooLarge(
                f"key and properties of a message of {len(payload)} bytes leave only {room} bytes per chunk"
                f" (max_message_bytes={limit}): shorten them"
            )
        sequence_id = metadata.sequence_id = self._ids.assign(options.get("sequence_id"), 1)
        metadata.uuid = f"{self.name}-{sequence_id}"
        metadata.num_chunks_from_msg = -(-len(body) // room)
        metadata.total_chunk_msg_size = len(body)
        whole: Future[MessageId] = self._loop.create_future()
        for number in range(metadata.num_chunks_from_msg):
            metadata.chunk_id = number
            section = encoder.section(metadata, body[number * room : (number + 1) * room])
            head = send_frame_head(self._id, sequence_id, None, 1, True, len(section))
            stored: asyncio.Future[MessageId] = self._loop.create_future()
            is_last = number == metadata.num_chunks_from_msg - 1
            stored.add_done_callback(partial(_chunk_stored, whole, is_last))
            self._enqueue(PendingSend(sequence_id, sequence_id, head, section, 1, self._loop.time(), stored))
        return whole


def _chunk_stored(whole: Future[MessageId], is_last: bool, stored: Future[MessageId]) -> None:
    """Settle a message's future when its last chunk is stored, or any chunk fails."""
    error = stored.exception()
    if error is not None:
        settle(whole, error)
    elif is_last:
        settle(whole, stored.result())


class InterceptedChunkingProducer(InterceptedProducer, ChunkingProducer):
    """A producer with interceptors that sends large messages in chunks."""
