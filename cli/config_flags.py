"""Flags generated from a table of fields: command options, and configs from files overridden by flags.

Unsupported flags are sent like any other; the worker rejects their fields by name, with the same message for all tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..config.table import Field
from .failure import Failure
from .settings import read_yaml

Flags = Sequence[tuple[str, Field]]
"""Config path and field of each flag, in the order of the help."""


def refused_help(text: str, reason: str) -> str:
    """Return the help text of an unsupported flag."""
    return f"{text} Refused: {reason}.".lstrip()


class QuietOption(click.Option):
    """An option that also accepts camelCase and under_score spellings, which the help does not show."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help record without the additional spellings."""
        spellings = self.opts
        self.opts = [name for name in spellings if name == name.lower() and "_" not in name]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = spellings


def config_options(flags: Flags, *file_names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add all flags to a command, and an option named ``file_names`` for a config file."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for path, field in reversed(flags):
            # `--flag` alone means true, and `--flag=false` works
            extra: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if field.kind.is_switch else {}
            names = (*field.flags.split(), _variable(path))
            text = refused_help(field.help, field.refused) if field.refused else field.help
            command = click.option(*names, cls=QuietOption, metavar=field.kind.metavar, help=text, **extra)(command)
        text = "YAML or JSON file with the config; flags override its fields."
        return click.option(*file_names, "config_file", cls=QuietOption, metavar="FILE", help=text)(command)

    return add


def _variable(path: str) -> str:
    """Return the name of the parameter that receives a flag's value."""
    return "flag_" + path.replace(".", "__")


def build_config(
    flags: Flags, config_file: str | Mapping[str, Any] | None, given: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the config from a file, or from its content, overridden by flags.

    Raises:
        Failure: the file is unreadable, or a flag's value has the wrong type.
    """
    config = read_config_file(config_file) if isinstance(config_file, str) else dict(config_file or {})
    for path, field in flags:
        text = given.get(_variable(path))
        if text is None:
            continue
        try:
            value = field.kind.parse(text)
        except ValueError as exc:
            raise Failure(f"invalid {field.flags.split()[0]} {text!r}: {exc}") from exc
        outer, _, inner = path.partition(".")
        if inner:
            nested = config.get(outer)
            config[outer] = {**(nested if isinstance(nested, dict) else {}), inner: value}
        else:
            config[outer] = value
    return config


def read_config_file(path: str) -> dict[str, Any]:
    """Return the content of a YAML (or JSON, which is YAML) config file.

    Raises:
        Failure: the file is missing, or is not a YAML mapping.
    """
    content = read_yaml(path, "config file")
    if not isinstance(content, dict):
        raise Failure(f"config file {path} must contain `field: value` lines, such as `className: module.function`")
    return content
