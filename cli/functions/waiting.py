"""Waiting for ``create`` and ``update``: until all instances are running, or one has failed."""

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
    """Options that control how a command waits.

    Attributes:
        is_wanted: whether to wait.
        timeout_s: timeout in seconds.
        shows_details: whether to print a failed instance's complete error, with its traceback.
    """

    is_wanted: bool
    timeout_s: float
    shows_details: bool


def wait_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--no-wait``, ``--wait-timeout`` and ``--traceback`` to a command; `take_wait` reads them."""
    for option in (
        click.option("--traceback", "shows_details", is_flag=True, help="On failure, print the instance's traceback."),
        click.option(
            "--wait-timeout", "wait_timeout_s", type=click.FloatRange(min=0), default=WAIT_TIMEOUT_S, metavar="SECONDS",
            show_default=True, help="Maximum time to wait for the instances.",
        ),
        click.option("--wait/--no-wait", "is_waiting", default=True, help="Wait until all instances run (default)."),
    ):  # fmt: skip
        command = option(command)
    return command


def rollback_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--no-rollback-on-failure`` to a command."""
    text = "Restore the previous version if the new one fails to start (default)."
    name = "--rollback-on-failure/--no-rollback-on-failure"
    return click.option(name, "rolls_back", default=True, help=text)(command)


def take_wait(flags: dict[str, Any]) -> Wait:
    """Remove the values of `wait_options` from a command's flags and return them."""
    return Wait(flags.pop("is_waiting"), flags.pop("wait_timeout_s"), flags.pop("shows_details"))


def wait_until_up(rest: Admin, path: str, version: str | None, wait: Wait) -> None:
    """Wait until a deployed version is running.

    Args:
        rest: the worker.
        path: path of the function, source or sink.
        version: version from the response to the deployment; None, as from Apache Pulsar's workers, to not wait.
        wait: wait options.

    Raises:
        DeploymentFailed: the version failed, or is not running in time.
        Failure: the function was deleted while waiting.
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
            answer = {**answer, "error": exc.message}  # an unavailable worker may recover
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise not_up_in_time(answer, timeout_s)
        pause_s = next_pause(pause_s)
        time.sleep(min(pause_s, left_s))
