"""A key of a server's file: the corresponding setting and the conversion of its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Key(NamedTuple):
    """The setting that a key sets, and the reader of its value.

    Attributes:
        record: group of settings: ``broker``, ``storage``, ``worker``, ``state``, ``tls``, ``security``,
            ``authorization`` or ``client``.
        field: field of the group; empty if the value is only checked.
        read: converts the file's value to the field's; raises ValueError.
    """

    record: str
    field: str
    read: Callable[[Any], Any]
