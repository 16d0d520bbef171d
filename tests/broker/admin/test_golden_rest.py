"""Every recorded request, repeated on our broker: the answers of an Apache Pulsar, field by field."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Container
from typing import Any

import httpx
import pulsar
import pytest

from tests.broker.admin.conftest import RunningBroker
from tests.broker.admin.deviations import DEVIATIONS, FIELDS_OF_OUR_OWN, Deviation
from tests.broker.admin.golden import Line, differences, lines

pytestmark = pytest.mark.slow
_TYPES = {
    None: pulsar.ConsumerType.Exclusive,
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Shared": pulsar.ConsumerType.Shared,
    "Failover": pulsar.ConsumerType.Failover,
}
_SCHEMAS = {None: pulsar.schema.BytesSchema(), "string": pulsar.schema.StringSchema()}
_HTML = "text/html"
SETTLE_S = 20.0
AHEAD_MS = 3_600_000
"""As a minute was at the recording: no replay takes as long."""


class Replay:
    """One file, on one broker."""

    def __init__(self, broker: RunningBroker, deviating: Container[int]) -> None:
        self._broker = broker
        self._saved: dict[str, Any] = {"nowMillisPlus60000": int(time.time() * 1000) + AHEAD_MS}
        self._open: dict[str, Any] = {}
        self._client: pulsar.Client | None = None
        self.found: dict[int, list[str]] = {}
        self.answers: dict[int, httpx.Response] = {}
        self._has_waited = False
        self._deviating = deviating

    async def run(self, line: Line) -> None:
        if line.method == "WAIT":
            await asyncio.sleep(line.request["seconds"])  # what the recording waited for is time itself
        elif line.method == "CLIENT":
            await self._act(line)
        else:
            await self._call(line)
        self._has_waited = line.method == "WAIT"

    async def close(self) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    # What a client library does

    async def _act(self, line: Line) -> None:
        try:
            got = await asyncio.to_thread(getattr(self, f"_{line.request['action']}"), line.path, line.request)
            status = "ok"
        except pulsar.PulsarException as error:
            status, got = "error", f"{type(error).__name__}: {error}"
        problems = [] if status == line.status else [f"expected {line.status} ({line.response}), got {status}: {got}"]
        if status == line.status == "ok" and line.response is not None:
            problems += differences(line.response, got)
        if problems:
            self.found[line.number] = problems

    @property
    def client(self) -> pulsar.Client:
        if self._client is None:
            logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            url = self._broker.service.broker_url
            self._client = pulsar.Client(url, logger=logger, operation_timeout_seconds=10)
        return self._client

    def _produce(self, topic: str, request: dict[str, Any]) -> None:
        compression = getattr(pulsar.CompressionType, request.get("compression", "NONE"), pulsar.CompressionType.NONE)
        producer = self.client.create_producer(
            topic,
            producer_name=request.get("producer_name"),
            batching_enabled=request.get("batching", False),
            batching_max_publish_delay_ms=1000,
            compression_type=compression,
            schema=_SCHEMAS[request.get("schema")],
        )
        for message in request["messages"]:
            producer.send_async(
                message["payload"] if "schema" in request else message["payload"].encode(),
                None,
                partition_key=message.get("key"),
                properties=message.get("properties"),
                event_timestamp=message.get("event_time"),
            )
        producer.flush()
        if "keep" in request:
            self._open[request["keep"]] = producer
        else:
            producer.close()

    def _subscribe(self, topic: str, request: dict[str, Any]) -> None:
        self._open[request["keep"]] = self.client.subscribe(
            topic,
            request["subscription"],
            consumer_type=_TYPES[request.get("type")],
            consumer_name=request.get("consumer_name"),
            initial_position=pulsar.InitialPosition.Earliest,
        )

    def _receive(self, topic: str, request: dict[str, Any]) -> list[str]:
        consumer = self._open[request["handle"]]
        messages = [consumer.receive(30_000) for _ in range(request["count"])]
        for index in request["ack"]:
            consumer.acknowledge(messages[index])
        return [message.data().decode() for message in messages]

    def _close(self, topic: str, request: dict[str, Any]) -> None:
        self._open.pop(request["handle"]).close()

    # What goes over HTTP

    async def _call(self, line: Line) -> None:
        response = await self._send(line)
        if line.method == "GET" and line.path.endswith("/compaction"):
            async with asyncio.timeout(30):  # the recording shows how it ended, too
                while response.is_success and response.json()["status"] == "RUNNING":
                    await asyncio.sleep(0.01)
                    response = await self._send(line)
        problems = _problems(line, response)
        if line.method == "GET" and self._has_waited and line.number not in self._deviating:
            # The recording waited for what clients do in their own time, such as acknowledging.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    while problems:
                        await asyncio.sleep(0.05)
                        response = await self._send(line)
                        problems = _problems(line, response)
        self.answers[line.number] = response
        if problems:
            self.found[line.number] = problems
        for variable, path in (line.save or {}).items():
            value: Any = response.text if not path else response.json()
            for key in filter(None, path.split("/")):
                value = value[int(key) if isinstance(value, list) else key]
            self._saved[variable] = value

    async def _send(self, line: Line) -> httpx.Response:
        headers = {"Accept": line.accept} if line.accept else {}
        content: bytes | None = None
        if line.content_type:
            headers["Content-Type"] = line.content_type
            is_raw = isinstance(line.request, str) and not _was_json(line)
            content = (line.request if is_raw else json.dumps(self._fill(line.request))).encode()
        host = self._broker.web_url.removeprefix("http://")
        path = (
            self._fill(line.path)
            .replace("<varies>", host)
            .replace("<3000 times a>", "a" * 3000)
            .replace("<9000 times a>", "a" * 9000)
        )
        # The path goes out as recorded: httpx would encode or normalise some of them.
        target, _, query = path.partition("?")
        raw = target.encode() + (b"?" + query.encode() if query else b"")
        url = httpx.URL(self._broker.web_url).copy_with(raw_path=raw)
        request = httpx.Request(line.method, url, headers=headers, content=content)
        return await self._broker.http.send(request)

    def _fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        for variable, known in self._saved.items():
            if value == f"{{{variable}}}":
                return known
            value = value.replace(f"{{{variable}}}", str(known))
        return value


def _was_json(line: Line) -> bool:
    """Return whether a text was sent as JSON: it was recorded as text as sent, unless Pulsar then took what is none."""
    try:
        json.loads(line.request)
    except ValueError:
        return line.content_type == "application/json" and line.status not in (400, 415)
    return False


def _problems(line: Line, response: httpx.Response) -> list[str]:
    problems = [] if response.status_code == line.status else [f"expected {line.status}, got {response.status_code}"]
    # The texts of Jetty and Jackson are Java's own, and where Jersey says nothing a reason does no harm.
    is_javas = line.status >= 400 and (line.response_content_type or _HTML).startswith((_HTML, "text/plain"))
    if not is_javas and line.status != 302:
        problems += _header_problems(line, response)
        problems += _body_problems(line.response, response)
    return [problem for problem in problems if not any(field.search(problem) for field in FIELDS_OF_OUR_OWN)]


def _header_problems(line: Line, response: httpx.Response) -> list[str]:
    problems = []
    wanted = (line.response_content_type or "").split(";")[0]
    got = response.headers.get("content-type", "").split(";")[0]
    if wanted != got and response.content:
        problems.append(f"expected content type {wanted!r}, got {got!r}")
    for name, value in (line.response_headers or {}).items():
        if name.startswith("X-Pulsar"):
            sent = response.headers.get(name)
            number = sent if sent is None or value != "<number>" else int(sent)
            problems += differences(value, number, f"header {name}")
        elif name == "Allow":
            problems += [f"header Allow: expected {value}, got {response.headers.get(name)}"] * (
                not set(value.split(",")) <= {*response.headers.get(name, "").split(","), "HEAD", "OPTIONS"}
            )
    return problems


def _body_problems(expected: Any, response: httpx.Response) -> list[str]:
    if expected is None:
        return [f"expected no body, got {response.text[:200]}"] if response.content else []
    if isinstance(expected, str) and expected.endswith(" bytes>"):
        return (
            [] if f"<{len(response.content)} bytes>" == expected else [f"got {len(response.content)}, not {expected}"]
        )
    try:
        got = response.json()
    except ValueError:
        got = response.text
    if isinstance(expected, str) and not isinstance(got, str) and not expected.startswith("<"):
        got = response.text  # a bare text that happens to be JSON too
    return list(differences(expected, got))


@pytest.mark.parametrize(
    "name",
    [
        "tenants",
        "clusters-brokers",
        "namespaces",
        "topic-policies",
        "topics",
        "partitioned",
        "subscriptions",
        "lookup",
        "errors",
        "nonpersistent",
        "schemas",
        "schema-policies",
    ],
)
async def test_our_broker_answers_as_pulsar_did(name: str, broker: RunningBroker) -> None:
    allowed = DEVIATIONS.get(name, {})
    replay = Replay(broker, allowed)
    problems: list[str] = []
    try:
        for line in lines(name):
            await replay.run(line)
            deviation = allowed.get(line.number)
            problems += _judge(line, replay, deviation)
    finally:
        await replay.close()
    assert not problems, f"{len(problems)} in {name}:\n" + "\n".join(problems)


def _judge(line: Line, replay: Replay, deviation: Deviation | None) -> list[str]:
    found = replay.found.get(line.number)
    if deviation is None:
        return [f"{line}\n    " + "\n    ".join(found)] if found else []
    if not found:
        return [f"{line}\n    is listed as a deviation but is as recorded"]
    answer = replay.answers.get(line.number)
    text = answer.text if answer is not None else "\n".join(found)
    if (answer is not None and answer.status_code != deviation.status) or deviation.text not in text:
        return [f"{line}\n    deviates otherwise than listed: {answer and answer.status_code} {text[:300]}"]
    return []
