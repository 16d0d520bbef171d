"""A NATS server with JetStream."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from tests.connectors.servers.base import RealServer


class NatsServer(RealServer):
    """NATS with JetStream on disk, and a user."""

    binary = "/usr/sbin/nats-server"
    package = "apt-get install nats-server"
    username = "jemand"
    password = "geheim"

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [
            self.binary, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.directory),
            "--user", self.username, "--pass", self.password,
        ]  # fmt: skip

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        with socket.create_connection(("127.0.0.1", self.port), 5.0) as connection:
            return connection.recv(4) == b"INFO"

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"nats://127.0.0.1:{self.port}"
