"""A Redis server that retains confirmed writes when killed."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from tests.connectors.servers.base import RealServer


class RedisServer(RealServer):
    """Redis with an append-only file."""

    binary = "redis-server"
    package = "apt-get install redis-server"
    password = "geheim"

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        settings = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.directory), "appendonly": "yes"}
        # By default what it has confirmed may wait for two seconds while an earlier part is synced, and goes with it.
        settings["appendfsync"] = "always"
        settings["requirepass"] = self.password
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [self.binary, *flags, "--save", ""]

    def client(self) -> redis.Redis:
        """A new client for each call."""
        return redis.Redis("127.0.0.1", self.port, password=self.password, socket_timeout=10.0)

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        with self.client() as client:
            return bool(client.ping())
