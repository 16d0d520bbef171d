"""Another cluster: our own broker, as a process of its own."""

from __future__ import annotations

import pwd
import sys
from collections.abc import Sequence

import httpx

from tests.connectors.servers.base import RealServer


class OtherCluster(RealServer):
    """A broker with its REST interface."""

    ports_needed = 2

    @property
    def service_url(self) -> str:
        """What clients are given."""
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """Of its REST interface."""
        return f"http://127.0.0.1:{self.ports[1]}"

    def command(self) -> Sequence[str]:
        """See `RealServer.command`."""
        port, web_port = map(str, self.ports)
        data = str(self.directory / "data")
        flags = ["--data-dir", data, "--broker-port", port, "--web-port", web_port]
        return [sys.executable, "-m", "magnetar.cli", "broker", *flags]

    def is_ready(self) -> bool:
        """See `RealServer.is_ready`."""
        return httpx.get(f"{self.admin_url}/admin/v2/brokers/health", timeout=2).is_success

    @property
    def _account(self) -> pwd.struct_passwd | None:
        """None: it runs as whoever runs the tests, who alone may be able to read this package."""
        return None
