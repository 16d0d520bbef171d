"""The source ``http``: webhooks of senders that retry until they receive status 200."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pulsar

from tests.connectors.cases.base import SourceCase
from tests.support.ports import Reserved

SENDERS = 48
PATIENCE_S = 60.0


class HttpSourceCase(SourceCase):
    """JSON bodies; a sender without an answer retries, so that an order may arrive twice."""

    connector = "http"
    is_ordered = False  # senders are many
    bad_configs = (
        ({"port": 0}, "port must be at least 1"),
        ({"port": "http"}, "port must be a whole number"),
        ({"path": "orders"}, "must start with /"),
        ({"maxWaitingBytes": 1000}, "maxWaitingBytes must be at least maxBodyBytes"),
        ({"answer": "later"}, "answer must be one of durable, accepted"),
        ({"tokn": "x"}, "did you mean token?"),
    )

    def __init__(self, server: Any, directory: Path) -> None:
        super().__init__(server, directory)
        self._reserved = Reserved(1)

    @property
    def port(self) -> int:
        return self._reserved.numbers[0]

    def configs(self) -> dict[str, object]:
        return {"port": self.port, "token": "geheim", "keyHeader": "x-key", "maxWaiting": 40}

    def feed(self, records: list[tuple[int, str]]) -> None:
        left = iter(records)
        with ThreadPoolExecutor(SENDERS) as senders:
            for done in [senders.submit(self._send_all, left) for _ in range(SENDERS)]:
                done.result()

    def _send_all(self, left: Any) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        while record := next(islice(left, 1), None):
            until_s = time.monotonic() + PATIENCE_S
            while (status := self._send(connection, json.dumps(dict(zip(("id", "text"), record, strict=True))))) != 200:
                assert status in (0, 503), f"record {record[0]} was answered with {status}"
                assert time.monotonic() < until_s, f"record {record[0]} is not taken"
        connection.close()

    def _send(self, connection: http.client.HTTPConnection, body: str) -> int:
        """Return the status of one request, or 0 without an answer."""
        headers = {"Authorization": "Bearer geheim", "X-Key": "schluessel"}
        try:
            connection.request("POST", "/orders", body.encode(), headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0
        return answer.status

    def feed_bad(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        assert self._send(connection, "{no json") == 400
        connection.close()

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        assert message.partition_key() == "schluessel"
        value = json.loads(message.data())
        return value["id"], value["text"]
