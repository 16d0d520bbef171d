"""InfluxDB 1."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from tests.connectors.servers.base import RealServer


class InfluxDb(RealServer):
    """One node, without users."""

    binary = "influxd"
    package = "apt-get install influxdb"
    user = "influxdb"
    ports_needed = 2

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        data = self.directory
        (data / "influxdb.conf").write_text(
            f"""reporting-disabled = true
bind-address = "127.0.0.1:{self.ports[1]}"
[meta]
dir = "{data}/meta"
[data]
dir = "{data}/data"
wal-dir = "{data}/wal"
[http]
bind-address = "127.0.0.1:{self.port}"
log-enabled = false
"""
        )

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return ["influxd", "run", "-config", str(self.directory / "influxdb.conf")]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        return httpx.get(f"{self.url}/ping", trust_env=False).status_code == 204
