"""``functions versions`` and ``functions rollback``: list earlier versions, and redeploy one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ...wire.printable import summary
from ..failure import Failure
from ..output import Table
from ..rest import Admin, Record, rest_command
from .target import find_target, target_options
from .waiting import Wait, take_wait, wait_options, wait_until_up

_STATES = {"deployed": "deployed", "onTrial": "on trial", "rolledBack": "rolled back", "replaced": "replaced"}


def versions_table(found: list[dict[str, Any]]) -> Table:
    """Return a table of a function's versions, followed by the failures that caused rollbacks."""
    rows, failures = [], []
    for one in found:
        state = _STATES.get(one["state"], one["state"])
        if one["restoredVersion"] is not None:
            state += f", same as {one['restoredVersion']}"
        if one.get("stateKept"):
            state += ", state kept"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["timeMs"] / 1000)) if one["timeMs"] else ""
        identity = one["package"].removeprefix("package-")[:12]
        rows.append((one["version"], state, when, one["className"], one["parallelism"], one["packageName"], identity))
        if one["failure"]:
            failures.append(f"{one['version']}: {summary(one['failure'])}")
    if any(one.get("stateKept", False) is None for one in found):
        failures.append("the state store does not respond, so the versions with kept state are unknown")
    columns = ("version", "state", "deployed at", "class", "instances", "package", "content")
    return Table(columns, rows, "", failures)


@rest_command(None)
@target_options
def versions(rest: Admin, /, **target: str | None) -> Record:
    """List the deployed versions of a function, newest first.

    The latest version and up to ten previous ones are kept, with their packages. Starting and stopping also increment
    the version, but are not listed. `functions rollback --with-state` can restore versions marked "state kept".
    """
    return Record(rest.get(f"{find_target(**target).path}/versions"), versions_table)


def to_version_option(versions: str) -> Callable[..., Any]:
    """Return the option ``--to-version``; ``versions`` is the command that lists versions."""
    return click.option(
        "--to-version", type=click.IntRange(min=0),
        help=f"Version from `{versions}` (default: the previous one).",
    )  # fmt: skip


def previous_version(found: Sequence[Mapping[str, Any]]) -> int:
    """Return the default version for a rollback: the one before the current code.

    Versions that failed to start are skipped. After a rollback, the default is the version before the restored one, so
    that another rollback goes further back.

    Args:
        found: all kept versions, newest first.

    Raises:
        Failure: no earlier version is kept.
    """
    restored = {one["version"]: one["restoredVersion"] for one in found}

    def origin(version: int) -> int:
        while (earlier := restored.get(version)) is not None:
            version = earlier
        return version

    running = origin(found[0]["version"])
    for one in found[1:]:
        version = int(one["version"])
        if version < running and one["state"] != "rolledBack" and origin(version) != running:
            return version
    raise Failure("there is no earlier version to roll back to: deploy one with `update`, or use --to-version")


def roll_back(rest: Admin, path: str, to_version: int | None, wait: Wait, **params: Any) -> str:
    """Redeploy an earlier version of a function, source or sink, by default the previous one; return a message."""
    if to_version is None:
        to_version = previous_version(rest.get(f"{path}/versions"))
    version = rest.deploy("POST", f"{path}/rollback", None, toVersion=to_version, **params)
    wait_until_up(rest, path, version, wait)
    return f"Rolled back to version {to_version} successfully"


@rest_command(None, has_output=False, epilog="\b\nmagnetar functions rollback --name exclamation")
@target_options
@to_version_option("functions versions")
@click.option("--with-state", is_flag=True, help="Also restore the state that `functions update --keep-state` kept.")
@wait_options
def rollback(rest: Admin, /, to_version: int | None, with_state: bool, **flags: Any) -> str:
    """Redeploy an earlier version of a function, with its code and settings, as a new version.

    The default is the version before the running one.

    Cursors are unchanged, and so is the state without --with-state. With it, the state is restored as of the moment
    when that version was replaced, if it was kept then, as shown by `functions versions`.
    """
    wait = take_wait(flags)
    return roll_back(rest, find_target(**flags).path, to_version, wait, withState=with_state or None)
