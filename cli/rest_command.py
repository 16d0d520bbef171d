"""Commands that talk to a REST interface: each is a function of the connection that returns what to show."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import click

from .output import Table, output_option, print_json, show_done, show_list, show_record
from .rest import Admin
from .settings import current


class Record(NamedTuple):
    """A JSON value to show, on a terminal as the table that ``table`` makes of it."""

    value: Any
    table: Callable[[Any], Table] | None = None


class Setting(NamedTuple):
    """A JSON value that may be missing: then people see nothing and programs null."""

    value: Any


class Line(NamedTuple):
    """A line for people, of which programs get ``record``."""

    text: str
    record: Any


class Names(NamedTuple):
    """Names to show, one a line."""

    names: Sequence[str]


Shown: TypeAlias = str | Record | Setting | Line | Names | None
"""A message that says what was done, a value, names; None if the command has printed already."""


def rest_command(
    group: click.Group | None, name: str | None = None, *, has_output: bool = True, **attributes: Any
) -> Callable[[Callable[..., Shown]], click.Command]:
    """Make a command of a function: it gets the connection and the parameters, and has the flag ``-o``.

    Args:
        group: what the command belongs to; None if its module adds it elsewhere.
        name: of the command; that of the function if it is None.
        has_output: False for a command whose own ``-o`` means something else.
        attributes: of the click command; its help is the docstring.
    """

    def make(run: Callable[..., Shown]) -> click.Command:
        @click.pass_context
        def call(ctx: click.Context, /, **arguments: Any) -> None:
            with Admin(current(ctx).admin_url) as rest:
                shown = run(rest, **arguments)
            _show(ctx, shown)

        function: Any = output_option(call) if has_output else call
        function.__click_params__ = [*getattr(function, "__click_params__", []), *getattr(run, "__click_params__", [])]
        attributes.setdefault("help", inspect.getdoc(run))
        command = click.command(name or run.__name__.replace("_", "-"), click.Command, **attributes)(function)
        if group is not None:
            group.add_command(command)
        return command

    return make


def _show(ctx: click.Context, shown: Shown) -> None:
    is_json = current(ctx).output == "json"
    match shown:
        case None:
            pass
        case str():
            show_done(ctx, shown)
        case Record(value, table):
            show_record(ctx, value, table)
        case Setting(value):
            if value is not None or is_json:
                print_json(value)
        case Line(text, record):
            if is_json:
                print_json(record)
            else:
                click.echo(text)
        case Names(names):
            show_list(ctx, names)
