"""Run commands against one server, as the examples do."""

from __future__ import annotations

import json
from pathlib import Path

from .command import Answer, call
from .servers import Server
from .waiting import wait_for


class Shell:
    """Runs commands against one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def admin_url(self) -> str:
        return self._server.web_url

    def __call__(self, *arguments: str) -> Answer:
        return call(*arguments, admin_url=self._server.web_url, service_url=self._server.service_url).ok()

    def deploy(self, name: str, package: Path, class_name: str, *flags: str) -> None:
        """Create a function from `NAME-in` to `NAME-out`, and wait until it is running."""
        self("functions", "create", "--py", str(package), "--classname", class_name, "--name", name,
             "--inputs", f"{name}-in", "--output", f"{name}-out", *flags)  # fmt: skip
        self.wait_until_running(name)

    def wait_until_running(self, name: str) -> None:
        wait_for(
            lambda: self("functions", "status", "--name", name).json()["numRunning"] == 1,
            f"running {name}", timeout_s=60,
        )  # fmt: skip

    def through(self, name: str, *messages: str, outputs: int = 1) -> list[str]:
        """Send messages to a function, and return a number of outputs."""
        self("topics", "create-subscription", f"{name}-out", "-s", "test", "-m", "earliest")
        flags = [flag for message in messages for flag in ("-m", message)]
        self("produce", f"{name}-in", "-s", "", *flags)
        lines = self("-o", "json", "consume", f"{name}-out", "-s", "test", "-n", str(outputs)).out.splitlines()
        return [json.loads(line)["content"] for line in lines]
