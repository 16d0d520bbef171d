"""Deploys Spark functions from the command line as a user does: creates and triggers them, and reads their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import psutil

from tests.spark.topics import options_for, values
from tests.support.command import Answer, call
from tests.support.servers import Server, descendants

RUN_S = 300.0
SLOW = """
import pathlib, time
HERE = pathlib.Path({directory!r})

def process(message):
    if (HERE / "slow").exists():
        (HERE / "begun").touch()
        time.sleep(0.05)
    return f"{{message}}!"
"""
"""A function whose calls take long while a file ``slow`` is there; they make a file ``begun``."""


class Place(Protocol):
    """The target of a deployment; `Server` is one."""

    @property
    def web_url(self) -> str:
        """URL of the REST interface."""

    @property
    def service_url(self) -> str:
        """URL of the broker."""


def functions(place: Place, *arguments: str) -> Answer:
    return call("functions", *arguments, admin_url=place.web_url, service_url=place.service_url, timeout_s=RUN_S)


def create(place: Place, name: str, code: Path, function: str, *flags: str) -> Answer:
    """Create a function from topic `<name>-in` to topic `<name>-out`."""
    return functions(
        place, "create", "--py", str(code), "--classname", f"{code.stem}.{function}", "--name", name,
        "--inputs", f"{name}-in", "--output", f"{name}-out", "--subs-position", "Earliest", *flags,
    )  # fmt: skip


def run_of(place: Place, name: str) -> dict[str, Any]:
    """Return the record of the latest run."""
    status = functions(place, "status", "--name", name, "--instance-id", "0").ok().json()
    run: dict[str, Any] = status["run"]
    return run


def outputs(place: Place, name: str) -> list[bytes]:
    return values(options_for(place.service_url, f"{name}-out"))


def numbers(begin: int, end: int, batch: int) -> list[list[bytes]]:
    """Return decimal numbers, ``batch`` per entry."""
    return [[b"%d" % number for number in range(first, first + batch)] for first in range(begin, end, batch)]


def host(server: Server) -> psutil.Process:
    """Return the process that runs the server's Spark functions."""
    return next(one for one in descendants(server.pid) if one.cmdline()[:1] == ["magnetar spark host"])


def slow_function(directory: Path, name: str) -> Path:
    """Write the code `SLOW` to a file."""
    code = directory / f"{name}.py"
    code.write_text(SLOW.format(directory=str(directory)))
    return code
