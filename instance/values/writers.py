"""Decode messages with the schemas that they were written with.

The function's thread processes the messages of a unit, which may have several versions of the topic's schema. It
reports its position before each step. The version of a message is then known without checking each message, because it
is a property of the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any, Protocol

from ...api.serde import SerDe
from ...client.schemas.schema import Schema, SchemaInfo
from ...errors import MagnetarError, SchemaSerializationError
from .objects import SchemaSerDe
from .wanted import Wanted

Found = SchemaInfo | MagnetarError | None
"""A writer's schema; an error if it is unavailable; or None if a message has none or needs none."""
Find = Callable[[str, bytes], Found]
"""Returns a version of a topic's schema, waiting for the broker if needed."""


class Entry(Protocol):
    """The attributes of an entry that are used here."""

    @property
    def topic(self) -> str:
        """Full topic name."""

    @property
    def metadata(self) -> Any:
        """Metadata of the entry."""


class Unit(Protocol):
    """The unit of the current messages."""

    @property
    def entries(self) -> Sequence[Any]:
        """Entries of the unit."""

    def locate(self, position: int) -> tuple[Any, int]:
        """Return the entry and index of a position."""


class WriterSerDe(SerDe):
    """Decodes values with the writer's schema."""

    def __init__(self, schema: Schema[Any], wanted: Wanted, find: Find) -> None:
        """Create a SerDe for a schema; ``find`` returns writers' schemas."""
        self.schema = schema
        self._plain = SchemaSerDe(schema, wanted)
        self._find = find
        self._unit: Unit | None = None
        self._found: dict[tuple[str, bytes], Found] = {}
        self._writers: Iterator[Found] = repeat(None)

    def follow(self, unit: Unit, position: int) -> None:
        """Prepare to decode a unit's messages in order, starting at a position.

        Raises:
            InstanceStopping: a writer's schema is unknown, and the instance is stopping.
        """
        if unit is not self._unit:
            keys = {_key(entry) for entry in unit.entries}
            self._found = {key: self._find(*key) for key in keys}
            self._unit = unit
        if len(self._found) == 1:
            self._writers = repeat(next(iter(self._found.values())))
        else:
            self._writers = (self._found[_key(unit.locate(at)[0])] for at in count(position))

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a value; raises the same errors as `SchemaSerDe.serialize`."""
        return self._plain.serialize(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode the next message; raises the same errors as `Schema.decode`."""
        return self._decode(next(self._writers), input_bytes)

    def decode_of(self, key: tuple[str, bytes], input_bytes: bytes) -> Any:
        """Decode a message, given its topic and schema version; raises the same errors as `deserialize`."""
        return self._decode(self._find(*key), input_bytes)

    def _decode(self, writer: Found, input_bytes: bytes) -> Any:
        if isinstance(writer, MagnetarError):
            raise SchemaSerializationError(f"the schema that the message was written with is unavailable: {writer}")
        return self.schema.decode(input_bytes, writer)


def _key(entry: Entry) -> tuple[str, bytes]:
    return entry.topic, entry.metadata.schema_version


def decoder_of(serde: SerDe, entry: Entry) -> Callable[[bytes], Any]:
    """Return a decoder for messages of an entry, independent of the current position."""
    return partial(serde.decode_of, _key(entry)) if isinstance(serde, WriterSerDe) else serde.deserialize


def follow(serde: SerDe, unit: Unit, position: int) -> None:
    """Pass the position of the next messages to a SerDe that requires it."""
    if isinstance(serde, WriterSerDe):
        serde.follow(unit, position)
