"""The type expected by an annotation or a class name, in the few forms that messages can have.

Classes of optional packages are recognised by name: nothing is imported that the function has not imported.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from .annotations import NOTHING


class Form(Enum):
    """The form of a value."""

    ANY = "what IdentitySerDe gives"
    TEXT = "str"
    OCTETS = "bytes"
    WHOLE = "int"
    REAL = "float"
    TRUTH = "bool"
    OBJECT = "dict"
    ARRAY = "list"
    JSON = "any JSON"
    DATACLASS = "a dataclass"
    STRUCT = "a Struct of msgspec"
    MODEL = "a model of pydantic"
    RECORD = "a Record of pulsar.schema"
    MESSAGE = "a message of Protocol Buffers"
    OTHER = "something else"


PLAIN_FORMS = frozenset({Form.ANY, Form.TEXT, Form.OCTETS, Form.WHOLE, Form.REAL})
"""Forms that need no SerDe."""
JSON_FORMS = frozenset({Form.OBJECT, Form.ARRAY, Form.JSON, Form.TRUTH, Form.TEXT, Form.WHOLE, Form.REAL, Form.ANY})
"""Forms that JSON has by itself."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The type that one side of a function expects.

    Attributes:
        form: form of the value.
        kind: its class, if the form alone does not determine it.
        shown: as written by an author.
        where: where it was declared, such as ``parameter order of shop.total``; empty if nowhere.
        takes_none: whether None is also accepted.
    """

    form: Form = Form.ANY
    kind: Any = None
    shown: str = ""
    where: str = ""
    takes_none: bool = False

    def __str__(self) -> str:
        return f"{self.where} is {self.shown}"


_FORMS: dict[object, Form] = {
    NOTHING: Form.ANY,
    Any: Form.ANY,
    object: Form.ANY,
    None: Form.ANY,
    type(None): Form.ANY,
    complex: Form.ANY,
    str: Form.TEXT,
    bytes: Form.OCTETS,
    int: Form.WHOLE,
    float: Form.REAL,
    bool: Form.TRUTH,
    dict: Form.OBJECT,
    Mapping: Form.OBJECT,
    MutableMapping: Form.OBJECT,
    list: Form.ARRAY,
}
_BASES = (
    ("pydantic", "BaseModel", Form.MODEL),
    ("msgspec", "Struct", Form.STRUCT),
    ("pulsar", "Record", Form.RECORD),
    ("google", "Message", Form.MESSAGE),
)
"""Package and name of the base class of each form created by another package."""
_COMES_PLAIN = (str, bytes, int, float, complex)


def wanted(annotation: Any, where: str) -> Wanted:
    """Return the type expected by an annotation; `Form.OTHER` if messages cannot be converted to or from it."""
    takes_none = False
    while True:
        origin = get_origin(annotation)
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            others = [one for one in get_args(annotation) if one is not type(None) and not _is_error(one)]
            takes_none = takes_none or type(None) in get_args(annotation)
            if len(others) != 1:
                return Wanted(_form_of_union(others), None, shown(annotation), where, takes_none)
            annotation = others[0]
        else:
            form = _form(annotation)
            kind = annotation if isinstance(annotation, type) and origin is None else None
            return Wanted(form, kind, shown(annotation), "" if form is Form.ANY else where, takes_none)


def shown(annotation: Any) -> str:
    """Return an annotation as its author writes it."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__qualname__.rpartition(".")[2]
    return str(annotation).replace("typing.", "")


def _is_error(annotation: Any) -> bool:
    """Whether an item of a batch function's list may be an exception."""
    return isinstance(annotation, type) and issubclass(annotation, BaseException)


def _form_of_union(members: list[Any]) -> Form:
    forms = {wanted(one, "").form for one in members}
    if forms <= PLAIN_FORMS:
        return Form.ANY
    return Form.JSON if forms <= JSON_FORMS else Form.OTHER


def _form(annotation: Any) -> Form:
    origin = get_origin(annotation)
    if origin is Literal or isinstance(annotation, TypeVar):
        return Form.ANY
    if origin is not None:
        form = _FORMS.get(origin, Form.OTHER)
        is_json = form in (Form.OBJECT, Form.ARRAY) and all(map(_is_json, get_args(annotation)))
        return form if is_json else Form.ANY if _comes_plain(origin) else Form.OTHER
    try:
        known = _FORMS.get(annotation)
    except TypeError:  # not hashable
        return Form.OTHER
    if known is not None:
        return known
    if not isinstance(annotation, type):
        return Form.OTHER
    return _form_of_class(annotation)


def _form_of_class(kind: type) -> Form:
    if typing.is_typeddict(kind):
        return Form.OBJECT
    for base in kind.__mro__:
        for package, name, form in _BASES:
            if base.__name__ == name and base.__module__.partition(".")[0] == package:
                return form
    if dataclasses.is_dataclass(kind):
        return Form.DATACLASS
    return Form.ANY if _comes_plain(kind) else Form.OTHER


def _comes_plain(kind: Any) -> bool:
    """Return whether a value from `IdentitySerDe` may be of a kind: an abstract class, a protocol."""
    try:
        return any(issubclass(one, kind) for one in _COMES_PLAIN)
    except TypeError:
        return False


def _is_json(annotation: Any) -> bool:
    """Return whether JSON can hold such values inside a dict or list by itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return all(map(_is_json, get_args(annotation)))
    if annotation is type(None) or isinstance(annotation, TypeVar) or get_origin(annotation) is Literal:
        return True
    return wanted(annotation, "").form in JSON_FORMS and annotation is not complex
