"""Compatibility checks of a new schema against a topic's existing schemas.

Errors: an incompatible schema raises `Incompatible`, whose message names the field that differs.

Source: Pulsar 4.0's SchemaCompatibilityCheck with its implementations, and SchemaRegistryServiceImpl.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from .key_value import parts
from .model import AVRO_BASED, InvalidDefinition, Schema, SchemaType, SchemaVersion, stored_type
from .protobuf_native import root_message
from .validity import old_json_schema


class Strategy(Enum):
    """Compatibility strategy for new schemas, with Pulsar's names. `UNDEFINED` defers to the next level."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all versions are checked instead of only the last one."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_old(self) -> bool:
        """Whether the new schema must be able to read old data."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_old(self) -> bool:
        """Whether old schemas must be able to read new data."""
        return self.value.startswith(("FORWARD", "FULL"))


DEFAULT_STRATEGY = Strategy.FULL
_FOR_CONSUMERS = (Strategy.BACKWARD, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL)
"""Strategies under which a consumer only has to read data of the last version."""


class Incompatible(ValueError):
    """A schema is not compatible with the topic's schemas."""


def version_of(schema: Schema, versions: Sequence[SchemaVersion]) -> int | None:
    """Return the first version with the same schema, or None; properties are ignored."""
    known = identical(schema, versions)
    if known is not None:
        return known
    for version in versions:
        held = version.schema
        if held.type == stored_type(schema.type) and _is_same(held, schema):
            return version.number
    return None


def identical(schema: Schema, versions: Sequence[SchemaVersion]) -> int | None:
    """Return the version with an identical definition, or None. This is a fast path without parsing."""
    type_ = stored_type(schema.type)
    for version in versions:
        if version.schema.type == type_ and version.schema.data == schema.data:
            return version.number
    return None


def check_new(schema: Schema, versions: Sequence[SchemaVersion], strategy: Strategy) -> None:
    """Raise if a new schema is incompatible with the existing versions.

    Args:
        schema: new schema, with a valid definition.
        versions: the topic's versions, oldest first.
        strategy: the required compatibility.

    Raises:
        Incompatible: the schema is incompatible.
    """
    if strategy is Strategy.ALWAYS_COMPATIBLE or not versions:
        return
    considered = versions if strategy.is_transitive else versions[-1:]
    for version in reversed(considered):
        if version.schema.type != stored_type(schema.type):
            raise Incompatible(
                f"Incompatible schema: exists schema type {version.schema.type.name}, new schema type"
                f" {schema.type.name}"
            )
    for version in reversed(considered):
        try:
            _check_pair(version.schema, schema, strategy, f"version {version.number}")
        except InvalidDefinition as error:
            raise Incompatible(str(error)) from error


def check_consumer(schema: Schema, versions: Sequence[SchemaVersion], strategy: Strategy) -> None:
    """Raise unless a consumer's schema can read a topic's ``versions``, listed oldest first.

    Raises:
        Incompatible: the schema cannot read them.
    """
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    if strategy in _FOR_CONSUMERS:
        check_new(schema, versions[-1:], Strategy.BACKWARD)
        return
    check_new(schema, versions, strategy)


def _is_same(one: Schema, other: Schema) -> bool:
    if one.type not in AVRO_BASED:
        return False
    from .avro_rules import is_same

    try:
        return is_same(one.data, other.data)
    except InvalidDefinition:
        return False


def _check_pair(old: Schema, new: Schema, strategy: Strategy, label: str) -> None:
    match new.type:
        case SchemaType.AVRO:
            _check_avro(old, new, strategy, label)
        case SchemaType.JSON:
            _check_json(old, new, strategy, label)
        case SchemaType.PROTOBUF_NATIVE:
            _check_protobuf(old, new, strategy)
        case SchemaType.KEY_VALUE:
            _check_key_value(old, new, strategy, label)
        case _:
            if strategy is Strategy.ALWAYS_INCOMPATIBLE:
                raise Incompatible("Schema compatibility strategy is ALWAYS_INCOMPATIBLE")


def _check_avro(old: Schema, new: Schema, strategy: Strategy, label: str) -> None:
    beginning = f"Error during schema compatibility check with strategy {strategy.value}: "
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        raise Incompatible(f"{beginning}Unable to read schema: no other schema is allowed next to {label}")
    from .avro_rules import difference, parse

    theirs, ours = parse(old.data), parse(new.data)
    if strategy.is_read_by_old and (text := difference(theirs, ours)) is not None:
        raise Incompatible(f"{beginning}Unable to read schema: the new schema, using {label}: {text}")
    if strategy.reads_old and (text := difference(ours, theirs)) is not None:
        raise Incompatible(f"{beginning}Unable to read schema: {label}, using the new schema: {text}")


def _check_json(old: Schema, new: Schema, strategy: Strategy, label: str) -> None:
    """Check Avro definitions. JSON Schema definitions of old clients may be replaced with Avro and vice versa."""
    before, after = _old_json(old), _old_json(new)
    if before is None and after is None:
        _check_avro(old, new, strategy, label)
    elif before is not None and after is not None and before.get("id") != after.get("id"):
        raise Incompatible(f"Incompatible Schema from {before.get('id')} + to {after.get('id')}")


def _old_json(schema: Schema) -> dict[str, object] | None:
    from .avro_rules import parse

    try:
        parse(schema.data)
    except InvalidDefinition:
        return old_json_schema(schema.data)
    return None


def _check_protobuf(old: Schema, new: Schema, strategy: Strategy) -> None:
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        raise Incompatible("Unknown SchemaCompatibilityStrategy.")
    before, after = root_message(old.data).full_name, root_message(new.data).full_name
    if before != after:
        raise Incompatible(
            f"Protobuf root message change is not allowed under the '{strategy.value}' strategy. Original message"
            f" name: '{before}', new message name: '{after}'."
        )


def _check_key_value(old: Schema, new: Schema, strategy: Strategy, label: str) -> None:
    (old_key, old_value), (new_key, new_value) = parts(old), parts(new)
    if (old_key.type, old_value.type) != (new_key.type, new_value.type):
        raise Incompatible(
            "Key schemas or Value schemas are different schema type, from key schema type is"
            f" {old_key.type.name} and to key schema is {new_key.type.name}, from value schema is"
            f" {old_value.type.name} and to value schema is {new_value.type.name}"
        )
    _check_pair(old_key, new_key, strategy, f"the key of {label}")
    _check_pair(old_value, new_value, strategy, f"the value of {label}")
