"""A web server that stores requests, in a separate process so that it can be killed."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.connectors.servers.base import RealServer

PROGRAM = Path(__file__).with_name("http_receiver_program.py")


class HttpReceiver(RealServer):
    """Accepts POST and PUT requests and stores them in the file `received`."""

    drops_rights = True

    @property
    def received(self) -> Path:
        return self.directory / "received.jsonl"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return (sys.executable, str(PROGRAM), str(self.port), str(self.received))

    def is_ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/ready", timeout=1) as answer:
            return bool(answer.status == 200)
