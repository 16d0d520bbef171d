"""Flags and output of the `logs` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from .rest import Admin


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--tail`` and ``--follow`` to a command."""
    tail = "Number of lines to show from the end of the log."
    command = click.option("-f", "--follow", is_flag=True, help="Follow the log.")(command)
    return click.option("--tail", type=click.IntRange(0), default=100, show_default=True, help=tail)(command)


def print_log(rest: Admin, path: str, tail: int, *, follow: bool) -> None:
    """Print the end of the logs of one or all instances of a component.

    Args:
        rest: the worker.
        path: path of the component or the instance.
        tail: number of lines per instance.
        follow: continue with new lines indefinitely.
    """
    out = sys.stdout.buffer
    with rest.stream(f"{path}/logs", {"tail": tail, "follow": follow}) as pieces:
        for piece in pieces:
            out.write(piece)
            out.flush()
