"""Flags for addresses and credentials, accepted after a command as well as before its group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import click

from .security_settings import SECURITY_SETTINGS
from .settings import Settings, checked_admin_url, checked_service_url, current

_CHECKS: dict[str, Callable[[str], str]] = {"admin_url": checked_admin_url, "service_url": checked_service_url}


def security_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags for authentication and TLS to the root command."""
    for one in reversed(SECURITY_SETTINGS):
        metavar = None if one.is_switch else "NAME" if one.name == "auth_plugin" else "TEXT"
        if one.name.endswith("_file"):
            metavar = "FILE"
        command = click.option(*one.flags, one.name, default=None, metavar=metavar, help=one.help)(command)
    return command


def accept_global_flags(command: click.Command) -> None:
    """Add the flags for addresses and credentials to a command, or to all commands of a group, if they lack them.

    The flags are hidden in each command's help and described in the root's. A value after a command takes precedence
    over one before it.
    """
    known = {name for option in command.params for name in option.opts}
    for name in _CHECKS:
        flag = "--" + name.replace("_", "-")
        if flag not in known:
            keep = partial(_keep, name)
            command.params.append(click.Option([flag], hidden=True, expose_value=False, callback=keep))
    for one in SECURITY_SETTINGS:
        if known.isdisjoint("/".join(one.flags).split("/")):
            keep = partial(keep_security, one.name)
            flags = [*one.flags, one.name]
            command.params.append(click.Option(flags, hidden=True, expose_value=False, callback=keep, default=None))
    if isinstance(command, click.Group):
        for below in command.commands.values():
            accept_global_flags(below)


def _keep(name: str, ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Store a given address in the call's settings."""
    if value is not None:
        before: Settings = current(ctx)
        checked: dict[str, Any] = {name: _CHECKS[name](value)}
        ctx.obj = replace(before, **checked)


def keep_security(name: str, ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    """Store a given authentication or TLS setting in the call's settings."""
    if value is not None:
        ctx.obj = current(ctx).with_security(name, value)
