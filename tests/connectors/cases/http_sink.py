"""The sink ``http``, with a web server that stores the requests."""

from __future__ import annotations

import json
from typing import ClassVar
from urllib.parse import unquote

from tests.connectors.cases.base import SinkCase
from tests.connectors.servers.base import RealServer
from tests.connectors.servers.http_receiver import HttpReceiver


class HttpSinkCase(SinkCase):
    """Requests, ordered per key."""

    connector = "http"
    server: ClassVar[type[RealServer] | None] = HttpReceiver
    server_process: HttpReceiver
    bad_configs = (
        ({"url": "localhost:80"}, "url 'localhost:80'"),
        ({"url": "ftp://localhost"}, "url 'ftp://localhost'"),
        ({"url": "http://127.0.0.1:9"}, "retrying"),
        ({"timeout": 0}, "timeout must be at least 0.01"),
        ({"urll": "http://localhost"}, "urll"),
        ({"httpMethod": "PO ST"}, "httpMethod 'PO ST'"),
        ({"headers": {"a b": "c"}}, "headers"),
    )

    def prepare(self) -> None:
        self.server_process.received.unlink(missing_ok=True)
        self.server_process.stop()
        self.server_process.start()

    def configs(self) -> dict[str, object]:
        return {"url": f"{self.server_process.url}/in", "timeout": 5}

    def bad_record(self) -> bytes | None:
        return b"no json"

    def read_back(self) -> list[tuple[int, str]]:
        records: list[tuple[int, str]] = []
        for line in self.server_process.received.read_bytes().splitlines():
            request = json.loads(line)
            headers, value = request["headers"], request["value"]
            number = value["id"]
            assert unquote(headers.get("pulsarkey", "")) == (self.key(number) or "")
            if number % 3:
                assert headers["pulsarproperties-number"] == str(number)
            records.append((number, value["text"]))
        return records
