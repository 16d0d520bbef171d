"""Kinds of values that a config's fields have: how each is read from JSON, from a flag's text, and kept in a record.

A reader refuses what does not fit, with the field's name. Empty values ("", [], {}, and false for switches that are off
by default) count as not sent: Pulsar's own tools send them with every request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InvalidConfig

_Reader = Callable[[str, Any], Any]
_Converter = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """One kind of value.

    Attributes:
        read: the value that a field of this name has in JSON; raises InvalidConfig.
        parse: the JSON value of a flag's text; raises ValueError.
        metavar: what stands for the text in the help.
        is_switch: the flag may stand alone, which means true.
        show: the value as the JSON of `get` has it.
        store: the value as the constructor of a record's message takes it.
        load: what the record holds, as a value.
        members: fields of the object that this is, as far as they are known.
    """

    read: _Reader
    parse: Callable[[str], Any] = str
    metavar: str = "TEXT"
    is_switch: bool = False
    show: _Converter = _same
    store: _Converter = _same
    load: _Converter = _same
    members: tuple[Any, ...] = ()


def shown(value: Any) -> str:
    """Return a JSON value for an error message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_text(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        raise InvalidConfig(f"{name} must be a text, not {shown(value)}")
    return value or None


def _read_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfig(f"{name} must be true or false, not {shown(value)}")
    return value


def _read_integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidConfig(f"{name} must be a whole number, not {shown(value)}")
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidConfig(f"{name} {value} does not fit into 64 bits")
    return value


def _read_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfig(f"{name} must be a number, not {shown(value)}")
    return float(value)


def read_object(name: str, value: Any) -> dict[str, Any]:
    """Return a JSON value that must be an object."""
    if not isinstance(value, dict):
        raise InvalidConfig(f"{name} must be an object, not {shown(value)}")
    return value


def _read_text_map(name: str, value: Any) -> dict[str, str]:
    for key, item in read_object(name, value).items():
        if not isinstance(item, str):
            raise InvalidConfig(f"{name}: the value of {key} must be a text, not {shown(item)}")
    return dict(value)


def _read_texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidConfig(f"{name} must be a list of texts, not {shown(value)}")
    return tuple(value)


def _parse_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it must be a JSON object, {…}")
    return value


def _parse_number(kind: type[int] | type[float], what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"it must be {what}") from None

    return parse


def _parse_choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return text

    return parse


def _parse_flag(text: str) -> bool:
    return _parse_choice("true", "false")(text.lower()) == "true"


def one_of(*choices: str) -> Kind:
    """Return the kind of a text that is one of these."""

    def read(name: str, value: Any) -> str | None:
        text = _read_text(name, value)
        if text is not None and text not in choices:
            raise InvalidConfig(f"{name} {text} is not one of {', '.join(choices)}")
        return text

    return Kind(read, _parse_choice(*choices))


def _or_none(value: Any) -> Any:
    """Return what a record holds; its messages have no other sign for what was not given than "" and 0."""
    return value or None


TEXT = Kind(_read_text, load=_or_none)
CLEARABLE_TEXT = TEXT._replace(read=lambda name, value: _read_text(name, value) or "")
"""A text whose empty value says something: in an update it takes away what is there."""
FLAG = Kind(_read_flag, _parse_flag, "true|false")
SWITCH = Kind(_read_flag, _parse_flag, is_switch=True)
INTEGER = Kind(_read_integer, _parse_number(int, "a whole number"), "N", load=_or_none)
NUMBER = Kind(_read_number, _parse_number(float, "a number"), "N")
OBJECT = Kind(
    read_object,
    _parse_object,
    "JSON",
    store=lambda value: json.dumps(dict(value), separators=(",", ":")),
    load=lambda text: json.loads(text) if text else None,
)
TEXT_MAP = Kind(_read_text_map, _parse_object, "JSON", show=dict, store=dict, load=dict)
TEXTS = Kind(_read_texts, lambda text: [part.strip() for part in text.split(",") if part.strip()], "A,B")
