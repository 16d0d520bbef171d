"""What one call may carry. Checked by the client, which knows the function, and again by the service."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import InvalidConfig, StateRefused
from .values import COUNTER_MAX, COUNTER_MIN, Change, Delete, Increment, OutboxEntry, Position, Put

KEY_BYTES_MAX = 4 * 1024
"""A key is compared on every read: longer ones belong into the value."""
VALUE_BYTES_MAX = 1024 * 1024
"""A value is read and written whole."""
CHANGES_MAX = 20_000
"""Changes of one call: they are one transaction, and other functions wait behind it."""
CALL_BYTES_MAX = 32 * 1024 * 1024
"""Keys, values and output entries of one call; several entries of the broker's largest size fit."""
READ_KEYS_MAX = 20_000
READ_ANSWER_BYTES = 4 * 1024 * 1024
"""An answer with more than this ends early; the client asks for the rest."""
MESSAGE_BYTES_MAX = CALL_BYTES_MAX + 4 * 1024 * 1024
"""For gRPC: a call of the largest size and its frame."""
WRITER_BYTES = 16

DEFAULT_PORT = 4181
SCHEME = "bk://"


def check_key(key: bytes) -> None:
    """Refuse an empty or too long key."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise StateRefused(f"a state key has 1 to {KEY_BYTES_MAX} bytes, this one {len(key)}: {show(key)}", key)


def check_put(key: bytes, data: bytes) -> None:
    """Refuse a key or value beyond its limit."""
    check_key(key)
    if len(data) > VALUE_BYTES_MAX:
        raise StateRefused(
            f"the value for state key {show(key)} has {len(data)} bytes, the limit is {VALUE_BYTES_MAX};"
            " split it over several keys",
            key,
        )


def check_amount(key: bytes, amount: int) -> None:
    """Refuse a key beyond its limit, or an amount that does not fit 64 bits."""
    check_key(key)
    if not COUNTER_MIN <= amount <= COUNTER_MAX:
        raise StateRefused(f"the increment {amount} of state key {show(key)} does not fit 64 bits", key)


def check_change(change: Change) -> int:
    """Refuse a change beyond the limits of a key, a value or a number; return its bytes on the wire, about."""
    match change:
        case Put(key, data):
            check_put(key, data)
            return len(key) + len(data) + 8
        case Increment(key, amount):
            check_amount(key, amount)
            return len(key) + 16
        case Delete(key):
            check_key(key)
            return len(key) + 4


def check_call(changes: Sequence[Change], outbox: Sequence[OutboxEntry] = ()) -> None:
    """Refuse a call with a change beyond its limits, or with more than one call may carry."""
    if len(changes) > CHANGES_MAX:
        raise StateRefused(f"{len(changes)} state changes in one call, the limit is {CHANGES_MAX}; make several calls")
    call_bytes = sum(map(check_change, changes)) + sum(len(entry.payload) + 256 for entry in outbox)
    if call_bytes > CALL_BYTES_MAX:
        raise StateRefused(
            f"{len(changes)} state changes and {len(outbox)} output entries of together {call_bytes} bytes in one"
            f" call, the limit is {CALL_BYTES_MAX}; make several calls or smaller values"
        )


def check_keys(keys: Sequence[bytes]) -> None:
    """Refuse a question for too many keys, or with one beyond its limits."""
    if len(keys) > READ_KEYS_MAX:
        raise StateRefused(f"{len(keys)} state keys in one question, the limit is {READ_KEYS_MAX}; ask several times")
    for key in keys:
        check_key(key)


def check_table(table: str) -> None:
    """Refuse a table name that is not ``tenant/namespace/name``."""
    parts = table.split("/")
    if len(parts) != 3 or not all(parts) or len(table) > 1024:
        raise StateRefused(f"state table {table[:100]!r} is not tenant/namespace/name")


def check_positions(positions: Iterable[Position | None]) -> None:
    """Refuse a position that the database cannot hold."""
    for position in positions:
        if position is not None and not (0 <= position.ledger_id < 2**63 and -1 <= position.entry_id < 2**63):
            raise StateRefused(f"{position} is no position of an input entry")


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of a ``stateStorageServiceUrl``.

    Raises:
        InvalidConfig: it is not ``bk://host:port``.
    """
    host, colon, port = url.removeprefix(SCHEME).rpartition(":")
    if not url.startswith(SCHEME) or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise InvalidConfig(
            f"stateStorageServiceUrl {url!r} is not bk://host:port, such as bk://127.0.0.1:{DEFAULT_PORT}"
        )
    assert colon
    return host, int(port)


def show(key: bytes) -> str:
    """Return a key as people know it, cut to a line."""
    text = key[:60].decode(errors="backslashreplace")
    return repr(text) if len(key) <= 60 else f"{text!r}…"
