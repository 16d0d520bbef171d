"""Secrets in the configuration of a connector: hidden when it is shown, and kept when it comes back hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from ..errors import InvalidConfig
from .connector_config import HIDDEN, fields_of

_SECRET_WORDS = re.compile(
    "passw|secret|token|credential|private.?key|api.?key|access.?key|jaas|authorization|cookie", re.IGNORECASE
)
"""Names of values that nobody has declared, and that are hidden to be on the safe side."""
_PASSWORDS_IN_URL = (
    re.compile(r"(?P<before>://[^\s:/@]*:)(?P<password>[^\s/@]+)(?=@)"),
    re.compile(
        r"(?P<before>[?&;][^\s?&;=]*(?:passw|pwd|secret|token|credential|private.?key|api.?key|access.?key|signature)"
        r"[^\s?&;=]*=)(?P<password>[^\s&;#]+)",
        re.IGNORECASE,
    ),
)
"""A password before the host, and parameters behind it, as ``jdbc:postgresql://host/db?password=…`` has them."""
_WHO = re.compile("user|key.?id", re.IGNORECASE)
_SHORTEST = 4
_SHORTEST_LINE = 8


def hidden(config: type[Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's JSON with `HIDDEN` in place of secrets.

    Args:
        config: its class, whose secret fields are hidden; None if it is not known.
        given: the JSON. Where no field says what a value is, as inside of objects, its name decides.
    """
    fields = fields_of(config) if config is not None else ()
    known = {key: field for field in fields for key in (field.key, *field.aliases)}
    answer = {}
    for key, value in given.items():
        is_secret = known[key].secret if key in known else _SECRET_WORDS.search(key) is not None
        answer[key] = HIDDEN if is_secret and value not in (None, "") else _hidden_inside(value)
    return answer


def _hidden_inside(value: Any) -> Any:
    if isinstance(value, list):
        return [_hidden_inside(item) for item in value]
    if isinstance(value, str):
        for pattern in _PASSWORDS_IN_URL:
            value = pattern.sub(rf"\g<before>{HIDDEN}", value)
        return value
    return hidden(None, value) if isinstance(value, dict) else value


def _passwords(value: Any) -> list[str]:
    if not isinstance(value, str):
        return []
    return [found["password"] for pattern in _PASSWORDS_IN_URL for found in pattern.finditer(value)]


def secret_values(config: type[Any] | None, given: Mapping[str, Any], secrets: Mapping[str, str]) -> set[str]:
    """Return the texts of a configuration that `hidden` hides, and the secrets; names of users are none of them.

    A user may be called like a database or a topic, and an error that does not say who was refused helps nobody.
    """
    found: set[str] = set()

    def compare(key: str, value: Any, shown: Any) -> None:
        if isinstance(value, dict) and isinstance(shown, dict):
            for inner, item in value.items():
                compare(inner, item, shown[inner])
        elif isinstance(value, list) and isinstance(shown, list):
            for item, one in zip(value, shown, strict=True):
                compare(key, item, one)
        elif value != shown and shown != HIDDEN:
            found.update(_passwords(value))
        elif value != shown and not _WHO.search(key):
            found.update(_texts(value))

    compare("", {**given}, hidden(config, given))
    shown = {key: value for key, value in secrets.items() if not _WHO.search(key)}
    return found.union(shown.values(), *map(_inside, shown.values()))


def _inside(text: str) -> set[str]:
    """Return the texts of a secret that is an object or a list as JSON."""
    try:
        value = json.loads(text) if text.startswith(("{", "[")) else None
    except ValueError:
        return set()
    return set(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


class Hiding:
    """Puts `HIDDEN` in the place of secrets in texts; where there are none it costs nothing.

    A secret is found as it is, as Python's `repr` and JSON write it, and as it stands in a URL. Of a secret of several
    lines, such as a key in PEM, each line is found too, because what a function prints comes line by line.
    """

    def __init__(self) -> None:
        self._secrets: tuple[str, ...] = ()
        self._lines: frozenset[str] = frozenset()

    def hide(self, secrets: Iterable[str]) -> None:
        """Hide these from now on; what is shorter than four characters would be found everywhere, and is not hidden."""
        long = [one for one in secrets if len(one) >= _SHORTEST]
        self._secrets = tuple(sorted({form for one in long for form in _forms(one)}, key=len, reverse=True))
        lines = (line.strip() for one in long if "\n" in one for line in one.splitlines())
        self._lines = frozenset(line for line in lines if len(line) >= _SHORTEST_LINE)

    def __call__(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        if self._lines:
            text = "\n".join(HIDDEN if line.strip() in self._lines else line for line in text.split("\n"))
        return text


def _forms(secret: str) -> set[str]:
    """Return a secret in all forms in which programs show it."""
    in_json = (json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    return {
        secret,
        " ".join(secret.split()),  # as a message in one line has it
        *(text[1:-1] for text in (repr(secret), *in_json)),
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    }


def with_kept(sent: Mapping[str, Any], before: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a JSON object with what was there before in each place where `HIDDEN` was sent back.

    Args:
        sent: the object.
        before: the one that it replaces.
        where: its name, for the error.

    Raises:
        InvalidConfig: there was nothing in one of these places.
    """

    def kept(value: Any, old: Any, path: str) -> Any:
        if value == HIDDEN:
            if old is None:
                raise InvalidConfig(
                    f"{path} is {HIDDEN}, which stands for a value that stays, and there is none; give it"
                )
            return old
        if HIDDEN in _passwords(value):
            if _hidden_inside(old) != value:
                raise InvalidConfig(f"{path} has {HIDDEN} in place of a password, and another URL before; give it")
            return old
        if isinstance(value, dict):
            olds = old if isinstance(old, dict) else {}
            return {key: kept(item, olds.get(key), f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            items = old if isinstance(old, list) and len(old) == len(value) else [None] * len(value)
            return [kept(item, items[index], f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    return {key: kept(value, before.get(key), f"{where}.{key}") for key, value in sent.items()}
