"""`logs`: its flags, and what instances logged on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from .rest import Admin


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--tail`` and ``--follow``."""
    tail = "Number of lines to show from the end of the log."
    command = click.option("-f", "--follow", is_flag=True, help="Follow the log.")(command)
    return click.option("--tail", type=click.IntRange(0), default=100, show_default=True, help=tail)(command)


def print_log(rest: Admin, path: str, tail: int, *, follow: bool) -> None:
    """Print the end of the logs of all instances of a component, or of one, as it comes.

    Args:
        rest: the worker.
        path: of the component or the instance.
        tail: lines of each.
        follow: go on for ever.
    """
    out = sys.stdout.buffer
    with rest.stream(f"{path}/logs", {"tail": tail, "follow": follow}) as pieces:
        for piece in pieces:
            out.write(piece)
            out.flush()
