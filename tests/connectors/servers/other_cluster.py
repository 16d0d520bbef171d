"""Another cluster: our own broker in a separate process."""

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
        """Address for clients."""
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """URL of the REST interface."""
        return f"http://127.0.0.1:{self.ports[1]}"

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        port, web_port = map(str, self.ports)
        data = str(self.directory / "data")
        flags = ["--data-dir", data, "--broker-port", port, "--web-port", web_port]
        return [sys.executable, "-m", "magnetar.cli", "broker", *flags]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        return httpx.get(f"{self.admin_url}/admin/v2/brokers/health", timeout=2).is_success

    @property
    def _account(self) -> pwd.struct_passwd | None:
        """Return None to run as the user of the tests, who alone may be able to read this package."""
        return None
