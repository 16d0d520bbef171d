"""Limits per call, checked by the client, whose errors name the function, and again by the service."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidConfig, StateRefused
from ..wire import state_pb2 as pb
from ..wire.position import Position
from .names import is_copy

PUT, DELETE, INCREMENT = b"PDI"
"""Kinds of changes in the columns of ``state.proto``."""

KEY_BYTES_MAX = 4 * 1024
"""Maximum key size: keys are compared on every read, so longer data belongs in the value."""
VALUE_BYTES_MAX = 1024 * 1024
"""Maximum value size: a value is read and written as a whole."""
CHANGES_MAX = 20_000
"""Maximum number of changes per call: they form one transaction, for which other functions wait."""
COMMIT_CHANGES_MAX = 200_000
"""Maximum number of changes per commit; higher, as the changes of one input entry (a batch) cannot be split."""
CALL_BYTES_MAX = 32 * 1024 * 1024
"""Maximum bytes of keys, values and output entries per call; several entries of the broker's maximum size fit."""
READ_KEYS_MAX = 20_000
READ_ANSWER_BYTES = 4 * 1024 * 1024
"""A response is truncated after this size; the client requests the rest."""
NAMES_PER_ANSWER = 1_000
MESSAGE_BYTES_MAX = CALL_BYTES_MAX + 4 * 1024 * 1024
"""gRPC's message limit: the largest call and its frame."""
WRITER_BYTES = 16

DEFAULT_PORT = 4181
TABLE_CHARACTERS_MAX = 1024
SCHEME = "bk://"
TLS_SCHEME = "bk+ssl://"


def check_key(key: bytes) -> None:
    """Reject a key that is empty or too long."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise StateRefused(f"a state key must have 1 to {KEY_BYTES_MAX} bytes, not {len(key)}: {show(key)}", key)


def check_put(key: bytes, data: bytes) -> None:
    """Reject a key or value that exceeds its limit."""
    check_key(key)
    if len(data) > VALUE_BYTES_MAX:
        raise StateRefused(
            f"the value of state key {show(key)} has {len(data)} bytes, more than the limit of {VALUE_BYTES_MAX}:"
            " split it over several keys",
            key,
        )


def check_changes(
    changes: pb.Changes,
    outbox: Sequence[pb.OutboxEntry] = (),
    positions: Sequence[Position | None] = (),
    changes_max: int = CHANGES_MAX,
) -> None:
    """Reject a call whose changes or outputs exceed the limits, individually or in total."""
    keys, data = changes.keys, changes.data
    if len(keys) > changes_max:
        raise StateRefused(
            f"{len(keys)} state changes in one call exceed the limit of {changes_max}: make several calls"
        )
    kinds = changes.kinds
    counts = kinds.count(PUT), kinds.count(DELETE), kinds.count(INCREMENT)
    if (len(kinds), len(data), len(changes.amounts), sum(counts)) != (len(keys), counts[0], counts[2], len(kinds)):
        raise StateRefused(
            f"malformed changes: {len(kinds)} kinds, {len(keys)} keys, {len(data)} values,"
            f" {len(changes.amounts)} amounts"
        )
    key_bytes, data_bytes = list(map(len, keys)), list(map(len, data))
    if keys and not 0 < min(key_bytes) <= max(key_bytes) <= KEY_BYTES_MAX:
        for key in keys:
            check_key(key)
    if data and max(data_bytes) > VALUE_BYTES_MAX:
        puts = (key for key, kind in zip(keys, kinds, strict=True) if kind == PUT)
        for key, value in zip(puts, data, strict=True):
            check_put(key, value)
    outbox_bytes = [len(entry.payload) for entry in outbox]
    call_bytes = sum(key_bytes) + sum(data_bytes) + sum(outbox_bytes)
    if call_bytes > CALL_BYTES_MAX:
        raise StateRefused(
            f"{len(keys)} state changes and {len(outbox)} output entries in one call have {call_bytes} bytes in"
            f" total, more than the limit of {CALL_BYTES_MAX}: make several calls or use smaller values"
        )
    for position in positions:
        if position is not None and not (0 <= position.ledger_id < 2**63 and -1 <= position.entry_id < 2**63):
            raise StateRefused(f"{position} is not a valid input position")
    if any(entry.sequence_id >= 2**63 for entry in outbox):
        raise StateRefused("sequence id of an output entry exceeds 63 bits")


def check_writer(writer: bytes, sequence: int) -> None:
    """Reject a writer id of the wrong length, or a sequence number that is out of range."""
    if len(writer) != WRITER_BYTES or not 0 < sequence < 2**63:
        raise StateRefused(
            f"a writer id must have {WRITER_BYTES} bytes and a positive sequence number, not {len(writer)} bytes and"
            f" {sequence}"
        )


def check_keys(keys: Sequence[bytes]) -> None:
    """Reject a read of too many keys, or of a key beyond its limits."""
    if len(keys) > READ_KEYS_MAX:
        raise StateRefused(
            f"{len(keys)} state keys in one read exceed the limit of {READ_KEYS_MAX}: make several calls"
        )
    for key in keys:
        check_key(key)


def check_table(table: str) -> None:
    """Reject a table name that is not ``tenant/namespace/name``."""
    parts = table.split("/")
    if len(parts) != 3 or not all(parts) or len(table) > TABLE_CHARACTERS_MAX or is_copy(table):
        raise StateRefused(f"invalid state table {table[:100]!r}: expected tenant/namespace/name")


def scheme_of(url: str) -> str:
    """Return the scheme of a ``stateStorageServiceUrl``, or an empty string if it is unsupported."""
    return next((one for one in (SCHEME, TLS_SCHEME) if url.startswith(one)), "")


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of a ``stateStorageServiceUrl``, without a token (see `access`).

    Raises:
        InvalidConfig: the URL is neither ``bk://host:port`` nor ``bk+ssl://host:port``.
    """
    scheme = scheme_of(url)
    place = url.removeprefix(scheme).rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    if not scheme or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        shown = url if "@" not in url else f"{scheme}…@{place}"
        raise InvalidConfig(
            f"invalid stateStorageServiceUrl {shown!r}: expected bk://host:port, such as"
            f" bk://127.0.0.1:{DEFAULT_PORT}, or bk+ssl://host:port for TLS"
        )
    assert colon
    return host, int(port)


def show(key: bytes) -> str:
    """Return a key as text for a message, truncated."""
    text = key[:60].decode(errors="backslashreplace")
    return repr(text) if len(key) <= 60 else f"{text!r}…"
