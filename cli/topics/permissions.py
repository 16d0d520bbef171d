"""Permission commands for topics and namespaces, with the same names and flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from ..rest import Admin, Call, Record, Subject, rest_command, segment

_role_option = click.option("--role", required=True, help="Who.")


def permission_commands(argument: str, path_of: Callable[[str], str]) -> Iterator[click.Command]:
    """Yield ``permissions``, ``grant-permission`` and ``revoke-permission``.

    Args:
        argument: name of the argument, ``topic`` or ``namespace``.
        path_of: returns the REST path for its value.
    """
    yield from Subject(path_of, [click.argument(argument)], dict).commands(
        None,
        Call("permissions", "GET", "/permissions", f"Show the permissions of all roles on a {argument}.", show=Record),
    )

    def grant(rest: Admin, /, **given: Any) -> str:
        subject, role = given[argument], given["role"]
        actions = [action.strip() for action in given["actions"].split(",")]
        rest.post(f"{path_of(subject)}/permissions/{segment(role)}", actions)
        return f"Granted {role} {', '.join(actions)} on {subject}"

    def revoke(rest: Admin, /, **given: Any) -> str:
        subject, role = given[argument], given["role"]
        rest.delete(f"{path_of(subject)}/permissions/{segment(role)}")
        return f"Revoked all permissions of {role} on {subject}"

    actions_option = click.option(
        "--actions",
        required=True,
        metavar="ACTION[,ACTION]",
        help="Comma-separated: produce, consume, sources, sinks, functions, packages.",
    )
    for run, name, flags, text in (
        (grant, "grant-permission", (actions_option, _role_option), f"Grant a role permissions on a {argument}."),
        (revoke, "revoke-permission", (_role_option,), f"Revoke all permissions of a role on a {argument}."),
    ):
        function: Any = run
        for flag in flags:
            function = flag(function)
        yield rest_command(None, name, help=text)(click.argument(argument)(function))
