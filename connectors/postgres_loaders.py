"""How psycopg reads values of PostgreSQL that Python's own types would change, or cannot hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

JSON_TYPES = frozenset((114, 3802, 199, 3807))
"""Numbers of the types json, jsonb, and arrays of these."""
SETTINGS = ("SET datestyle = 'ISO'", "SET intervalstyle = 'postgres'")
"""Of a session whose texts are read by these."""
_BETWEEN = re.compile(r" (?=\d)")
"""The space between day and time, and not the one before BC."""


class RawJson(str):
    """A text that is JSON already, with all digits of its numbers."""

    __slots__ = ()


class SqlText(str):
    """A value as the database shows it, of a type whose other values Python has objects for."""

    __slots__ = ()


def read_exactly(connection: Connection[Any]) -> None:
    """Have JSON read as text, and intervals, whose months have no number of days."""
    from psycopg.types.string import TextLoader

    class JsonLoader(TextLoader):  # type: ignore[misc]
        def load(self, data: Any) -> RawJson:
            text = super().load(data)
            return RawJson(text.decode() if isinstance(text, bytes) else text)

    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, JsonLoader)
    connection.adapters.register_loader("interval", TextLoader)


def read_all_times(connection: Connection[Any]) -> None:
    """Have times that Python has no object for read as texts: infinity, years before 1 and above 9999, and 24:00.

    Times are read several times slower then.
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
