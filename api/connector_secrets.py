"""Hide secrets in displayed connector configurations, and restore them when a hidden value is sent back."""

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
"""Names of undeclared values that are hidden to be safe."""
_PASSWORDS_IN_URL = (
    re.compile(r"(?P<before>://[^\s:/@]*:)(?P<password>[^\s/@]+)(?=@)"),
    re.compile(
        r"(?P<before>[?&;][^\s?&;=]*(?:passw|pwd|secret|token|credential|private.?key|api.?key|access.?key|signature)"
        r"[^\s?&;=]*=)(?P<password>[^\s&;#]+)",
        re.IGNORECASE,
    ),
)
"""A password before the host, and parameters after it, as in ``jdbc:postgresql://host/db?password=…``."""
_WHO = re.compile("user|key.?id", re.IGNORECASE)
_SHORTEST = 4
_SHORTEST_LINE = 8


def hidden(config: type[Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's JSON with secrets replaced by `HIDDEN`.

    Args:
        config: configuration class, whose secret fields are hidden; None if unknown.
        given: the JSON. A value that no field describes, for example inside an object, is hidden depending on its name.
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
    """Return the values that `hidden` hides, and the secrets, except user names.

    A user may have the same name as a database or a topic, and an error that hides the rejected user name is useless.
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
    """Return the strings inside a secret that is a JSON object or array."""
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
    """Replaces secrets in strings by `HIDDEN`. Costs nothing if there are no secrets.

    A secret is recognised in its original form, as written by Python's `repr` and by JSON, and URL-encoded. Each line
    of a multi-line secret, such as a PEM key, is also recognised, because output is processed line by line.
    """

    def __init__(self) -> None:
        self._secrets: tuple[str, ...] = ()
        self._lines: frozenset[str] = frozenset()

    def hide(self, secrets: Iterable[str]) -> None:
        """Hide these secrets from now on, except those shorter than four characters, which would match everywhere."""
        long = [one for one in secrets if len(one) >= _SHORTEST]
        self._secrets = tuple(sorted({form for one in long for form in _forms(one)}, key=len, reverse=True))
        lines = (line.strip() for one in long if "\n" in one for line in one.splitlines())
        self._lines = frozenset(line for line in lines if len(line) >= _SHORTEST_LINE)

    def __call__(self, text: str) -> str:
        """Return a string with its secrets replaced."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        if self._lines:
            text = "\n".join(HIDDEN if line.strip() in self._lines else line for line in text.split("\n"))
        return text


def _forms(secret: str) -> set[str]:
    """Return a secret in all forms in which programs print it."""
    in_json = (json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    return {
        secret,
        " ".join(secret.split()),  # as in a one-line message
        *(text[1:-1] for text in (repr(secret), *in_json)),
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    }


def with_kept(sent: Mapping[str, Any], before: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a JSON object in which each `HIDDEN` is replaced by the previous value.

    Args:
        sent: new object.
        before: previous object.
        where: object name for error messages.

    Raises:
        InvalidConfig: there was no previous value.
    """

    def kept(value: Any, old: Any, path: str) -> Any:
        if value == HIDDEN:
            if old is None:
                raise InvalidConfig(
                    f"{path} is {HIDDEN}, which keeps the current value, but no value is set: set a value"
                )
            return old
        if HIDDEN in _passwords(value):
            if _hidden_inside(old) != value:
                raise InvalidConfig(
                    f"{path} has {HIDDEN} in place of a password, but the URL was changed: enter the password"
                )
            return old
        if isinstance(value, dict):
            olds = old if isinstance(old, dict) else {}
            return {key: kept(item, olds.get(key), f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            items = old if isinstance(old, list) and len(old) == len(value) else [None] * len(value)
            return [kept(item, items[index], f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    return {key: kept(value, before.get(key), f"{where}.{key}") for key, value in sent.items()}
