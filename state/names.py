"""Names of function tables, with the epoch known to their instances, and of table copies.

Function names contain no colon, so suffixes after a colon are reserved for this module.
"""

from __future__ import annotations

from collections.abc import Iterable

_EPOCH = ":"
_KEPT = ":kept:"
_UNFINISHED = ":unfinished"


def with_epoch(table: str, epoch: int) -> str:
    """Return the name that a client uses for a table in an epoch; in epoch 0 the plain table name."""
    return f"{table}{_EPOCH}{epoch}" if epoch else table


def split_epoch(name: str) -> tuple[str, int]:
    """Split a name from `with_epoch` into the plain table name and the epoch."""
    table, colon, epoch = name.rpartition(_EPOCH)
    return (table, int(epoch)) if colon and epoch.isascii() and epoch.isdigit() else (name, 0)


def kept_name(table: str, version: int) -> str:
    """Return the name of the copy of a version."""
    return f"{table}{_KEPT}{version}"


def unfinished_name(table: str) -> str:
    """Return the name of a table's unfinished copy; there is at most one at a time."""
    return f"{table}{_UNFINISHED}"


def is_copy(name: str) -> bool:
    """Return whether a name belongs to a copy."""
    return _KEPT in name or name.endswith(_UNFINISHED)


def is_useless(name: str, names: Iterable[str]) -> bool:
    """Return whether a name belongs to an unfinished copy, or to a copy of a deleted table."""
    return name.endswith(_UNFINISHED) or (_KEPT in name and name.rpartition(_KEPT)[0] not in names)


def copies_of(table: str, names: Iterable[str]) -> list[str]:
    """Return the names of a table's copies, given all names."""
    return [name for name in names if name.startswith((table + _KEPT, table + _UNFINISHED))]


def kept_versions(table: str, names: Iterable[str]) -> list[int]:
    """Return the versions of a table's copies, given all names; newest first."""
    start = table + _KEPT
    return sorted((int(name.removeprefix(start)) for name in names if name.startswith(start)), reverse=True)
