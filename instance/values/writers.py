"""Decoding with the schema that each message was written with.

The function's thread works on the messages of a unit, which may be of several versions of the topic's schema. It says
where it is before each step; which version a message has is then known without a look at each, as it is a property of
the entry.
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
"""A writer's schema; why it is not to be had; or None where a message has none, or none is needed."""
Find = Callable[[str, bytes], Found]
"""Returns the schema of a topic in a version, waiting for the broker if it is not known."""


class Entry(Protocol):
    """What is looked at in an entry."""

    @property
    def topic(self) -> str:
        """Full name."""

    @property
    def metadata(self) -> Any:
        """Metadata of the entry."""


class Unit(Protocol):
    """The messages at hand."""

    @property
    def entries(self) -> Sequence[Any]:
        """Where they came from."""

    def locate(self, position: int) -> tuple[Any, int]:
        """Return the entry and index of a position."""


class WriterSerDe(SerDe):
    """Values of a schema that is read by that of the writer."""

    def __init__(self, schema: Schema[Any], wanted: Wanted, find: Find) -> None:
        """Read by a schema; ``find`` finds those of writers."""
        self.schema = schema
        self._plain = SchemaSerDe(schema, wanted)
        self._find = find
        self._unit: Unit | None = None
        self._found: dict[tuple[str, bytes], Found] = {}
        self._writers: Iterator[Found] = repeat(None)

    def follow(self, unit: Unit, position: int) -> None:
        """Decode the messages of a unit from a position on, one after the other.

        Raises:
            InstanceStopping: a writer's schema is not known, and the instance is being stopped.
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
        """Return the bytes of a value; as `SchemaSerDe.serialize`."""
        return self._plain.serialize(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the value of the next message; raises as `Schema.decode`."""
        return self._decode(next(self._writers), input_bytes)

    def decode_of(self, key: tuple[str, bytes], input_bytes: bytes) -> Any:
        """Return the value of a message of a topic, written with a version of its schema; as `deserialize`."""
        return self._decode(self._find(*key), input_bytes)

    def _decode(self, writer: Found, input_bytes: bytes) -> Any:
        if isinstance(writer, MagnetarError):
            raise SchemaSerializationError(f"the schema that the message was written with is not to be had: {writer}")
        return self.schema.decode(input_bytes, writer)


def _key(entry: Entry) -> tuple[str, bytes]:
    return entry.topic, entry.metadata.schema_version


def decoder_of(serde: SerDe, entry: Entry) -> Callable[[bytes], Any]:
    """Return what decodes messages of an entry at any time, whichever messages come next."""
    return partial(serde.decode_of, _key(entry)) if isinstance(serde, WriterSerDe) else serde.deserialize


def follow(serde: SerDe, unit: Unit, position: int) -> None:
    """Tell a SerDe which messages come next, if it wants to know."""
    if isinstance(serde, WriterSerDe):
        serde.follow(unit, position)
