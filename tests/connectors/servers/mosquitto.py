"""Mosquitto, which keeps its messages when stopped but not when killed."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from tests.connectors.servers.base import RealServer


class Mosquitto(RealServer):
    """Mosquitto with a user, sessions on disk and a packet size limit."""

    binary = "/usr/sbin/mosquitto"
    package = "apt-get install mosquitto"
    username = "jemand"
    password = "geheim"
    packet_max = 1_100_000  # bytes

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        passwords = self.directory / "passwords"
        self.run("mosquitto_passwd", "-b", "-c", str(passwords), self.username, self.password)
        lines = [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous false",
            f"password_file {passwords}",
            "persistence true",
            f"persistence_location {self.directory}/",
            "max_queued_messages 0",
            f"max_packet_size {self.packet_max}",
        ]
        (self.directory / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [self.binary, "-c", str(self.directory / "mosquitto.conf")]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        socket.create_connection(("127.0.0.1", self.port), 5.0).close()
        return True
