"""``create`` and ``update`` wait until every instance runs, and say why if that does not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from ...errors import DeploymentFailed
from ...web.deployments import WAIT_TIMEOUT_S, is_up, next_pause, not_up_in_time
from ..failure import Failure
from ..rest import Admin

_SERVER_ERRORS = 500


class Wait(NamedTuple):
    """How a command waits.

    Attributes:
        is_wanted: whether it does.
        timeout_s: for how long.
        shows_details: whether everything that a failed instance says is printed, with its traceback.
    """

    is_wanted: bool
    timeout_s: float
    shows_details: bool


def wait_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--no-wait``, ``--wait-timeout`` and ``--traceback``; `take_wait` reads them."""
    for option in (
        click.option("--traceback", "shows_details", is_flag=True, help="If it fails, print what the instance says."),
        click.option(
            "--wait-timeout", "wait_timeout_s", type=click.FloatRange(min=0), default=WAIT_TIMEOUT_S, metavar="SECONDS",
            show_default=True, help="How long to wait for the instances.",
        ),
        click.option("--wait/--no-wait", "is_waiting", default=True, help="Wait until all instances run (default)."),
    ):  # fmt: skip
        command = option(command)
    return command


def rollback_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--no-rollback-on-failure``."""
    text = "Restore the version before if the new one does not come up (default)."
    name = "--rollback-on-failure/--no-rollback-on-failure"
    return click.option(name, "rolls_back", default=True, help=text)(command)


def take_wait(flags: dict[str, Any]) -> Wait:
    """Take what `wait_options` has put into the flags of a command."""
    return Wait(flags.pop("is_waiting"), flags.pop("wait_timeout_s"), flags.pop("shows_details"))


def wait_until_up(rest: Admin, path: str, version: str | None, wait: Wait) -> None:
    """Return when a version that was deployed runs.

    Args:
        rest: the worker.
        path: of the function, source or sink.
        version: as the answer to the deployment told it; None from Apache Pulsar's workers: then nothing is waited for.
        wait: how.

    Raises:
        DeploymentFailed: it does not run, or not in time.
        Failure: it was deleted meanwhile.
    """
    if version is None or not wait.is_wanted:
        return
    try:
        _wait(rest, path, version, wait.timeout_s)
    except DeploymentFailed as exc:
        if wait.shows_details and exc.details:
            click.echo(exc.details.rstrip(), err=True)
        raise


def _wait(rest: Admin, path: str, version: str, timeout_s: float) -> None:
    until_s = time.monotonic() + timeout_s
    answer: dict[str, Any] = {"version": version, "numRunning": 0, "numInstances": "all"}
    pause_s = 0.0
    while True:
        try:
            answer = rest.get(f"{path}/deployment", version=version)
            if is_up(answer):
                return
        except Failure as exc:
            if 0 < exc.status < _SERVER_ERRORS:
                raise
            answer = {**answer, "error": exc.message}  # a worker that is away may come back
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise not_up_in_time(answer, timeout_s)
        pause_s = next_pause(pause_s)
        time.sleep(min(pause_s, left_s))
