"""JSON schemas of pydantic models and msgspec Structs, with the definition of an equivalent dataclass."""

from __future__ import annotations

import dataclasses
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ...api.serde import SerDe
from ...client.schemas.json_schema import JsonSchema
from ...client.schemas.schema import Schema, SchemaInfo
from ...errors import FunctionLoadError, InvalidConfig
from .objects import ModelSerDe, StructSerDe
from .wanted import Form, Wanted, shown, wanted

_SAME_IN_JSON = (str, bool, int, float)


class ModelJsonSchema(Schema[Any]):
    """JSON schema of a model, whose values are converted by pydantic or msgspec."""

    def __init__(self, given: Wanted) -> None:
        """Create the schema, with a definition derived from the model.

        Raises:
            FunctionLoadError: a field has a type that has no equivalent in a JSON schema.
        """
        self._serde: SerDe = ModelSerDe(given) if given.form is Form.MODEL else StructSerDe(given)
        try:
            self.info = JsonSchema(_dataclass_of(given.kind, {})).info
        except InvalidConfig as error:
            raise FunctionLoadError(f"{given}, which has no JSON schema: {error}") from error
        self._name = given.kind.__name__

    def __str__(self) -> str:
        return f"schema JSON of {self._name}"

    def encode(self, value: Any) -> bytes:
        """Encode a model; raises the same errors as `ModelSerDe.serialize`."""
        return self._serde.serialize(value)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a model; raises the same errors as `ModelSerDe.deserialize`."""
        return self._serde.deserialize(data)


def _dataclass_of(kind: Any, known: dict[Any, Any]) -> type:
    """Return a dataclass with the name and fields of a model, and of its nested models."""
    if kind in known:
        raise InvalidConfig(f"{kind.__name__} contains itself: use a dataclass")
    known[kind] = None
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (name, _type(hints[attribute], f"{kind.__name__}.{attribute}", known), field)
        for name, attribute, field in _fields(kind)
    ]
    del known[kind]
    made = dataclasses.make_dataclass(kind.__name__, fields, kw_only=True)
    made.__module__ = __name__
    return made


def _fields(kind: Any) -> list[tuple[str, str, Any]]:
    """Return JSON name, attribute and dataclass field (with the default) of each field."""
    found = []
    if hasattr(kind, "__struct_fields__"):
        count = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
        defaults = [dataclasses.MISSING] * count + list(kind.__struct_defaults__)
        for attribute, name, default in zip(
            kind.__struct_fields__, kind.__struct_encode_fields__, defaults, strict=True
        ):
            found.append((name, attribute, _field(default)))
        return found
    if not hasattr(kind, "model_fields"):
        raise InvalidConfig("pydantic 1 models are not supported: use pydantic 2 or a dataclass")
    for attribute, info in kind.model_fields.items():
        default = dataclasses.MISSING if info.is_required() else info.get_default(call_default_factory=True)
        found.append((attribute, attribute, _field(default)))
    return found


def _field(default: Any) -> Any:
    if default is dataclasses.MISSING or default is None or isinstance(default, _SAME_IN_JSON):
        return dataclasses.field(default=default)
    return dataclasses.field()  # readers of the schema require fields without a simple default


def _type(hint: Any, path: str, known: dict[Any, Any]) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(arguments[0], path, known)
    if origin in (Union, types.UnionType):
        made = tuple(one if one is type(None) else _type(one, path, known) for one in arguments)
        return Union[made]  # noqa: UP007   X | Y does not accept a tuple
    if origin in (list, dict):
        return origin[tuple(_type(one, path, known) for one in arguments)]
    if hint in _SAME_IN_JSON:
        return hint
    if wanted(hint, "").form in (Form.MODEL, Form.STRUCT):
        return _dataclass_of(hint, known)
    raise InvalidConfig(
        f"{path} is {shown(hint)}: expected str, bool, int, float, a model, list[...] or dict[str, ...], optionally"
        " with | None"
    )
