"""Lines of the line protocol, and the requests to InfluxDB 2, which no server takes here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.api.connector import Record, RecordRefused, Retry, SinkContext
from magnetar.api.connector_config import read_config
from magnetar.connectors.influxdb_sink import InfluxdbConfig, InfluxdbSink, line_of

CONTEXT = cast(SinkContext, SimpleNamespace())


def config_of(**given: Any) -> InfluxdbConfig:
    return read_config(InfluxdbConfig, {"influxdbUrl": "http://localhost:8086", "database": "d", **given})


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"measurement": "m", "fields": {"a": 1}, "timestamp": 5}, "m a=1i 5"),
        ({"measurement": "m, ü", "tags": {"z": "q=1", "a b": 2}, "fields": {"f": 0.5}, "timestamp": "7"},
         "m\\,\\ ü,a\\ b=2,z=q\\=1 f=0.5 7"),
        ({"measurement": "m", "fields": {"a": 'q"b\\', "b": True, "c": None}, "timestamp": -1},
         'm a="q\\"b\\\\",b=true -1'),
        ({"measurement": "m", "tags": {"e": "", "n": None}, "fields": {"a": "l\nl"}, "timestamp": 0}, 'm a="l\nl" 0'),
    ],
)  # fmt: skip
def test_lines(value: dict[str, Any], line: str) -> None:
    assert line_of(Record(json.dumps(value)), config_of()).decode() == line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "timestamp": 1}, "no measurement and fields"),
        ({"measurement": "m", "fields": {"a": None}, "timestamp": 1}, "no non-null fields"),
        (
            {"measurement": "m", "fields": {"a": [1]}, "timestamp": 1},
            "field 'a' must be a string, number or boolean, not list",
        ),
        ({"measurement": "m", "fields": {"a": 1 << 63}, "timestamp": 1}, "64 bits"),
        ({"measurement": "m", "fields": {"a": 1}, "timestamp": "soon"}, "timestamp 'soon'"),
        ({"measurement": "m", "fields": {"a": 1}, "timestamp": True}, "timestamp True"),
        ({"measurement": "m\n", "fields": {"a": 1}, "timestamp": 1}, "line break"),
        ({"measurement": "m", "tags": {"t": "\\"}, "fields": {"a": 1}, "timestamp": 1}, "backslash"),
        ({"measurement": "m", "tags": ["t"], "fields": {"a": 1}, "timestamp": 1}, "tags must be a JSON object"),
        ({"measurement": "m", "fields": {"a": "\ud800"}, "timestamp": 1}, "not valid UTF-8"),
        ({"measurement": "m", "fields": {"a": 1}}, "neither a timestamp"),
    ],
)
def test_what_is_no_point_is_refused(value: dict[str, Any], text: str) -> None:
    with pytest.raises(RecordRefused, match=text):
        line_of(Record(json.dumps(value)), config_of(timestampRequired=True))


def test_events_of_one_millisecond_are_told_apart() -> None:
    config = config_of(measurement="m")
    lines = {line_of(Record(b'{"a":1}', event_time_ms=1000, sequence=number), config) for number in range(100)}
    assert len(lines) == 100
    assert line_of(Record(b'{"a":1}', event_time_ms=1000, sequence=7), config) == b"m a=1i 1000000007"


def test_only_points_with_a_time_can_be_effectively_once() -> None:
    assert "timestampRequired" in InfluxdbSink().not_effectively_once(config_of())
    assert not InfluxdbSink().not_effectively_once(config_of(timestampRequired=True))


class Answers(BaseHTTPRequestHandler):
    """Keeps requests and gives the status that is next."""

    seen: list[tuple[str, str | None, bytes]]
    statuses: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, self.headers["authorization"], body))
        self.send_response(self.statuses.pop(0) if self.statuses else 204)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Keep quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    Answers.seen, Answers.statuses = [], []
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_to_influxdb_2(url: str) -> None:
    given = {"influxdbUrl": url, "bucket": "b c", "organization": "o", "token": "t", "measurement": "m"}
    config = read_config(InfluxdbConfig, given)
    sink = InfluxdbSink()
    sink.check(config)
    sink.open(config, CONTEXT)
    records = [Record(b'{"a":1,"timestamp":1}'), Record(b'{"a":2,"timestamp":2}')]
    sink.write_batch(records)
    assert Answers.seen == [("/api/v2/write?org=o&bucket=b+c&precision=ns", "Token t", b"m a=1i 1\nm a=2i 2")]
    for status in (401, 404, 429, 500, 503):
        Answers.statuses = [status]
        with pytest.raises(Retry, match=f"returned {status}"):
            sink.write_batch(records)
    Answers.statuses = [422, 204, 422]
    with pytest.raises(RecordRefused, match="422") as refused:
        sink.write_batch(records)
    assert (refused.value.index, refused.value.written) == (1, 1)
    sink.close()
