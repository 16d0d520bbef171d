"""Well-formed frames with deliberately hostile values, built from the protobuf descriptors.

A message is a tree: a dictionary from field name to value, or to a list of values. `encode` writes it without
protobuf's checks, so that a string may hold bytes that are no UTF-8. `tree_of` fills in the fields of a message, with
names and ids that exist where the field has one; `spoil` replaces some of them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import google_crc32c
from google.protobuf.descriptor import FieldDescriptor
from magnetar.wire.bulk import varint
from magnetar.wire.pulsar_api_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata

from tests.broker.raw import FIELDS

Tree = dict[str, Any]
Descriptor = Any
"""`DESCRIPTOR` of a message; the stubs know two classes of it."""
Sane = Mapping[str, Callable[[], Any]]
"""What a field of that name holds in an honest frame."""

NUMBERS = (
    0, 1, 2, 63, 64, 127, 1000, 65535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1, -1, -2, -(1 << 31), -(1 << 63),
)  # fmt: skip
STRINGS = (
    b"", b" ", b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"a\0b",
    b"\x1b[31m\x1b]0;x\x07",
    b"line\r\nline", "\u2028\u202e\ufeff".encode(), "é".encode() * 400, b"../../etc", b"%s%n{}", b"NaN", b"1e400",
    b"[" * 2000,
    b"(((a+)+)+)+!", b"public/fuzz/.*.*.*.*.*!", b"(?=x)\\1", b"a{1000}{1000}", b"\\", b"*",
    b"persistent://public/fuzz/x-partition-99999999999999999999", b"non-persistent://public/fuzz/x",
    b"persistent://no/such/topic", b"persistent://public/fuzz/", b"://", b"pulsar.dedup", b"__compaction",
    b"x" * 70_000,
)  # fmt: skip
HUGE_REPEATS = (100, 1000, 20_000)
LARGE_FRAME_BYTES = 2_000_000
_VARINTS = {
    FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM,
}  # fmt: skip


def encode(kind: Descriptor, tree: Tree) -> bytes:
    """Encode a message in the order of the tree."""
    parts = []
    for name, value in tree.items():
        field = kind.fields_by_name[name]
        for one in value if isinstance(value, list) else [value]:
            parts.append(_encode_one(field, one))
    return b"".join(parts)


def _encode_one(field: FieldDescriptor, value: Any) -> bytes:
    if field.type in _VARINTS:
        return varint(field.number << 3) + varint(int(value))
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return varint(field.number << 3 | 1) + struct.pack("<d", value)
    assert field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE), (
        field.type
    )
    if field.message_type is not None:
        body = encode(field.message_type, value)
    else:
        body = value.encode() if isinstance(value, str) else value
    return varint(field.number << 3 | 2) + varint(len(body)) + body


def tree_of(rng: random.Random, kind: Descriptor, sane: Sane, often: float = 0.25, depth: int = 0) -> Tree:
    """Build a message with all required fields and some optional ones; ``sane`` supplies valid values."""
    tree: Tree = {}
    for field in kind.fields:
        if not field.is_required and rng.random() > often:
            continue
        value = sane[field.name]() if field.name in sane else None
        if value is not None and (field.message_type is not None) == isinstance(value, (dict, list)):
            tree[field.name] = value
        elif field.is_repeated:
            tree[field.name] = [_modest(rng, field, sane, depth) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
        else:
            tree[field.name] = _modest(rng, field, sane, depth)
    return tree


def _modest(rng: random.Random, field: FieldDescriptor, sane: Sane, depth: int) -> Any:
    if field.message_type is not None:
        return tree_of(rng, field.message_type, sane, 0.3 if depth < 3 else 0.0, depth + 1)
    if field.enum_type is not None:
        return rng.choice([value.number for value in field.enum_type.values])
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return f"v{rng.randrange(5)}".encode()
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.randrange(2)
    return rng.choice((0, 1, 2, 3, 100))


def spoil(rng: random.Random, kind: Descriptor, tree: Tree, times: int, *, repeats: bool = True) -> None:
    """Replace, add or, with ``repeats``, repeat ``times`` fields of a message or of its nested messages."""
    for _ in range(times):
        target_kind, target = kind, tree
        while True:
            below = [
                (target_kind.fields_by_name[name].message_type, value)
                for name, values in target.items()
                if target_kind.fields_by_name[name].message_type is not None
                for value in (values if isinstance(values, list) else [values])
                # What is repeated by the thousand is one object: spoiling it again would make gigabytes of it.
                if not isinstance(values, list) or len(values) <= 5
            ]
            if not below or rng.random() < 0.5:
                break
            target_kind, target = rng.choice(below)
        if target_kind.fields:
            _spoil_field(rng, target_kind, target, repeats)


def _spoil_field(rng: random.Random, kind: Descriptor, tree: Tree, repeats: bool) -> None:
    field = rng.choice(kind.fields)
    if rng.random() < 0.03:
        tree.pop(field.name, None)
        return
    value = _hostile(rng, field)
    if repeats and field.is_repeated and rng.random() < 0.5:
        size = max(1, len(_encode_one(field, value)))
        count = min(rng.choice(HUGE_REPEATS), LARGE_FRAME_BYTES // size)
        if rng.random() < 0.5 and count <= 1000:
            tree[field.name] = [_hostile(rng, field) for _ in range(min(count, 200))]
        else:
            tree[field.name] = [value] * count
    else:
        tree[field.name] = [value] if field.is_repeated else value


def _hostile(rng: random.Random, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        tree = tree_of(rng, field.message_type, {}, 0.6, 1)
        spoil(rng, field.message_type, tree, 1, repeats=False)
        return tree
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return rng.choice(STRINGS) if rng.random() < 0.9 else rng.randbytes(rng.choice((1, 8, 9, 300)))
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return rng.choice((0.0, float("nan"), float("inf"), -1e308))
    if field.enum_type is not None and rng.random() < 0.5:
        return rng.choice([value.number for value in field.enum_type.values])
    return rng.choice(NUMBERS)


def command_frame(kind: str, tree: Tree, payload: bytes = b"", type_: int | None = None) -> bytes:
    """Return a complete frame around a command; ``type_`` may give it a false type."""
    field: Any = BaseCommand.DESCRIPTOR.fields_by_name[FIELDS[kind]]
    number = BaseCommand.Type.Value(kind) if type_ is None else type_
    body = b"\x08" + varint(number) + _encode_one(field, tree)
    return struct.pack(">II", 4 + len(body) + len(payload), len(body)) + body + payload


def fields_of(kind: str) -> Descriptor:
    """Return the message of a command."""
    return BaseCommand.DESCRIPTOR.fields_by_name[FIELDS[kind]].message_type


def payload_section(rng: random.Random, metadata: Tree, body: bytes, is_spoiled: bool) -> bytes:
    """Return the part after a SEND: checksum, metadata, body. If spoiled, sizes, checksum and headers may be false."""
    head = encode(MessageMetadata.DESCRIPTOR, metadata)
    size = len(head)
    if is_spoiled and rng.random() < 0.2:
        size = rng.choice((0, 1, size - 1, size + 1, 1 << 31, (1 << 32) - 1))
    section = struct.pack(">I", size) + head + body
    checksum = google_crc32c.value(section)
    if is_spoiled and rng.random() < 0.1:
        checksum ^= 1
    if not (is_spoiled and rng.random() < 0.1):
        section = struct.pack(">HI", 0x0E01, checksum) + section
    if is_spoiled and rng.random() < 0.15:
        entry = tree_of(rng, BrokerEntryMetadata.DESCRIPTOR, {}, 0.8)
        block = encode(BrokerEntryMetadata.DESCRIPTOR, entry)
        size = len(block) if rng.random() < 0.7 else rng.choice(NUMBERS) & 0xFFFFFFFF
        section = struct.pack(">HI", 0x0E02, size) + block + section
    return section


def batch_body(rng: random.Random, count: int, is_spoiled: bool) -> bytes:
    """Return the body of a batch. If spoiled, the metadata of its messages may be arbitrary."""
    parts = []
    for number in range(count):
        payload = b"m%d" % number
        tree: Tree = {"payload_size": len(payload)}
        if is_spoiled and rng.random() < 0.3:
            spoil(rng, SingleMessageMetadata.DESCRIPTOR, tree, 1)
        head = encode(SingleMessageMetadata.DESCRIPTOR, tree)
        parts.append(struct.pack(">I", len(head)) + head + payload)
    return b"".join(parts)
