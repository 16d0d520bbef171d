"""Names of tables: of a function's own, with the epoch that its instances know, and of the copies that are kept of it.

A function's name has no colon, so what stands behind one is ours.
"""

from __future__ import annotations

from collections.abc import Iterable

_EPOCH = ":"
_KEPT = ":kept:"
_UNFINISHED = ":unfinished"


def with_epoch(table: str, epoch: int) -> str:
    """Return the name by which a client calls a table of an epoch; that of the first, 0, is the table's own."""
    return f"{table}{_EPOCH}{epoch}" if epoch else table


def split_epoch(name: str) -> tuple[str, int]:
    """Return a table's own name and the epoch of what `with_epoch` returned."""
    table, colon, epoch = name.rpartition(_EPOCH)
    return (table, int(epoch)) if colon and epoch.isascii() and epoch.isdigit() else (name, 0)


def kept_name(table: str, version: int) -> str:
    """Return the name of the copy of a version."""
    return f"{table}{_KEPT}{version}"


def unfinished_name(table: str) -> str:
    """Return the name of a copy that is being made; there is one at a time."""
    return f"{table}{_UNFINISHED}"


def is_copy(name: str) -> bool:
    """Return whether a name is that of a copy."""
    return _KEPT in name or name.endswith(_UNFINISHED)


def is_useless(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is that of a copy which was not finished, or whose table is gone."""
    return name.endswith(_UNFINISHED) or (_KEPT in name and name.rpartition(_KEPT)[0] not in names)


def copies_of(table: str, names: Iterable[str]) -> list[str]:
    """Return which of all names are those of copies of a table."""
    return [name for name in names if name.startswith((table + _KEPT, table + _UNFINISHED))]


def kept_versions(table: str, names: Iterable[str]) -> list[int]:
    """Return of which versions of a table there are copies among all names; the newest first."""
    start = table + _KEPT
    return sorted((int(name.removeprefix(start)) for name in names if name.startswith(start)), reverse=True)
