"""A key of a server's file: what it sets, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Key(NamedTuple):
    """What a key of the file sets.

    Attributes:
        record: which settings it belongs to: ``broker``, ``storage``, ``worker``, ``state``, ``tls``, ``security``,
            ``authorization`` or ``client``.
        field: field of that record; empty if the value is only checked.
        read: turns the file's value into the field's; raises ValueError.
    """

    record: str
    field: str
    read: Callable[[Any], Any]
