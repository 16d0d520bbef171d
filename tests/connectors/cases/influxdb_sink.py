"""The sink ``influxdb``, on InfluxDB 1."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import httpx

from tests.connectors.cases.base import SinkCase
from tests.connectors.servers.influxdb import InfluxDb


class InfluxdbSinkCase(SinkCase):
    """A point for each record, each at a different time."""

    connector = "influxdb"
    server = InfluxDb
    is_exact = True
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"influxdbUrl": None}, "influxdbUrl is missing"),
        (
            {"influxdbUrl": "localhost:8086"},
            "invalid influxdbUrl 'localhost:8086': expected a URL starting with http://",
        ),
        ({"bucket": "b"}, "set either database for InfluxDB 1, or bucket"),
        ({"database": "none"}, "database not found"),
        ({"precision": "h"}, "precision must be one of ns, us, ms, s"),
        ({"batchSize": 0}, "batchSize must be at least 1"),
        ({"logLevel": "BASIC"}, "logLevel cannot be set to anything but NONE: "),
        ({"influxdbUrl": "http://127.0.0.1:1"}, "retrying"),
    ]

    @property
    def database(self) -> str:
        return f"db{self.directory.parent.name}"

    def query(self, text: str, **parameters: str) -> Any:
        url = f"{self.server_process.url}/query"
        answer = httpx.post(url, params=parameters, data={"q": text}, trust_env=False, timeout=60)
        return answer.raise_for_status().json()["results"][0].get("series", [])

    def prepare(self) -> None:
        self.query(f'create database "{self.database}"')

    def configs(self) -> dict[str, object]:
        url = self.server_process.url
        return {"influxdbUrl": url, "database": self.database, "measurement": "m", "tags": "parity", "precision": "s"}

    def value(self, number: int, text: str) -> bytes:
        fields = {"id": number, "text": text, "nothing": None, "parity": number % 2, "timestamp": 1 + number}
        return json.dumps(fields, ensure_ascii=False).encode()

    def bad_record(self) -> bytes | None:
        return b'{"id": "a text where numbers are", "timestamp": 1}'

    def read_back(self) -> list[tuple[int, str]]:
        found = self.query('select "id", "text" from "m"', db=self.database, epoch="s")
        return [(number, text) for _, number, text in found[0]["values"]] if found else []
