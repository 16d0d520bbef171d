"""The sink ``http``: a request for each record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..api.connector import Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option

_TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))


@dataclass
class HttpSinkConfig:
    """Where requests go, and what they look like."""

    url: str = option("Where records are sent to, http:// or https://.", default="http://localhost")
    headers: dict[str, str] = option("Headers of each request.", default={})
    http_method: str = option("Method of the requests.", default="POST", aliases=("method",))
    token: str = option("Sent as Authorization: Bearer.", default="", secret=True)
    timeout: float = option("Seconds for an answer.", default=30.0, limits=(0.01, 3600))


class HttpSink(Sink):
    """A request for each record; answers that are no success are tried again, or give the record away."""

    config = HttpSinkConfig

    def open(self, config: HttpSinkConfig, context: SinkContext) -> None:
        """See `Connector.open`."""
        import httpx  # a third of a second of imports, which other connectors need not pay

        self._config = config
        headers = {"content-type": "application/json", **config.headers}
        if config.token:
            headers["authorization"] = f"Bearer {config.token}"
        self._client = httpx.Client(headers=headers, timeout=config.timeout, trust_env=False)
        self._errors: Any = httpx.HTTPError

    def write(self, record: Record) -> None:
        """See `Sink.write`."""
        value = record.value
        body = value if isinstance(value, bytes | str) else json.dumps(value)
        headers = {
            "PulsarTopic": record.topic,
            "PulsarMessageId": record.message_id,
            **({"PulsarKey": record.key} if record.key is not None else {}),
            **({"PulsarEventTime": str(record.event_time_ms)} if record.event_time_ms else {}),
            **{f"PulsarProperties-{key}": text for key, text in record.properties.items()},
        }
        encoded = [(key.encode(), text.encode()) for key, text in headers.items()]
        try:
            answer = self._client.request(self._config.http_method, self._config.url, content=body, headers=encoded)
        except self._errors as error:
            raise Retry(f"{self._config.url}: {type(error).__name__}: {error}") from error
        if answer.is_success:
            return
        text = f"{self._config.url} answered {answer.status_code}: {answer.text[:200]}"
        if answer.status_code in _TRY_AGAIN:
            after = answer.headers.get("retry-after", "")
            raise Retry(text, float(after) if after.isdigit() else 0.0)
        raise RecordRefused(text)

    def close(self) -> None:
        """See `Connector.close`."""
        if hasattr(self, "_client"):
            self._client.close()
