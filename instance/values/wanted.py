"""Classify the type expected by an annotation or class name into the forms that messages can have.

Classes of optional packages are recognised by name, so that no package is imported here.
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

    ANY = "any value of IdentitySerDe"
    TEXT = "str"
    OCTETS = "bytes"
    WHOLE = "int"
    REAL = "float"
    TRUTH = "bool"
    OBJECT = "dict"
    ARRAY = "list"
    JSON = "any JSON"
    DATACLASS = "a dataclass"
    STRUCT = "a msgspec Struct"
    MODEL = "a pydantic model"
    RECORD = "a pulsar.schema Record"
    MESSAGE = "a Protocol Buffers message"
    OTHER = "another type"


PLAIN_FORMS = frozenset({Form.ANY, Form.TEXT, Form.OCTETS, Form.WHOLE, Form.REAL})
"""Forms that need no SerDe."""
JSON_FORMS = frozenset({Form.OBJECT, Form.ARRAY, Form.JSON, Form.TRUTH, Form.TEXT, Form.WHOLE, Form.REAL, Form.ANY})
"""Forms with a direct equivalent in JSON."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The type of a function's input or output.

    Attributes:
        form: form of the value.
        kind: class of the value, if there is a single one.
        shown: type as its author would write it.
        where: where the type is declared, such as ``parameter order of shop.total``, or empty.
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
"""Package and name of the base class of each form that another package defines."""
_COMES_PLAIN = (str, bytes, int, float, complex)


def wanted(annotation: Any, where: str) -> Wanted:
    """Return the type expected by an annotation, with `Form.OTHER` if messages cannot be converted."""
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
    """Return an annotation as its author would write it."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__qualname__.rpartition(".")[2]
    return str(annotation).replace("typing.", "")


def _is_error(annotation: Any) -> bool:
    """Return whether an annotation is an exception class, as for failed items of a batch function."""
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
    """Return whether values of `IdentitySerDe` may match a class, such as an abstract class or a protocol."""
    try:
        return any(issubclass(one, kind) for one in _COMES_PLAIN)
    except TypeError:
        return False


def _is_json(annotation: Any) -> bool:
    """Return whether values of a type inside a dict or list have a direct equivalent in JSON."""
    if get_origin(annotation) in (Union, types.UnionType):
        return all(map(_is_json, get_args(annotation)))
    if annotation is type(None) or isinstance(annotation, TypeVar) or get_origin(annotation) is Literal:
        return True
    return wanted(annotation, "").form in JSON_FORMS and annotation is not complex
