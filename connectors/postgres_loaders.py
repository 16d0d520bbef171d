"""Psycopg loaders for PostgreSQL values that Python's types would change or do not support."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

JSON_TYPES = frozenset((114, 3802, 199, 3807))
"""OIDs of the types json and jsonb, and of arrays of these."""
SETTINGS = ("SET datestyle = 'ISO'", "SET intervalstyle = 'postgres'")
"""Session settings that these loaders require."""
_BETWEEN = re.compile(r" (?=\d)")
"""The space between date and time, but not the one before BC."""


class RawJson(str):
    """A string that is already JSON, with all digits of its numbers."""

    __slots__ = ()


class SqlText(str):
    """A value that Python's type does not support, as represented by the database."""

    __slots__ = ()


def read_exactly(connection: Connection[Any]) -> None:
    """Load JSON as strings, and intervals as well, because months have no fixed number of days."""
    from psycopg.types.string import TextLoader

    class JsonLoader(TextLoader):  # type: ignore[misc]
        def load(self, data: Any) -> RawJson:
            text = super().load(data)
            return RawJson(text.decode() if isinstance(text, bytes) else text)

    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, JsonLoader)
    connection.adapters.register_loader("interval", TextLoader)


def read_all_times(connection: Connection[Any]) -> None:
    """Load times that Python does not support as strings: infinity, years before 1 and after 9999, and 24:00.

    This makes reading times several times slower.
    """
    from psycopg import DataError
    from psycopg.types import datetime as loaders

    def tolerant(loader: type[Any]) -> type[Any]:
        class Tolerant(loader):  # type: ignore[misc]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except DataError:
                    return SqlText(_BETWEEN.sub("T", bytes(data).decode()))

        return Tolerant

    for name, loader in (
        ("date", loaders.DateLoader), ("time", loaders.TimeLoader), ("timetz", loaders.TimetzLoader),
        ("timestamp", loaders.TimestampLoader), ("timestamptz", loaders.TimestamptzLoader),
    ):  # fmt: skip
        connection.adapters.register_loader(name, tolerant(loader))
