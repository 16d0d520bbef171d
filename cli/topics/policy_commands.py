"""The ``get-…``, ``set-…`` and ``remove-…`` commands of policies, generated from tables (`level_policies`).

Flags are only validated here if they must be converted to numbers; the broker validates everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import click

from ..rest import Admin, Call, Setting, Subject, rest_command
from .policies import APPLIED

GLOBAL = click.Option(
    ["-g", "--global", "isGlobal"], is_flag=True, help="Accepted for compatibility; there is only one cluster."
)
Flags = Sequence[click.Option]


class Policy(NamedTuple):
    """A policy and its commands.

    Attributes:
        word: name of its commands after ``get-``, ``set-`` and ``remove-``.
        path: last segment of its REST path.
        what: its description in help texts.
        flags: flags of ``set-…``.
        body: converts them to the request body.
        method: HTTP method that sets it.
        query: name of the query parameter that contains the value instead of the body.
        remove: path that removes it, if different; None if it cannot be removed.
        remove_flags: query parameters of ``remove-…``.
        shown: path that shows it, if different.
        get: name of the ``get-…`` command, if different.
    """

    word: str
    path: str
    what: str
    flags: Flags
    body: Callable[..., Any]
    method: str = "POST"
    query: str = ""
    remove: str | None = ""
    remove_flags: Flags = ()
    shown: str = ""
    get: str = ""


def option(*names: str, help: str, **attributes: Any) -> click.Option:  # noqa: A002  the name is click's
    """Return a flag that is required unless it has a default."""
    attributes.setdefault("required", "default" not in attributes and not attributes.get("is_flag"))
    return click.Option(names, help=help, show_default="default" in attributes, **attributes)


def number_of(word: str, path: str, what: str, *names: str) -> Policy:
    """Return a numeric policy; 0 means unlimited."""
    flag = option(*names, "value", type=int, help="Maximum number; 0: unlimited.")
    return Policy(word, path, what, [flag], lambda value: value)


def policy_commands(
    policies: Sequence[Policy], argument: str, path_of: Callable[[str], str], flags: Flags = ()
) -> Iterator[click.Command]:
    """Yield the commands of policies.

    Args:
        policies: policies to create commands for.
        argument: name of the argument, ``topic`` or ``namespace``.
        path_of: returns the REST path for its value.
        flags: query parameters of all commands; commands that show a topic's policy also have ``--applied``.
    """
    subject = Subject(path_of, [click.argument(argument)], dict)
    named = "{" + argument + "}"
    for policy in policies:
        shown = f"/{policy.shown or policy.path}"
        name = policy.get or f"get-{policy.word}"
        text = f"Show the {policy.what} of a {argument}, if set."
        show_flags = [*flags, *([APPLIED] if argument == "topic" else [])]
        calls = [Call(name, "GET", shown, text, show=Setting, flags=show_flags)]
        if policy.remove is not None:
            text = f"Remove the {policy.what} of a {argument}; the inherited value applies."
            calls.append(
                Call(
                    f"remove-{policy.word}", "DELETE", f"/{policy.path}", text, f"Removed the {policy.what} of {named}",
                    flags=[*flags, *policy.remove_flags],
                )
            )  # fmt: skip
        yield from subject.commands(None, *calls)
        yield _setter(policy, argument, path_of, flags)


def _setter(policy: Policy, argument: str, path_of: Callable[[str], str], flags: Flags) -> click.Command:
    queries = [*flags, *policy.remove_flags]

    def run(rest: Admin, /, **given: Any) -> str:
        subject = given.pop(argument)
        params = {flag.name: given.pop(flag.name) or None for flag in queries}
        body = policy.body(**given)
        if policy.query:
            params[policy.query] = body
        path = f"{path_of(subject)}/{policy.path}"
        rest.call(policy.method, path, body=None if policy.query else body, params=params)
        return f"Set the {policy.what} of {subject}"

    function: Any = run
    function.__click_params__ = [*reversed([*policy.flags, *queries])]
    function = click.argument(argument)(function)
    return rest_command(None, f"set-{policy.word}", help=f"Set the {policy.what} of a {argument}.")(function)
