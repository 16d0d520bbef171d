"""The addresses of the cluster, accepted behind a command as well as before its group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import click

from .settings import Settings, checked_admin_url, checked_service_url, current

_CHECKS: dict[str, Callable[[str], str]] = {"admin_url": checked_admin_url, "service_url": checked_service_url}


def accept_global_flags(command: click.Command) -> None:
    """Give a command, or all commands of a group, ``--admin-url`` and ``--service-url`` where they have none.

    They do not stand in the help of each, which that of the root says. A value given behind a command wins over one
    before it.
    """
    known = {name for option in command.params for name in option.opts}
    for name in _CHECKS:
        flag = "--" + name.replace("_", "-")
        if flag not in known:
            keep = partial(_keep, name)
            command.params.append(click.Option([flag], hidden=True, expose_value=False, callback=keep))
    if isinstance(command, click.Group):
        for one in command.commands.values():
            accept_global_flags(one)


def _keep(name: str, ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Put a given address into the settings of the call."""
    if value is not None:
        before: Settings = current(ctx)
        ctx.obj = replace(before, **{name: _CHECKS[name](value)})
