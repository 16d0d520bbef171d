"""S3: moto behind a gate.

Moto keeps objects in memory, so the end of its process loses what it confirmed, which no service of objects does. What
is killed instead is the gate, a process that every byte from and to moto goes through: requests that are under way
break off, new ones are refused, and what was confirmed is there when it comes back, with another process id. What this
cannot show is a service that loses objects by itself; no sink could do anything about that.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config

from tests.connectors.servers.base import RealServer

DROP_RIGHTS = """
import os, sys

def drop_rights():
    if uid := os.environ.get("MAGNETAR_TEST_UID"):
        os.setgroups([])
        os.setgid(int(os.environ["MAGNETAR_TEST_GID"]))
        os.setuid(int(uid))
"""
MOTO = """
import encodings.idna, moto.backends, moto.s3.responses, moto.s3.urls, moto.server

moto.backends.get_backend("s3")
drop_rights()
moto.server.main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""
GATE = """
import asyncio

async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def forward(reader, writer):
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

async def main():
    server = await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

drop_rights()
asyncio.run(main())
"""


class Moto(RealServer):
    """Moto's server, which is not killed before the end of the tests."""

    start_timeout_s = 60.0
    drops_rights = True

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [sys.executable, "-c", DROP_RIGHTS + MOTO, str(self.port)]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        return httpx.get(f"http://127.0.0.1:{self.port}/", trust_env=False).status_code == 200


class S3(RealServer):
    """The gate, whose port is that of the service."""

    drops_rights = True

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._inner_directory = tempfile.TemporaryDirectory(prefix="magnetar-moto-")
        Path(self._inner_directory.name).chmod(0o755)
        self.inner = Moto(Path(self._inner_directory.name))

    @classmethod
    def require(cls) -> None:
        """Override `RealServer.require`."""
        try:
            import moto  # noqa: F401
        except ImportError:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("no moto here: pip install 'moto[server]'")

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        self.inner.start()

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [sys.executable, "-c", DROP_RIGHTS + GATE, str(self.port), str(self.inner.port)]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        return httpx.get(f"{self.url}/", trust_env=False).status_code == 200

    def stop(self) -> None:
        """Override `RealServer.stop`."""
        super().stop()
        self.inner.stop()
        self._inner_directory.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """Return a client that bypasses the gate."""
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.inner.port}",
            region_name="us-east-1",
            aws_access_key_id="id",
            aws_secret_access_key="secret",
            config=Config(retries={"total_max_attempts": 1}),
        )
