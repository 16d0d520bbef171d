"""Safety checks of Avro schemas before untrusted bytes are read: how deep and how long values can become.

fastavro's compiled reader crashes the process on values nested a few thousand levels deep, and an array of zero-byte
items can encode any number of items in a few bytes. Both are possible only if the schema allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DEPTH_MAX = 500
"""Maximum depth of values of a recursive schema."""


def is_recursive(definition: Any) -> bool:
    """Return whether a type is recursive, so that values may be nested without limit."""
    return _contains_itself(definition, "", ())


def _full_name(definition: Mapping[str, Any], namespace: str) -> str:
    name = str(definition.get("name", ""))
    if "." in name:
        return name
    namespace = str(definition.get("namespace", namespace))
    return f"{namespace}.{name}" if namespace else name


def _contains_itself(definition: Any, namespace: str, around: tuple[str, ...]) -> bool:
    if isinstance(definition, str):
        return definition in around or f"{namespace}.{definition}" in around
    if isinstance(definition, Sequence):
        return any(_contains_itself(one, namespace, around) for one in definition)
    if not isinstance(definition, Mapping):
        return False
    if definition.get("type") in ("record", "error"):
        name = _full_name(definition, namespace)
        namespace = name.rpartition(".")[0]
        fields = definition.get("fields", ())
        return any(_contains_itself(field.get("type"), namespace, (*around, name)) for field in fields)
    inside = (definition.get(part) for part in ("type", "items", "values"))
    return any(_contains_itself(one, namespace, around) for one in inside if one is not None)


def has_arrays_of_nothing(definition: Any) -> bool:
    """Return whether a type contains an array of zero-byte items."""
    if isinstance(definition, str):
        return False
    if isinstance(definition, Sequence):
        return any(map(has_arrays_of_nothing, definition))
    if not isinstance(definition, Mapping):
        return False
    if definition.get("type") == "array":
        items = definition.get("items")
        return _is_nothing(items) or has_arrays_of_nothing(items)
    inside = [definition.get(part) for part in ("type", "values")]
    inside += [field.get("type") for field in definition.get("fields", ())]
    return any(map(has_arrays_of_nothing, inside))


def _is_nothing(definition: Any) -> bool:
    """Return whether all values of a type are encoded in zero bytes; False for named references."""
    if not isinstance(definition, Mapping):
        return bool(definition == "null")
    kind = definition.get("type")
    if kind in ("record", "error"):
        return all(_is_nothing(field.get("type")) for field in definition.get("fields", ()))
    if kind == "fixed":
        return definition.get("size") == 0
    return _is_nothing(kind) if isinstance(kind, str | Mapping) else False


def is_deeper(value: Any, depth: int = DEPTH_MAX) -> bool:
    """Return whether a value of dicts and lists exceeds the maximum depth; the value may refer to itself."""
    level = [value]
    while level:
        if depth < 0:
            return True
        depth -= 1
        # Visit an object only once per level, as levels could otherwise grow exponentially.
        found: dict[int, Any] = {}
        for one in level:
            if isinstance(one, Mapping):
                found.update((id(inner), inner) for inner in one.values() if isinstance(inner, Mapping | list | tuple))
            elif isinstance(one, list | tuple):
                found.update((id(inner), inner) for inner in one if isinstance(inner, Mapping | list | tuple))
        level = list(found.values())
    return False
