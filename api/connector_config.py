"""Connector configuration: a dataclass of `option` fields.

    @dataclass
    class JdbcConfig:
        jdbc_url: str = option("Database URL.")
        password: str = option("Password of the user.", default="", secret=True)
        batch_size: int = option("Maximum rows per statement.", default=200, limits=(1, None))

A field without a default is required. Its key is the name in camel case as in Pulsar, ``jdbcUrl`` for ``jdbc_url``,
unless the option sets another key. Additional keys are aliases. The fields define the validation on create, the
``configdefinition`` response and the documentation page.

A key that users of similar connectors may set, but that has no field, can be rejected with its own message:

    unsupported: ClassVar[Unsupported] = {"pool": Refusal("there is one connection; increase parallelism", (1,))}
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InvalidConfig

_C = TypeVar("_C")
_OPTION = "magnetar.option"
MISSING = dataclasses.MISSING
HIDDEN = "***"
"""Shown in place of a secret. Sending it back leaves the secret unchanged."""


class _Option(NamedTuple):
    """The `option` attributes of a field, besides its type and default."""

    help: str
    key: str | None
    aliases: Sequence[str]
    secret: bool
    limits: tuple[float | None, float | None]


def option(
    help: str,  # noqa: A002
    *,
    default: Any = MISSING,
    key: str | None = None,
    aliases: Sequence[str] = (),
    secret: bool = False,
    limits: tuple[float | None, float | None] = (None, None),
) -> Any:
    """Declare a configuration field.

    Args:
        help: meaning and unit, in one or two sentences.
        default: value if omitted. A field without a default is required.
        key: name in JSON; by default the attribute name in camel case.
        aliases: other accepted names.
        secret: whether to show the value as ``***``. It is read from the connector's secrets if they contain its key.
        limits: smallest and largest number allowed; None for no limit.
    """
    metadata = {_OPTION: _Option(help, key, tuple(aliases), secret, limits)}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: default.copy(), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Refusal(NamedTuple):
    """Why a key without a field is rejected.

    Attributes:
        reason: why, and what to do instead; appended to the key in the message.
        allowed: values that match the connector's fixed behaviour, which are accepted and ignored.
    """

    reason: str
    allowed: Sequence[Any] = ()


Unsupported: TypeAlias = Mapping[str, Refusal]
"""Keys without a field; the ``unsupported`` class attribute of a configuration."""


def unsupported_by(config: type[Any]) -> Unsupported:
    """Return the keys that a configuration class rejects with its own messages."""
    given = getattr(config, "unsupported", {})
    known = {key for field in fields_of(config) for key in (field.key, *field.aliases)}
    if not isinstance(given, Mapping) or "unsupported" in known:  # the default of a field named unsupported
        return {}
    return {key: refusal for key, refusal in given.items() if key not in known}


class Field(NamedTuple):
    """A configuration field, as returned by `fields_of`.

    Attributes:
        name: attribute name.
        key: name in JSON.
        aliases: other keys.
        type: value type: str, int, float, bool, list or dict.
        choices: allowed strings; empty if any string is allowed.
        default: value if omitted; `MISSING` if required.
        help: meaning.
        secret: whether the value is secret.
        limits: smallest and largest number allowed.
    """

    name: str
    key: str
    aliases: Sequence[str]
    type: type
    choices: Sequence[str]
    default: Any
    help: str
    secret: bool
    limits: tuple[float | None, float | None]

    @property
    def is_required(self) -> bool:
        """Whether a value is required."""
        return self.default is MISSING


def fields_of(config: type[Any]) -> tuple[Field, ...]:
    """Return the fields of a configuration class, or no fields for ``dict``.

    Raises:
        InvalidConfig: the class is not a dataclass of `option` fields with supported types.
    """
    if config is dict:
        return ()
    if not dataclasses.is_dataclass(config):
        raise InvalidConfig(f"config class {config.__name__} is not a dataclass")
    try:
        hints = get_type_hints(config)
    except (NameError, TypeError) as error:
        raise InvalidConfig(f"config class {config.__name__} has an invalid type annotation: {error}") from error
    return tuple(_field(config.__name__, field, hints[field.name]) for field in dataclasses.fields(config))


def _field(owner: str, field: dataclasses.Field[Any], hint: Any) -> Field:
    given: _Option | None = field.metadata.get(_OPTION)
    if given is None:
        raise InvalidConfig(f"{owner}.{field.name} must be declared with option(…)")
    kind, choices = _kind_of(hint)
    if kind is None:
        raise InvalidConfig(
            f"{owner}.{field.name} has an unsupported type: expected str, int, float, bool, Literal, list[str] or dict"
        )
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    first, *others = field.name.split("_")
    key = given.key or first + "".join(part.capitalize() for part in others)
    aliases = [*given.aliases, *([field.name] if field.name != key else [])]
    return Field(
        field.name, key, aliases, kind, choices, default, given.help, given.secret, given.limits
    )  # fmt: skip


def _kind_of(hint: Any) -> tuple[type | None, Sequence[str]]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = [one for one in get_args(hint) if one is not type(None)]
        return _kind_of(inner[0]) if len(inner) == 1 else (None, ())
    if origin is Literal:
        return str, tuple(map(str, get_args(hint)))
    kind = origin or hint
    return (kind if kind in (str, int, float, bool, list, dict) else None), ()


def read_config(config: type[_C], given: Mapping[str, Any], secrets: Mapping[str, str] | None = None) -> _C:
    """Parse a JSON object into a configuration.

    Args:
        config: configuration class.
        given: the object. As in Pulsar, numbers and booleans may be strings, lists may be comma-separated strings, and
            objects may be JSON strings.
        secrets: values of secret fields by name.

    Raises:
        InvalidConfig: a field is unknown, missing, duplicated or of the wrong type. The message contains all invalid
            fields.
    """
    if config is dict:
        return typing.cast("_C", dict(given))
    fields = fields_of(config)
    values: dict[str, Any] = {}
    unsupported = unsupported_by(config)
    faults = [*_unknown(fields, unsupported, given), *_misplaced(fields, unsupported, secrets or {})]
    for field in fields:
        found = [key for key in (field.key, *field.aliases) if key in given]
        if len(found) > 1:
            faults.append(f"{found[0]} and {found[1]} are the same field: set only one of them")
            continue
        if field.secret and secrets:
            found = [key for key in (field.key, *field.aliases) if key in secrets] or found
        source = secrets if field.secret and secrets and found and found[0] in secrets else given
        if found and source[found[0]] is not None:
            try:
                values[field.name] = _checked(field, _converted(field, source[found[0]]))
            except ValueError as error:
                shown = HIDDEN if field.secret else repr(source[found[0]])
                faults.append(f"{found[0]} {error}, not {shown[:60]}")
        elif field.is_required:
            faults.append(f"{field.key} is missing: {field.help}")
    if faults:
        raise InvalidConfig("; ".join(faults))
    return config(**values)


def _unknown(fields: Sequence[Field], unsupported: Unsupported, given: Mapping[str, Any]) -> Iterator[str]:
    known = [key for field in fields for key in (field.key, *field.aliases)]
    for key, value in given.items():
        if key in unsupported:
            if not _is_allowed(value, unsupported[key].allowed):
                yield _refused(key, unsupported[key])
        elif key not in known:
            if key == "secrets":
                yield "secrets is not a field of configs: set it next to configs (flag --secrets)"
                continue
            near = _near(key, known)
            known_ones = ", ".join(field.key for field in fields) or "none"
            yield f"unknown field {key}: " + (f"did you mean {near[0]}?" if near else f"expected one of {known_ones}")


def _is_allowed(value: Any, allowed: Sequence[Any]) -> bool:
    """Return whether a value is None or equals an allowed value, directly or as a string."""
    if isinstance(value, dict | list):
        return value in [one for one in allowed if isinstance(one, dict | list)]
    return value is None or _shown(value).lower() in [_shown(one).lower() for one in allowed]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _near(key: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches  # slow to import, and only needed after a typo

    return get_close_matches(key, known, 1, 0.6)


def _refused(key: str, refusal: Refusal) -> str:
    allowed = f" to anything but {' or '.join(map(_shown, refusal.allowed))}" if refusal.allowed else ""
    return f"{key} cannot be set{allowed}: {refusal.reason}"


def _misplaced(fields: Sequence[Field], unsupported: Unsupported, secrets: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors in the names of secrets."""
    by_key = {key: field for field in fields for key in (field.key, *field.aliases)}
    secret = [field.key for field in fields if field.secret]
    for key in secrets:
        if key in unsupported:
            yield f"secrets: {_refused(key, unsupported[key])}"
        elif key not in by_key:
            near = _near(key, secret)
            known = f"expected one of {', '.join(secret)}" if secret else "the connector has no secret fields"
            yield f"secrets: unknown field {key}: " + (f"did you mean {near[0]}?" if near else known)
        elif not by_key[key].secret:
            yield f"secrets: {key} is not a secret field: set it in configs"


def _converted(field: Field, value: Any) -> Any:
    """Convert a value to the field's type. Raises ValueError with the expected type."""
    if field.type is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ValueError("must be true or false")
    if field.type in (int, float):
        try:
            if (
                not isinstance(value, bool)
                and isinstance(value, int | float | str)
                and field.type(value) == float(value)
            ):
                return field.type(value)
        except (ValueError, OverflowError):
            pass
        raise ValueError("must be a whole number" if field.type is int else "must be a number")
    if field.type is list:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return list(value)
        raise ValueError("must be a list of strings")
    if field.type is dict:
        if isinstance(value, str):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, dict):
            return dict(value)
        raise ValueError("must be a JSON object")
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _checked(field: Field, value: Any) -> Any:
    if field.choices and value not in field.choices:
        folded = {choice.lower(): choice for choice in field.choices}
        if str(value).lower() not in folded:
            raise ValueError(f"must be one of {', '.join(field.choices)}")
        return folded[value.lower()]
    least, most = field.limits
    if least is not None and value < least:
        raise ValueError(f"must be at least {least:g}")
    if most is not None and value > most:
        raise ValueError(f"must be at most {most:g}")
    return value


def definition(config: type[Any]) -> list[dict[str, Any]]:
    """Return the fields in the format of ``configdefinition``: fieldName, typeName, attributes."""
    return [
        {
            "fieldName": field.key,
            "typeName": field.type.__name__,
            "attributes": {
                "required": field.is_required,
                "defaultValue": "" if field.is_required else field.default,
                "sensitive": field.secret,
                "help": field.help,
            }
            | ({"choices": list(field.choices)} if field.choices else {})
            | ({"aliases": aliases} if (aliases := [one for one in field.aliases if one != field.name]) else {}),
        }
        for field in fields_of(config)
    ]
