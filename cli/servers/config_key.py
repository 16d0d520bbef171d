"""A key of a server's file: the setting, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Key(NamedTuple):
    """The setting of a key.

    Attributes:
        record: group of settings: ``broker``, ``storage``, ``worker``, ``state``, ``tls``, ``security``,
            ``authorization`` or ``client``.
        field: field of that group; empty if the value is only checked.
        read: converts the file's value to the field's; raises ValueError.
    """

    record: str
    field: str
    read: Callable[[Any], Any]
