"""Failures of commands and REST calls: one line with the cause and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

from ..wire.printable import one_line
from .nearest import nearest

__all__ = ["Failure", "Faults", "Group", "nearest", "usage_line"]


class Failure(click.ClickException):
    """Error of a command; the message is shown on one line, and the exit code is not 0.

    Attributes:
        status: HTTP status of the response that caused it; 0 for other causes.
    """

    exit_code = 1

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Faults(Failure):
    """Several errors in the input, each shown on its own line.

    Attributes:
        lines: one line for each error.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class Group(click.Group):
    """A command group that rejects unknown subcommands with one line that suggests the nearest name.

    Attributes:
        not_here: names of Pulsar commands that this version does not support.
    """

    def __init__(self, *arguments: Any, not_here: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.not_here = frozenset(not_here)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a subcommand.

        Raises:
            click.UsageError: the command is unknown.
        """
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and name in self.not_here:
            raise click.UsageError(f"`{ctx.command_path} {name}` is not supported by this version", ctx)
        if command is None:
            what = "flag" if name.startswith("-") else "command"
            raise click.UsageError(f"unknown {what} {name}{nearest(name, self.list_commands(ctx))}", ctx)
        return name, command, args[1:]


def _before_the_group(error: click.NoSuchOption) -> str:
    """Return an explanation for a misplaced global flag, or an empty string."""
    everywhere = error.ctx.find_root().command.params if error.ctx else []
    is_one = any(error.option_name in option.opts for option in everywhere)
    return f" here; use it before the command group: magnetar {error.option_name} …" if is_one else ""


_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)")
_FLAG_OF_FILE = {
    ("--py", "--archive"): (".py", ".zip", ".whl"),
    ("--function-config-file", "--source-config-file", "--sink-config-file"): (".yml", ".yaml", ".json"),
}
"""Flags that take a file, and their file name extensions."""
_FLAGS_OF_WORDS = ("--name", "--subscription-name", "--subscription", "--messages")
"""Required flags that users forget most often; the first one that a command has is suggested."""


def _with_flag(word: str, command: click.Command) -> str:
    """Return ``; did you mean --py word?`` for an argument without its flag, or an empty string."""
    known = {name for option in command.params for name in option.opts}
    by_file = [flag for flags, ends in _FLAG_OF_FILE.items() for flag in flags if word.endswith(ends)]
    flag = next((flag for flag in (*by_file, *_FLAGS_OF_WORDS) if flag in known), None)
    return f"; did you mean {flag} {word}?" if flag else ""


def usage_line(error: click.UsageError) -> str:
    """Return a usage error as one line: the error, the nearest valid word, and a reference to the help."""
    context = error.ctx
    message = one_line(error.format_message())
    if isinstance(error, click.NoSuchOption):
        known = [] if context is None else [name for option in context.command.params for name in option.opts]
        message = f"unknown flag {error.option_name}{_before_the_group(error) or nearest(error.option_name, known)}"
    elif context is not None and (extra := _EXTRA.match(message)):
        word = extra[1].split(" ")[0]
        message = f"unexpected argument {word}{_with_flag(word, context.command)}"
    path = "magnetar" if context is None else context.command_path
    return f"{message.rstrip('.?')} (see `{path} --help`)"
