"""A group of commands whose modules are imported when one of them runs.

Why: importing every command costs a third of a second; `magnetar --version` and a shell's completion must not pay it.
Help texts therefore stand in the table, not in the modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from .failure import nearest


class Entry(NamedTuple):
    """Location of a command.

    Attributes:
        module: name of the module below `magnetar.cli`.
        attribute: name of the click command in it.
        summary: what the help of the group says about it.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A click group made from a table instead of command objects."""

    def __init__(self, entries: Mapping[str, Entry], not_here: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(**attributes)
        self.entries = dict(entries)
        self.not_here = frozenset(not_here)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none of that name."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f".{entry.module}", __package__), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands of ``--help`` without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a call; an unknown one is refused with the nearest name."""
        return resolve_or_refuse(self, ctx, args)


class Group(click.Group):
    """A group whose unknown subcommands are refused on one line with the nearest name.

    Attributes:
        not_here: names of Pulsar's commands that this version lacks.
    """

    def __init__(self, *arguments: Any, not_here: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.not_here = frozenset(not_here)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a call; an unknown one is refused with the nearest name."""
        return resolve_or_refuse(self, ctx, args)


def resolve_or_refuse(
    group: LazyGroup | Group, ctx: click.Context, args: list[str]
) -> tuple[str | None, click.Command | None, list[str]]:
    """Return name, command and the arguments left.

    Raises:
        click.UsageError: the group has no command of that name.
    """
    name = args[0]
    command = group.get_command(ctx, name)
    if command is None and name in group.not_here:
        raise click.UsageError(f"`{ctx.command_path} {name}` is not supported by this version", ctx)
    if command is None:
        what = "flag" if name.startswith("-") else "command"
        raise click.UsageError(f"unknown {what} {name}{nearest(name, group.list_commands(ctx))}", ctx)
    return name, command, args[1:]
