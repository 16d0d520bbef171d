"""Output of commands: JSON for programs, tables for people, plain lines for pipes.

With ``-o json``, standard output contains a single JSON value. Without it, the output is a table on a terminal, and in
a pipe the same as that of Pulsar's own tool, so that scripts written for it keep working: JSON for records, lines for
lists.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ..wire.printable import printable
from .settings import current


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag ``-o json`` to a command; its value is in the settings, not in the command's arguments."""

    def choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.obj = replace(current(ctx), output=value)

    return click.option(
        "-o", "--output", type=click.Choice(["json"]), callback=choose, expose_value=False, help="Print only JSON."
    )(command)


def show_done(ctx: click.Context, message: str) -> None:
    """Print that a command succeeded."""
    if current(ctx).output == "json":
        print_json({"message": message})
    else:
        click.echo(message)


def wants_table(ctx: click.Context) -> bool:
    """Return whether to print tables: standard output is a terminal, and JSON was not requested."""
    return current(ctx).output is None and sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


STYLES = {
    "running": "green", "done": "green", "partly running": "yellow", "planning": "yellow", "committing": "yellow",
    "stopped": "yellow", "down": "red", "failed": "red", "cancelled": "red",
}  # fmt: skip
"""Colours of words in `STATE_COLUMNS`, unless the terminal has no colours or NO_COLOR is set."""
STATE_COLUMNS = ("state", "stage")


class Table(NamedTuple):
    """Rows under a heading.

    Attributes:
        columns: column names.
        rows: one sequence of cells per row; None is an empty cell.
        title: title of the table; empty for none.
        notes: lines below the table, for text too long for a cell.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    notes: Sequence[str] = ()


def key_value_table(record: Mapping[str, Any]) -> Table:
    """Return a record as a table with two columns; nested values are shown as JSON."""
    rows = [
        (key, json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value)
        for key, value in record.items()
    ]
    return Table(("field", "value"), rows)


def print_table(table: Table) -> None:
    """Print a table no wider than the terminal; wide headings are wrapped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    rows = [["" if cell is None else _shown(str(cell)) for cell in row] for row in table.rows]
    columns = zip(table.columns, *rows, strict=True)
    is_wide = sum(max(map(len, column)) + 1 for column in columns) > console.width + 1
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    for name in table.columns:
        shown.add_column(name.replace(" ", "\n") if is_wide else name, overflow="fold")
    for row in rows:
        styles = (
            STYLES.get(cell, "") if name in STATE_COLUMNS else "" for name, cell in zip(table.columns, row, strict=True)
        )
        shown.add_row(*map(Text, row, styles))
    if table.title:
        console.print(Text(table.title, style="italic"), soft_wrap=True)
    console.print(shown)
    for note in table.notes:
        console.print(Text(_shown(note)), soft_wrap=True)


def _shown(text: str) -> str:
    return "\n".join(printable(line.expandtabs()) for line in text.split("\n"))
