"""RabbitMQ, the slowest server: it takes 12 to 55 s until it accepts connections."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tests.connectors.servers.base import RealServer
from tests.support.servers import ServerFailed


class RabbitServer(RealServer):
    """RabbitMQ with a separate port mapper (epmd)."""

    binary = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in sbin changes its user
    package = "apt-get install rabbitmq-server"
    ports_needed = 3  # AMQP, between nodes, port mapper
    start_timeout_s = 180.0
    message_max = 1_050_000  # bytes

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            "disk_free_limit.absolute = 50MB",
            f"max_message_size = {self.message_max}",
        ]
        (self.directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.directory / "plugins").write_text("[].\n")

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [self.binary]

    def environment(self) -> Mapping[str, str]:
        """Override `RealServer.environment`."""
        return {
            "ERL_EPMD_PORT": str(self.ports[2]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self.ports[1]),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
        }

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        with socket.create_connection(("127.0.0.1", self.port), 5.0) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"

    def stop(self) -> None:
        """Override `RealServer.stop`; the port mapper is no child of the server, and ends by itself only if told."""
        super().stop()
        with suppress(ServerFailed):  # it was not there any more
            self.run("epmd", "-port", str(self.ports[2]), "-kill")
