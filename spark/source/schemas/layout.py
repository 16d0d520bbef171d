"""Determines the columns of a read from the schemas of its topics and the selected columns.

The columns are those of the newest schema, or those named in `.schema(…)`. They are chosen in the driver and sent to
the tasks, so that all rows of a DataFrame have the same columns, even if schemas are added meanwhile.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from ....errors import InvalidConfig, SchemaSerializationError
from ....wire.topic_name import TopicName, parse_topic_name
from ..columns import ARROW_TYPES
from ..connection import Routes
from ..options import COLUMNS, NOT_NULL, ReadOptions
from ..topic_metadata import matching
from .fitting import can_fit, with_hints
from .registry import SchemaRegistry
from .spark_types import arrow_fields, spark_struct
from .values import column_type, parts_of

log = logging.getLogger(__name__)
VALUE, KEY = "value", "__key"
OF_MESSAGES = tuple(name for name in ARROW_TYPES if name != VALUE)
"""Columns of any topic; the type of `KEY` depends on the schema for KEY_VALUE."""
_RAW = "or omit useTopicSchema to read values as bytes"


@dataclass(frozen=True)
class ColumnTypes:
    """Column types of a topic's values and keys.

    Attributes:
        value: type of the values; fields of a struct become columns.
        key: type of the keys.
    """

    value: pa.DataType
    key: pa.DataType

    @property
    def fields(self) -> list[pa.Field]:
        """Columns for the values."""
        return list(self.value) if pa.types.is_struct(self.value) else [pa.field(VALUE, self.value)]


@dataclass(frozen=True)
class Layout:
    """Columns created by tasks.

    Attributes:
        schema: schema of the record batches.
        wanted: column types of each topic's values and keys, by full topic name without partition suffix.
        otherwise: column types for topics that were added later.
    """

    schema: pa.Schema
    wanted: Mapping[str, ColumnTypes]
    otherwise: ColumnTypes

    def of(self, topic: TopicName) -> ColumnTypes:
        """Return the column types of a topic's values and keys."""
        return self.wanted.get(topic.base.text, self.otherwise)


class TopicSchemas:
    """Current schemas of a read's topics."""

    def __init__(self, options: ReadOptions):
        """Fetch the schemas from the broker.

        Raises:
            InvalidConfig: a schema cannot be represented as columns.
            MagnetarError: the request failed.
        """
        routes = Routes(options.service_url, options.security, options.timeouts)
        self._registry = SchemaRegistry(routes)
        self._options = options
        names = options.topics if options.pattern is None else map(parse_topic_name, matching(routes, options.pattern))
        self._types: dict[TopicName, ColumnTypes] = {
            topic: self._types_of(topic) for topic in dict.fromkeys(name.base for name in names)
        }
        if not self._types:
            raise InvalidConfig(
                f"no topic matches topicsPattern={options.pattern!r}, so the schema is unknown: name topics, {_RAW}"
            )

    def _types_of(self, topic: TopicName) -> ColumnTypes:
        info = self._registry.newest(topic)
        try:
            parts = parts_of(info)
            key = ARROW_TYPES[KEY] if parts.key is None else column_type(parts.key)
            types = ColumnTypes(column_type(parts.value), key)
        except SchemaSerializationError as error:
            raise InvalidConfig(f"{topic}: {error}; {_RAW}") from error
        for field in types.fields:
            if field.name in OF_MESSAGES:
                raise InvalidConfig(
                    f"{topic}: schema field {field.name} has the same name as a message column: rename the field,"
                    f" {_RAW}"
                )
        if info.type_name == "BYTES":
            log.warning("%s has no schema; reading its values as bytes", topic)
        return types

    @property
    def are_different(self) -> bool:
        """Whether the topics have different columns."""
        return len({(types.value, types.key) for types in self._types.values()}) > 1

    def columns(self) -> StructType:
        """Return the columns of the newest schema, followed by message columns.

        Raises:
            InvalidConfig: the topics have different columns, or an option names an unknown column.
        """
        if self.are_different:
            self._check_allowed(".schema(…) selects the columns")
            types = ColumnTypes(ARROW_TYPES[VALUE], ARROW_TYPES[KEY])
        else:
            types = next(iter(self._types.values()))
        of_messages = [
            pa.field(name, types.key if name == KEY else ARROW_TYPES[name], name not in NOT_NULL)
            for name in OF_MESSAGES
            if name in COLUMNS or name.lower() in map(str.lower, self._options.columns)
        ]
        return spark_struct(_chosen([*types.fields, *of_messages], self._options.columns))

    def _check_allowed(self, what: str) -> None:
        if self._options.allow_different_schemas:
            return
        first, *others = self._types
        other = next(name for name in others if self._types[name] != self._types[first])
        raise InvalidConfig(
            f"{first} and {other} have different schemas: read only one of them, or set"
            f" allowDifferentTopicSchemas=true, where {what}, and values are otherwise read as bytes"
        )

    def layout(self, schema: StructType) -> Layout | None:
        """Return the layout of a DataFrame's columns, or None to return values as bytes.

        Raises:
            InvalidConfig: a column is missing from the schemas or has another type; the message names it.
        """
        fields = arrow_fields(schema)
        chosen = {name.lower() for name in self._options.columns}
        if chosen and chosen != {field.name.lower() for field in fields}:
            raise InvalidConfig("option columns and .schema(…) select different columns: omit one of them")
        for field in fields:
            if field.name in OF_MESSAGES and field.name != KEY and field.type != ARROW_TYPES[field.name]:
                raise InvalidConfig(
                    f"column {field.name} has type {ARROW_TYPES[field.name]}, not {field.type}: declare it with that"
                    " type"
                )
        ours = [field for field in fields if field.name not in OF_MESSAGES]
        if self.are_different:
            self._check_allowed(".schema(…) selects the columns")
            if all(field.name == VALUE and field.type == ARROW_TYPES[VALUE] for field in ours):
                return None
        key = next((field.type for field in fields if field.name == KEY), None)
        wanted = {topic.text: self._wanted(topic, ours, key) for topic in self._types}
        return Layout(pa.schema(fields), wanted, next(iter(wanted.values())))

    def _wanted(self, topic: TopicName, ours: Sequence[pa.Field], key: pa.DataType | None) -> ColumnTypes:
        types = self._types[topic]
        key = types.key if key is None else key
        try:
            can_fit(types.key, key, KEY)
            if not pa.types.is_struct(types.value):
                if [field.name for field in ours] not in ([], [VALUE]):
                    other = next(field.name for field in ours if field.name != VALUE)
                    raise InvalidConfig(
                        f"unknown column {other}: the values of {topic} are not records but {types.value}, in the"
                        " column value"
                    )
                value = ours[0].type if ours else types.value
                can_fit(types.value, value, VALUE)
                return ColumnTypes(with_hints(value, types.value), with_hints(key, types.key))
            value = pa.struct(ours)
            can_fit(types.value, value, "")
        except SchemaSerializationError as error:
            raise InvalidConfig(
                f"{topic}: {error}: declare it as in the topic's schema, or cast it after reading"
            ) from error
        value = with_hints(value, types.value)
        self._check_known(topic, value)
        return ColumnTypes(value, with_hints(key, types.key))

    def _check_known(self, topic: TopicName, wanted: pa.DataType) -> None:
        """Reject columns that are missing from all versions of the schema, as they would always be null."""
        names = {field.name for field in self._types[topic].value}
        missing = [field.name for field in wanted if field.name not in names]
        if missing:
            for info in self._registry.older(topic):
                try:
                    found = column_type(parts_of(info).value)
                except SchemaSerializationError:
                    continue
                missing = [name for name in missing if not pa.types.is_struct(found) or found.get_field_index(name) < 0]
        if missing:
            near = difflib.get_close_matches(missing[0], names, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(sorted(names))}"
            raise InvalidConfig(f"column {missing[0]} is not in any schema version of {topic}: {hint}")


def _chosen(fields: list[pa.Field], names: Sequence[str]) -> list[pa.Field]:
    """Return the fields named in the option ``columns``, in the given order; all fields if it is empty."""
    if not names:
        return fields
    exact = {field.name: field for field in fields}
    by_small = {field.name.lower(): field for field in reversed(fields)}
    found = []
    for name in names:
        field = exact.get(name) or by_small.get(name.lower())
        if field is None:
            raise InvalidConfig(f"unknown column {name!r} in option columns: expected {', '.join(exact)}")
        found.append(field)
    return list(dict.fromkeys(found))
