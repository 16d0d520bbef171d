"""A WebSocket server in a separate process; see `websocket_program`."""

from __future__ import annotations

import pwd
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.connectors.servers.base import RealServer

PROGRAM = Path(__file__).with_name("websocket_program.py")


class WebsocketServer(RealServer):
    """Sends all its messages to each subscriber, even after a kill."""

    def url(self, name: str) -> str:
        """Return the URL for the messages of one name."""
        return f"ws://127.0.0.1:{self.port}/{name}"

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [sys.executable, str(PROGRAM), str(self.port), str(self.directory)]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        socket.create_connection(("127.0.0.1", self.port), 1).close()
        return True

    @property
    def _account(self) -> pwd.struct_passwd | None:
        """Return None to run as the user of the tests, who alone may be able to read Python's packages."""
        return None
