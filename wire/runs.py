"""Runs of MESSAGE or SEND frames, read without a protobuf object per frame.

Unbatched messages arrive by the hundred in one socket read, each with its own command and metadata. These functions
read consecutive frames of the usual form for one consumer or producer, and leave the first frame of any other form to
the caller, which uses protobuf. Both implementations accept and reject the same input.

Design: when compiled by mypyc, commands are read byte by byte (`IS_COMPILED`). In Python this would be slower than
protobuf. There, protobuf reads the first command of a run, and the following commands are compared with its bytes
except for the increasing number. The usual form is the one that clients and brokers in all languages write for messages
without encryption, chunks, transactions, markers and delayed delivery, with fields in any order and numbers of any
length.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError
from mypy_extensions import i64

from .bulk import message_frame_head, varint
from .payload import MAGIC_CHECKSUM
from .pulsar_api_pb2 import BaseCommand, CommandMessage, CommandSend
from .strings import parse_metadata

IS_COMPILED = not __file__.endswith(".py")
"""Whether this module is compiled."""

MessageRow = tuple[int, int, int, int, bytes]
"""Ledger, entry, redelivery count, consumer epoch (-1 for none) and payload section of a MESSAGE. A plain tuple, as one
is created per message."""

SendRow = tuple[int, int, int, int, bytes]
"""Sequence id, highest sequence id (0 for none), number of messages, publish time in milliseconds and payload section
of a SEND with a valid checksum and metadata that a broker accepts."""

MESSAGE_HEAD: Final = b"\x08\x09\x4a"
"""The first bytes of a MESSAGE command: its type and the tag of the sub-message."""
SEND_HEAD: Final = b"\x08\x06\x32"
"""The first bytes of a SEND command."""

NO_METADATA: Final = -1
"""Marks metadata that does not have the usual form."""
HAS_PROPERTIES: Final = 1 << 32
"""Bit in the result of `usual_metadata`."""
IN_BATCH: Final = 1 << 33
"""Bit in the result of `usual_metadata`: the field ``num_messages_in_batch`` is set."""
COUNT_MASK: Final = (1 << 32) - 1
"""Bits in the result of `usual_metadata` that hold the number of messages."""

_MESSAGE_BYTES_MIN: Final = 6  # same as `batch.MIN_MESSAGE_BYTES`, which cannot be imported here
_unpack_sizes = Struct(">II").unpack_from
_unpack_head = Struct(">HII").unpack_from  # magic, checksum, size of the metadata
_parse_command = BaseCommand.FromString
_checksum = google_crc32c.value


def _u32(data: bytes, at: i64) -> i64:
    return i64(data[at]) << 24 | i64(data[at + 1]) << 16 | i64(data[at + 2]) << 8 | i64(data[at + 3])


def _number(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return the varint at an offset, and the offset after it, or -1 if it is truncated or at least 2^63."""
    number: i64 = 0
    shift: i64 = 0
    while at < end and shift < 63:
        byte: i64 = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    return 0, -1


def _behind_number(data: bytes, at: i64, end: i64) -> i64:
    """Return the offset after a varint of at most ten bytes, or -1 if it is invalid."""
    last: i64 = at + 10
    while at < end and at < last:
        byte: i64 = data[at]
        at += 1
        if byte < 128:
            return at if at < last or byte < 2 else -1
    return -1


# -- MESSAGE --------------------------------------------------------------------------------------------------------


def read_messages(data: bytes, start: int, max_frame_bytes: int) -> tuple[int, list[MessageRow], int]:
    """Return the consumer id, its messages, and the offset of the first frame that is not read here.

    Args:
        data: received bytes.
        start: offset of a frame.
        max_frame_bytes: maximum size of frames to read here.
    """
    if IS_COMPILED:
        return _read_messages(data, start, max_frame_bytes)
    return _read_messages_alike(data, start, max_frame_bytes)


def _read_messages(  # noqa: PLR0915 - one loop over the bytes: a call for each part would cost more than the part
    data: bytes, start: int, max_frame_bytes: int
) -> tuple[int, list[MessageRow], int]:
    rows: list[MessageRow] = []
    size: i64 = len(data)
    limit: i64 = max_frame_bytes
    begin: i64 = start
    owner: i64 = -1
    while size - begin >= 8:
        total: i64 = _u32(data, begin)
        end: i64 = begin + 4 + total
        at: i64 = begin + 8
        command_end: i64 = at + _u32(data, begin + 4)
        if total > limit or end > size or command_end > end or command_end - at < 4:
            break
        if data[at] != 0x08 or data[at + 1] != 0x09 or data[at + 2] != 0x4A:
            break
        body: i64 = 0
        body, at = _number(data, at + 3, command_end)
        if at < 0 or at + body != command_end:
            break
        consumer: i64 = -1
        ledger: i64 = -1
        entry: i64 = -1
        redeliveries: i64 = 0
        epoch: i64 = -1
        while at < command_end:
            tag: i64 = data[at]
            number: i64 = 0
            number, at = _number(data, at + 1, command_end)
            if at < 0:
                break
            if tag == 0x08:
                consumer = number
            elif tag == 0x12 and ledger < 0 and number <= command_end - at:
                id_end: i64 = at + number
                while at < id_end:
                    tag = data[at]
                    if tag == 0x08:
                        ledger, at = _number(data, at + 1, id_end)
                    elif tag == 0x10:
                        entry, at = _number(data, at + 1, id_end)
                    elif tag == 0x18 or tag == 0x20 or tag == 0x30:  # partition, batch_index, batch_size
                        at = _behind_number(data, at + 1, id_end)
                    else:
                        at = -1
                    if at < 0:
                        break
                if at < 0:
                    break
            elif tag == 0x18 and number <= 0xFFFFFFFF:
                redeliveries = number
            elif tag == 0x28:
                epoch = number
            else:
                at = -1
                break
        if at < 0 or consumer < 0 or ledger < 0 or entry < 0 or (owner >= 0 and consumer != owner):
            break
        owner = consumer
        rows.append((ledger, entry, redeliveries, epoch, data[command_end:end]))
        begin = end
    return owner, rows, begin


def _read_messages_alike(data: bytes, start: int, max_frame_bytes: int) -> tuple[int, list[MessageRow], int]:
    """Same as `_read_messages`, for commands equal to the first one except for an increasing entry id."""
    rows: list[MessageRow] = []
    size, owner, ledger_id, entry_id, redeliveries, epoch = len(data), -1, -1, -1, 0, -1
    before, after = b"", b""
    while size - start >= 8:
        total, command_bytes = _unpack_sizes(data, start)
        end = start + 4 + total
        command_end = start + 8 + command_bytes
        if total > max_frame_bytes or end > size or command_end > end:
            break
        body = data[start + 8 : command_end]
        entry_id += 1
        if not before or body != before + varint(entry_id) + after:
            message = _usual_message(body)
            if message is None or (rows and message.consumer_id != owner):
                break
            owner, position = message.consumer_id, message.message_id
            ledger_id, entry_id, redeliveries = position.ledgerId, position.entryId, message.redelivery_count
            epoch = message.consumer_epoch if message.HasField("consumer_epoch") else -1
            before, after = _around_entry(message, body)
        rows.append((ledger_id, entry_id, redeliveries, epoch, data[command_end:end]))
        start = end
    return owner, rows, start


def _usual_message(body: bytes) -> CommandMessage | None:
    """Parse a command of the usual form; return None for any other."""
    if not body.startswith(MESSAGE_HEAD):
        return None
    try:
        command = _parse_command(body)
    except DecodeError:
        return None
    message = command.message
    position = message.message_id
    is_whole = message.HasField("consumer_id") and position.HasField("ledgerId") and position.HasField("entryId")
    if command.type != BaseCommand.MESSAGE or not is_whole or message.ack_set or position.ack_set:
        return None
    return message


def _around_entry(message: CommandMessage, body: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a command's entry id; empty if this encoder would write it differently."""
    position = message.message_id
    epoch = message.consumer_epoch if message.HasField("consumer_epoch") else None
    ours = message_frame_head(
        message.consumer_id, position.ledgerId, position.entryId, position.partition, message.redelivery_count, (),
        epoch, 0,
    )  # fmt: skip
    if ours[8:] != body:
        return b"", b""
    after = b"\x18" + varint(position.partition)
    if message.redelivery_count:
        after += b"\x18" + varint(message.redelivery_count)
    if epoch is not None:
        after += b"\x28" + varint(epoch)
    return body[: len(body) - len(after) - len(varint(position.entryId))], after


# -- metadata -------------------------------------------------------------------------------------------------------


def usual_metadata(section: bytes, start: int, end: int) -> int:
    """Parse metadata of the usual form; return the number of messages with `HAS_PROPERTIES` and `IN_BATCH`.

    Compressed or encrypted entries do not have the usual form; strings are not checked.

    Args:
        section: payload section, or other bytes that contain the metadata.
        start: start offset of the metadata.
        end: its end offset in ``section``.

    Returns:
        `NO_METADATA` for metadata that protobuf must parse.
    """
    found, _ = _metadata(section, start, end, False)
    return found


def _metadata(section: bytes, start: i64, end: i64, checks_text: bool) -> tuple[i64, i64]:
    """Same as `usual_metadata`, but also return the publish time (0 for none).

    With ``checks_text``, non-ASCII strings do not count as the usual form, but compression does.
    """
    at: i64 = start
    found: i64 = 1
    count: i64 = 1
    time: i64 = 0
    flags: i64 = 0
    while at < end:
        tag: i64 = section[at]
        number: i64 = 0
        if tag == 0x10:  # sequence_id, of any 64 bits
            at = _behind_number(section, at + 1, end)
            if at < 0:
                return NO_METADATA, 0
            continue
        if tag < 128:
            at += 1
        elif at + 1 < end and section[at + 1] == 1:
            tag = 128 + (tag & 127)
            at += 2
        else:
            return NO_METADATA, 0
        number, at = _number(section, at, end)
        if at < 0:
            return NO_METADATA, 0
        if tag == 0x0A or tag == 0x32:  # producer_name, partition_key
            if number > end - at or (checks_text and not section[at : at + number].isascii()):
                return NO_METADATA, 0
            at += number
        elif tag == 0x22:  # properties
            if number > end - at or not _is_pair(section, at, at + number):
                return NO_METADATA, 0
            if checks_text and not section[at : at + number].isascii():
                return NO_METADATA, 0
            flags |= HAS_PROPERTIES
            at += number
        elif tag == 0x18:
            time = number
        elif tag == 0x58:  # num_messages_in_batch
            if number > 0x7FFFFFFF:
                return NO_METADATA, 0
            count = number
            flags |= IN_BATCH
        elif tag == 0x40:  # compression
            if number != 0 and not checks_text:
                return NO_METADATA, 0
        elif tag == 0x82 or tag == 0x92:  # schema_version, ordering_key
            if number > end - at:
                return NO_METADATA, 0
            at += number
        elif tag != 0x48 and tag != 0x60 and tag != 0x88 and tag != 0xC0 and tag != 0xC8 and tag != 0xF0:
            # none of uncompressed_size, event_time, partition_key_b64_encoded, highest_sequence_id, null_value,
            # null_partition_key
            return NO_METADATA, 0
    found = count | flags
    return found, time


def properties_of_usual(head: bytes) -> bytes:
    """Return the properties in metadata of the usual form, encoded as in a batch, where they have another tag."""
    end: i64 = len(head)
    at: i64 = 0
    begin: i64 = 0
    cut = b""
    while at < end:
        begin = at
        tag: i64 = head[at]
        number: i64 = 0
        at += 1 if tag < 128 else 2
        if tag == 0x10:
            at = _behind_number(head, at, end)
            continue
        number, at = _number(head, at, end)
        if tag == 0x0A or tag == 0x22 or tag == 0x32 or tag == 0x82 or tag == 0x92:
            at += number
            if tag == 0x22:
                cut += b"\x0a" + head[begin + 1 : at]
    return cut


def _is_pair(section: bytes, at: i64, end: i64) -> bool:
    """Return whether bytes are a KeyValue of the usual form: key and value in this order, each below 128 bytes."""
    if end - at < 4 or section[at] != 0x0A:
        return False
    value: i64 = at + 2 + i64(section[at + 1])
    if section[at + 1] > 127 or end - value < 2 or section[value] != 0x12 or section[value + 1] > 127:
        return False
    return value + 2 + i64(section[value + 1]) == end


# -- SEND -----------------------------------------------------------------------------------------------------------


def read_sends(data: bytes, start: int, max_frame_bytes: int) -> tuple[int, list[SendRow], int]:
    """Return the producer id, its entries, and the offset of the first frame that is not read here.

    The entries may be stored unchanged: their checksum, metadata and number of messages are verified.

    Args:
        data: received bytes.
        start: offset of a frame.
        max_frame_bytes: maximum size of frames to read here.
    """
    if IS_COMPILED:
        return _read_sends(data, start, max_frame_bytes)
    return _read_sends_alike(data, start, max_frame_bytes)


def _read_sends(  # noqa: PLR0915 - one loop over the bytes: a call for each part would cost more than the part
    data: bytes, start: int, max_frame_bytes: int
) -> tuple[int, list[SendRow], int]:
    rows: list[SendRow] = []
    size: i64 = len(data)
    limit: i64 = max_frame_bytes
    begin: i64 = start
    owner: i64 = -1
    while size - begin >= 8:
        total: i64 = _u32(data, begin)
        end: i64 = begin + 4 + total
        at: i64 = begin + 8
        command_end: i64 = at + _u32(data, begin + 4)
        if total > limit or end > size or end - command_end < 10 or command_end - at < 4:
            break
        if data[at] != 0x08 or data[at + 1] != 0x06 or data[at + 2] != 0x32:
            break
        body: i64 = 0
        body, at = _number(data, at + 3, command_end)
        if at < 0 or at + body != command_end:
            break
        producer: i64 = -1
        sequence: i64 = -1
        highest: i64 = 0
        while at < command_end:
            tag: i64 = data[at]
            number: i64 = 0
            number, at = _number(data, at + 1, command_end)
            if at < 0:
                break
            if tag == 0x08:
                producer = number
            elif tag == 0x10:
                sequence = number
            elif tag == 0x30:
                highest = number
            elif tag != 0x18 and (tag != 0x38 or number != 0) and (tag != 0x40 or number != 0):
                # none of num_messages, is_chunk, marker
                at = -1
                break
        if at < 0 or producer < 0 or sequence < 0 or (owner >= 0 and producer != owner):
            break
        if data[command_end] != 0x0E or data[command_end + 1] != 0x01:
            break
        metadata_end: i64 = command_end + 10 + _u32(data, command_end + 6)
        if metadata_end > end:
            break
        count: i64 = 0
        time: i64 = 0
        count, time = _metadata(data, command_end + 10, metadata_end, True)
        if count < 0:
            break
        count &= COUNT_MASK
        if count != 1 and (count < 1 or count * _MESSAGE_BYTES_MIN > end - metadata_end):
            break
        section = data[command_end:end]
        if _checksum(section[6:]) != _u32(data, command_end + 2):
            break
        owner = producer
        rows.append((sequence, highest, count, time, section))
        begin = end
    return owner, rows, begin


def _read_sends_alike(data: bytes, start: int, max_frame_bytes: int) -> tuple[int, list[SendRow], int]:
    """Same as `_read_sends`, for commands equal to the first one except for an increasing sequence id."""
    rows: list[SendRow] = []
    size, owner, sequence_id, highest = len(data), -1, -1, 0
    before, after = b"", b""
    while size - start >= 8:
        total, command_bytes = _unpack_sizes(data, start)
        end = start + 4 + total
        command_end = start + 8 + command_bytes
        if total > max_frame_bytes or end > size or command_end > end:
            break
        section = data[command_end:end]
        checked = _storable(section)
        if checked is None:
            break
        body = data[start + 8 : command_end]
        sequence_id += 1
        if not before or body != before + varint(sequence_id) + after:
            send = _usual_send(body)
            if send is None or (rows and send.producer_id != owner):
                break
            owner, sequence_id, highest = send.producer_id, send.sequence_id, send.highest_sequence_id
            before, after = _around_sequence(send, body)
        rows.append((sequence_id, highest, checked[0], checked[1], section))
        start = end
    return owner, rows, start


def _storable(section: bytes) -> tuple[int, int] | None:
    """Return the message count and publish time of an entry that a broker accepts unchanged; None for any other."""
    try:
        magic, checksum, size = _unpack_head(section)
        if magic != MAGIC_CHECKSUM or _checksum(section[6:]) != checksum or size > len(section) - 10:
            return None
        metadata = parse_metadata(section[10 : 10 + size])
    except (StructError, DecodeError):
        return None
    count, time_ms = metadata.num_messages_in_batch, metadata.publish_time
    if count != 1 and not 0 < count * _MESSAGE_BYTES_MIN <= len(section) - 10 - size:
        return None
    is_usual = (
        time_ms < 1 << 63
        and not metadata.deliver_at_time
        and not metadata.num_chunks_from_msg
        and not metadata.HasField("marker_type")
    )
    return (count, time_ms) if is_usual else None


def _usual_send(body: bytes) -> CommandSend | None:
    """Parse a command of the usual form; return None for any other."""
    if not body.startswith(SEND_HEAD):
        return None
    try:
        command = _parse_command(body)
    except DecodeError:
        return None
    send = command.send
    is_whole = send.HasField("producer_id") and send.HasField("sequence_id") and send.sequence_id < 1 << 63
    has_more = send.HasField("txnid_least_bits") or send.HasField("txnid_most_bits") or send.is_chunk or send.marker
    if command.type != BaseCommand.SEND or not is_whole or has_more or send.highest_sequence_id >= 1 << 63:
        return None
    return send


def _around_sequence(send: CommandSend, body: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a command's sequence id, or empty bytes if the id may also occur elsewhere."""
    if send.HasField("highest_sequence_id"):
        return b"", b""  # this number also increases
    producer = b"\x08" + varint(send.producer_id) + b"\x10"
    sequence = varint(send.sequence_id)
    at = len(SEND_HEAD) + 1  # of a command of less than 128 bytes
    if body[at - 1] > 127 or not body.startswith(producer + sequence, at):
        return b"", b""
    end = at + len(producer) + len(sequence)
    after = body[end:]
    if after not in (b"", b"\x18" + varint(send.num_messages)):
        return b"", b""
    return body[: at + len(producer)], after
