"""Read a function's annotations of its parameter and return value.

Design: only these two annotations are evaluated, each separately. A module may import names in other annotations, such
as the context's class, for type checkers only; that must not prevent a function from running.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

from ...api.batches import MARK
from ..loading.kinds import layers

NOTHING: Any = inspect.Parameter.empty
"""Placeholder for a missing annotation."""


class Annotations(NamedTuple):
    """The annotations of a function.

    Attributes:
        input: annotation of the value; for a batch function, of one list item. `NOTHING` if missing.
        output: annotation of the return value; for a generator or batch function, of one output.
        parameter: name of the first parameter.
        unresolved: annotations, as written, with names that their module does not define.
    """

    input: Any
    output: Any
    parameter: str
    unresolved: list[str]


def annotations_of(function: Callable[..., Any]) -> Annotations:
    """Return the annotations of a function, or of the function wrapped by a decorator."""
    every = list(layers(function))
    inner = every[-1]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return Annotations(NOTHING, NOTHING, "", [])
    parameters = [
        one for one in signature.parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    names = getattr(inner, "__globals__", {})
    unresolved: list[str] = []
    taken = _resolved(parameters[0].annotation, names, unresolved) if parameters else NOTHING
    returned = _resolved(signature.return_annotation, names, unresolved)
    if any(type(getattr(layer, MARK, None)) is int for layer in every):
        taken, returned = _item(taken), _item(returned)
    elif any(inspect.isgeneratorfunction(layer) or inspect.isasyncgenfunction(layer) for layer in every):
        returned = _item(returned)
    return Annotations(taken, returned, parameters[0].name if parameters else "", unresolved)


def _resolved(annotation: Any, names: dict[str, Any], unresolved: list[str]) -> Any:
    """Evaluate an annotation, including nested strings."""
    if annotation is NOTHING:
        return NOTHING
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, {}, include_extras=True)["it"]
    except Exception:  # noqa: BLE001  evaluating user code may raise anything
        unresolved.append(annotation if isinstance(annotation, str) else repr(annotation))
        return NOTHING


def _item(annotation: Any) -> Any:
    """Return the item type of a list, iterator or generator annotation."""
    arguments = get_args(annotation)
    return arguments[0] if arguments else NOTHING
