"""The ``http`` sink sends an HTTP request for each record.

The request body is the record's value. The headers contain the metadata: ``PulsarTopic``, ``PulsarMessageId`` and, if
present, ``PulsarKey``, ``PulsarEventTime`` (milliseconds since 1970) and ``PulsarProperties-<name>``. ``%`` and
characters that are not allowed in headers are percent-encoded as UTF-8.

Multiple requests are sent concurrently. Requests for records with the same key are sent one after the other. A 2xx
response means that the record was accepted. On 400, 409, 411, 413, 414, 422 or 431 the record goes to the dead-letter
topic. After any other response the request is retried.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .texts import failure_of

_REFUSES_RECORD = frozenset((400, 409, 411, 413, 414, 422, 431))
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TOKEN_SIGNS = "!#$&'*+^`|"  # noqa: S105 (characters)
_TEXT_SIGNS = "".join(chr(number) for number in range(0x20, 0x7F) if chr(number) != "%")
_RETRY_AFTER_MAX_S = 300
_ANSWER_CHARS_MAX = 200


@dataclass
class HttpSinkConfig:
    """Settings of the ``http`` sink."""

    url: str = option("Target URL, http:// or https://.", default="http://localhost")
    headers: dict[str, str] = option("Headers of each request.", default={})
    http_method: str = option("HTTP method of the requests.", default="POST", aliases=("method",))
    token: str = option("Token sent as Authorization: Bearer.", default="", secret=True)
    timeout: float = option("Response timeout in seconds.", default=30.0, limits=(0.01, 3600))
    max_in_flight: int = option("Maximum number of concurrent requests.", default=16, limits=(1, 1000))


class HttpSink(Sink):
    """Sends an HTTP request for each record. On failure, retries or sends the record to the dead-letter topic."""

    config = HttpSinkConfig

    def __init__(self) -> None:
        """Create a sink without responses.

        Responses are kept across reconnects, so that answered requests are not repeated.
        """
        self._answered: set[tuple[str, str]] = set()
        self._refused: dict[tuple[str, str], str] = {}
        self._clients: list[Any] = []

    def check(self, config: HttpSinkConfig) -> None:
        """Validate the configuration."""
        try:
            parts = urlsplit(config.url)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or not config.url.isprintable() or " " in config.url:
            raise InvalidConfig(f"invalid url {config.url!r}: expected a URL such as https://host:port/path")
        if not _TOKEN.fullmatch(config.http_method):
            raise InvalidConfig(f"invalid httpMethod {config.http_method!r}: expected a method such as POST or PUT")
        for name, text in config.headers.items():
            if not _TOKEN.fullmatch(name):
                raise InvalidConfig(f"headers: invalid header name {name!r}")
            if not isinstance(text, str) or not text.isascii() or not text.isprintable():
                raise InvalidConfig(f"headers: the value of {name!r} must contain only printable ASCII characters")
        if not config.token.isascii() or not config.token.isprintable():
            raise InvalidConfig("token must contain only printable ASCII characters")

    def not_effectively_once(self, config: HttpSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "the http sink repeats requests whose outcome is unknown"

    def batching(self, config: HttpSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=500, size=4 << 20)

    async def open(self, config: HttpSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        import httpx  # imported here because it takes a third of a second, which other connectors need not spend

        self._config = config
        self._context = context
        headers = {"content-type": "application/json"} | {name.lower(): text for name, text in config.headers.items()}
        if config.token:
            headers["authorization"] = f"Bearer {config.token}"
        # A client per concurrent request: a shared client spends most of its time choosing a connection.
        tls = httpx.create_ssl_context(trust_env=False)
        self._clients = [
            httpx.AsyncClient(headers=headers, timeout=config.timeout, verify=tls, trust_env=False)
            for _ in range(config.max_in_flight)
        ]
        self._errors: Any = (httpx.HTTPError, httpx.InvalidURL)

    async def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        self._raise_refused(records)
        trouble: list[Retry] = []
        chains = iter(_chains([record for record in records if _id_of(record) not in self._answered]))

        async def send_chains(client: Any) -> None:
            for chain in chains:
                for record in chain:
                    if trouble:
                        return
                    try:
                        await self._send(client, record)
                    except Retry as error:
                        trouble.append(error)

        async with asyncio.TaskGroup() as tasks:
            for client in self._clients[: len(records)]:
                tasks.create_task(send_chains(client))
        if trouble:
            raise trouble[0]
        self._raise_refused(records)
        self._answered.clear()

    async def close(self) -> None:
        """Close the connector."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.aclose()

    def _raise_refused(self, records: Sequence[Record]) -> None:
        """Raise RecordRefused for the first rejected record. The next call does not include that record."""
        for index, record in enumerate(records):
            if (cause := self._refused.pop(_id_of(record), None)) is not None:
                raise RecordRefused(cause, index, index if self._are_answered(records[:index]) else 0)

    def _are_answered(self, records: Sequence[Record]) -> bool:
        return all(_id_of(record) in self._answered for record in records)

    async def _send(self, client: Any, record: Record) -> None:
        """Send the request for a record and save its outcome.

        Raises:
            Retry: the request must be retried.
        """
        config, place = self._config, _id_of(record)
        if self._context.is_stopping():
            raise Retry("the instance is stopping")
        try:
            value = record.value
            body = value if isinstance(value, bytes | str) else json.dumps(value)
        except (TypeError, ValueError) as error:
            self._refused[place] = f"value cannot be encoded as JSON: {error}"
            return
        try:
            answer = await client.request(config.http_method, config.url, content=body, headers=_headers(record))
        except self._errors as error:
            raise Retry(f"{config.url}: {failure_of(error, config.timeout)}") from error
        if answer.is_success:
            self._answered.add(place)
            return
        text = f"{config.url} returned {answer.status_code}: {' '.join(answer.text[:_ANSWER_CHARS_MAX].split())}"
        if answer.status_code in _REFUSES_RECORD:
            self._refused[place] = text
            return
        after = answer.headers.get("retry-after", "")
        raise Retry(text, min(float(after), _RETRY_AFTER_MAX_S) if after.isascii() and after.isdigit() else 0.0)


def _id_of(record: Record) -> tuple[str, str]:
    return record.topic, record.message_id


def _chains(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Group records by key, in order. Each record without a key forms a separate group."""
    chains: dict[object, list[Record]] = {}
    for number, record in enumerate(records):
        chains.setdefault(number if record.key is None else record.key, []).append(record)
    yield from chains.values()


def _headers(record: Record) -> list[tuple[str, str]]:
    headers = [("PulsarTopic", _encoded(record.topic)), ("PulsarMessageId", record.message_id)]
    if record.key is not None:
        headers.append(("PulsarKey", _encoded(record.key)))
    if record.event_time_ms:
        headers.append(("PulsarEventTime", str(record.event_time_ms)))
    for name, text in record.properties.items():
        headers.append((f"PulsarProperties-{quote(name, safe=_TOKEN_SIGNS)}", _encoded(text)))
    return headers


def _encoded(text: str) -> str:
    """Percent-encode a string for a header, including leading and trailing spaces, which would be stripped."""
    encoded = quote(text, safe=_TEXT_SIGNS)
    return encoded if encoded == encoded.strip() else encoded.replace(" ", "%20")
