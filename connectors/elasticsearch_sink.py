"""The ``elasticsearch`` sink, also named ``opensearch``, indexes documents through the bulk API.

Document IDs come from the record key, fields of the value, or the record's position in its topic. A redelivered record
therefore replaces its document instead of duplicating it. If a bulk request succeeds in part, rejected documents go to
the dead-letter topic, and documents that failed temporarily are retried.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig
from .documents import Outcome, Outcomes, document_of, halved
from .libraries import need

_ID_BYTES_MAX = 512
_DATE = re.compile(r"%\{\+([^}]*)\}")
_DATE_PARTS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "DDD": "%j"}
_NO_STRUCTURED_KEYS = "keys are strings, and key-value schemas are not supported; set primaryFields"
_OTHER_LIMIT = "socketTimeoutInMs also applies to connecting; set socketTimeoutInMs instead"
_UNSUPPORTED: Unsupported = {
    "schemaEnable": Refusal("values are read as JSON without a schema; publish JSON, or set serdeClassName", (False,)),
    "typeName": Refusal("OpenSearch and Elasticsearch 7 or later have no mapping types; remove this option", ("_doc",)),
    "maxRetries": Refusal(
        "requests are retried until they succeed; remove this option, and set maxMessageRetries to limit the attempts "
        "for rejected documents"
    ),
    "retryBackoffInMs": Refusal("retry delays grow from 100 ms to 30 s; remove this option", (100,)),
    "maxRetryTimeInSec": Refusal("retries continue indefinitely, with delays of up to 30 s; remove this option"),
    "bulkConcurrentRequests": Refusal(
        "each instance sends one request at a time to preserve order; increase parallelism instead", (0,)
    ),
    "connectTimeoutInMs": Refusal(_OTHER_LIMIT),
    "connectionRequestTimeoutInMs": Refusal("requests never wait for a connection; remove this option"),
    "connectionIdleTimeoutInMs": Refusal(
        "connections stay open and are reopened when the server closes them; remove this option"
    ),
    "canonicalKeyFields": Refusal(_NO_STRUCTURED_KEYS, (False,)),
    "copyKeyFields": Refusal(_NO_STRUCTURED_KEYS, (False,)),
    "compatibilityMode": Refusal(
        "OpenSearch and Elasticsearch 7 or later share one bulk API; remove this option",
        ("AUTO", "ELASTICSEARCH_7", "ELASTICSEARCH", "OPENSEARCH"),
    ),
    "ssl": Refusal(
        "use an https:// URL in elasticSearchUrl, caFile with a PEM file instead of Java keystores, and "
        "verifyCertificates: false instead of disableCertificateValidation",
        ({}, {"enabled": False}),
    ),
}
_REFUSED = (400, 409, 413)
"""Status codes caused by the document; all others are caused by the server or the settings."""


@dataclass
class ElasticsearchConfig:
    """Settings of the ``elasticsearch`` sink."""

    unsupported: ClassVar[Unsupported] = _UNSUPPORTED

    elastic_search_url: str = option("Comma-separated node URLs, such as http://localhost:9200.", aliases=("url",))
    index_name: str = option(
        "Index name. %{+yyyy-MM-dd} is replaced by the date of the record's event time, or today's date. Empty for the "
        "topic name.",
        default="",
    )
    username: str = option("User name; empty for no authentication.", default="", secret=True)
    password: str = option("Password of the user.", default="", secret=True)
    token: str = option(
        "Token sent as Authorization: Bearer, instead of a user name and password.", default="", secret=True
    )
    api_key: str = option(
        "API key sent as Authorization: ApiKey, instead of a user name and password.", default="", secret=True
    )
    ca_file: str = option("PEM file with trusted certificates; empty for the system certificates.", default="")
    verify_certificates: bool = option("Whether to verify the server's certificate.", default=True)
    create_index_if_needed: bool = option("Whether to create a missing index.", default=False)
    index_number_of_shards: int = option(
        "Number of shards of indexes created by the sink.", default=1, limits=(1, 1024)
    )
    index_number_of_replicas: int = option(
        "Number of replicas per shard of indexes created by the sink.", default=0, limits=(0, 100)
    )
    key_ignore: bool = option("Whether to ignore the record key instead of using it as the document ID.", default=True)
    primary_fields: list[str] = option("Value fields that form the document ID; requires keyIgnore.", default=[])
    id_hashing_algorithm: Literal["NONE", "SHA256", "SHA512"] = option(
        "Hash function for document IDs.", default="NONE"
    )
    conditional_id_hashing: bool = option("Whether to hash only document IDs longer than 512 bytes.", default=False)
    null_value_action: Literal["IGNORE", "DELETE", "FAIL"] = option(
        "Action for records without a value: ignore the record, delete the document with its key, or reject the "
        "record.",
        default="IGNORE",
    )
    malformed_doc_action: Literal["FAIL", "IGNORE", "WARN"] = option(
        "Action for documents that the server rejects. FAIL: reject the record; IGNORE: skip the record; WARN: skip "
        "the record and log a warning.",
        default="FAIL",
    )
    strip_nulls: bool = option("Whether to omit null fields.", default=True)
    strip_non_printable_characters: bool = option(
        "Whether to remove control, format and unassigned characters from strings.", default=False
    )
    bulk_enabled: bool = option("Whether to send multiple documents per request.", default=True)
    bulk_actions: int = option("Maximum number of documents per request.", default=1000, limits=(1, 10_000))
    bulk_size_in_mb: int = option("Maximum request size in MiB.", default=5, limits=(1, 100))
    bulk_flush_interval_in_ms: int = option(
        "Maximum time to wait for more records, in milliseconds.", default=100, limits=(0, 60_000)
    )
    compression_enabled: bool = option("Whether to compress requests.", default=False)
    socket_timeout_in_ms: int = option("Response timeout in milliseconds.", default=60_000, limits=(1, 3_600_000))


class ElasticsearchSink(Sink):
    """Indexes JSON objects as documents in OpenSearch or Elasticsearch."""

    config = ElasticsearchConfig

    def __init__(self) -> None:
        self._outcomes = Outcomes()

    def check(self, config: ElasticsearchConfig) -> None:
        """Validate the configuration."""
        for url in _urls(config):
            if not url.startswith(("http://", "https://")):
                raise InvalidConfig(
                    f"invalid elasticSearchUrl {url!r}: expected a URL starting with http:// or https://"
                )
        if bool(config.username or config.password) + bool(config.token) + bool(config.api_key) > 1:
            raise InvalidConfig("multiple credentials: set only one of username with password, token, or apiKey")
        if config.primary_fields and not config.key_ignore:
            raise InvalidConfig("primaryFields requires keyIgnore: true")
        if config.null_value_action == "DELETE" and config.key_ignore:
            raise InvalidConfig(
                "nullValueAction DELETE requires keyIgnore: false, as the key identifies the document to delete"
            )
        for part in (found[1] for found in _DATE.finditer(config.index_name)):
            _date_format(part)
        plain = _DATE.sub("", config.index_name)
        if plain != plain.lower() or re.search(r'[\\/*?"<>|\s,#:]', plain) or plain.startswith(("-", "_", "+")):
            raise InvalidConfig(
                f'invalid indexName {config.index_name!r}: must be lower case, must not contain spaces or \\/*?"<>|,#:'
                " and must not start with -, _ or +"
            )

    def not_effectively_once(self, config: ElasticsearchConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if _DATE.search(config.index_name):
            return "a redelivered record without an event time may go to another day's index"
        return ""

    def batching(self, config: ElasticsearchConfig) -> Batching:
        """Return the batch limits."""
        count = config.bulk_actions if config.bulk_enabled else 1
        return Batching(count, config.bulk_size_in_mb << 20, config.bulk_flush_interval_in_ms / 1000)

    def open(self, config: ElasticsearchConfig, context: SinkContext) -> None:
        """Open the connector."""
        library = need("elasticsearch", "opensearchpy")
        self._config = config
        self._log = context.logger
        self._seen: set[str] = set()
        self._error: Any = library.exceptions.TransportError
        headers = {}
        if config.token or config.api_key:
            headers["authorization"] = f"Bearer {config.token}" if config.token else f"ApiKey {config.api_key}"
        options: dict[str, Any] = {}
        if any(url.startswith("https://") for url in _urls(config)):
            options = {"verify_certs": config.verify_certificates, "ssl_show_warn": False}
            if config.ca_file:
                options["ca_certs"] = config.ca_file
        self._client = library.OpenSearch(
            _urls(config),
            http_auth=(config.username, config.password) if config.username else None,
            headers=headers,
            http_compress=config.compression_enabled,
            timeout=config.socket_timeout_in_ms / 1000,
            max_retries=0,
            **options,
        )

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        self._outcomes.write(records, self._write)

    def close(self) -> None:
        """Close the connector."""
        if hasattr(self, "_client"):
            self._client.close()

    # -- actions --------------------------------------------------------------------------------------------------

    def _write(self, records: Sequence[Record]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(records)
        actions: list[tuple[int, bytes]] = []
        for index, record in enumerate(records):
            try:
                if (action := self._action(record)) is not None:
                    actions.append((index, action))
            except RecordRefused as error:
                outcomes[index] = str(error)
        if actions:
            for (index, _), outcome in zip(actions, self._send(actions), strict=True):
                outcomes[index] = self._malformed(outcome) if isinstance(outcome, str) else outcome
        return outcomes

    def _action(self, record: Record) -> bytes | None:
        """Return a record's lines in the bulk request, or None if the record is skipped."""
        config = self._config
        target = {"_index": self._index(record)}
        if record.value in (None, b"", ""):
            if config.null_value_action == "IGNORE":
                return None
            if config.null_value_action == "FAIL":
                raise RecordRefused("record has no value, and nullValueAction is FAIL")
            if record.key is None:
                raise RecordRefused("record has no value, and no key that identifies the document to delete")
            return _encoded({"delete": {**target, "_id": self._hashed(record.key)}}) + b"\n"
        document: Any = document_of(record)
        target["_id"] = self._id(record, document)
        if config.strip_nulls:
            document = _without_nulls(document)
        if config.strip_non_printable_characters:
            document = _printable(document)
        return b"%b\n%b\n" % (_encoded({"index": target}), _encoded(document))

    def _index(self, record: Record) -> str:
        name = self._config.index_name
        if not name:
            local = record.topic.rpartition("/")[2]
            name = re.sub(r'[\\/*?"<>|\s,#:]', "_", local.lower()).lstrip("-_+")
        elif "%" in name:
            when = (
                datetime.fromtimestamp(record.event_time_ms / 1000, UTC) if record.event_time_ms else datetime.now(UTC)
            )
            name = _DATE.sub(lambda found: when.strftime(_date_format(found[1])), name)
        if self._config.create_index_if_needed and name not in self._seen:
            self._create(name)
        return name

    def _create(self, name: str) -> None:
        settings = {
            "number_of_shards": self._config.index_number_of_shards,
            "number_of_replicas": self._config.index_number_of_replicas,
        }
        try:
            if not self._client.indices.exists(index=name):
                self._client.indices.create(index=name, body={"settings": settings})
        except self._error as error:
            if "resource_already_exists_exception" not in str(error):  # created by another instance meanwhile
                raise Retry(f"cannot create index {name!r}: {_cause(error)}") from error
        if len(self._seen) >= 1000:  # index names may contain topics and dates
            self._seen.clear()
        self._seen.add(name)

    def _id(self, record: Record, document: Mapping[str, Any]) -> str:
        config = self._config
        if config.primary_fields:
            parts = [document.get(field) for field in config.primary_fields]
            if None in parts:
                raise RecordRefused(
                    f"value has no field {config.primary_fields[parts.index(None)]!r}, which is in primaryFields"
                )
            alone = parts[0] if len(parts) == 1 else None
            return self._hashed(
                alone if isinstance(alone, str) else _encoded(parts if len(parts) > 1 else alone).decode()
            )
        if not config.key_ignore and record.key is not None:
            return self._hashed(record.key)
        place = f"{record.topic}:{record.message_id}"
        return place if len(place) <= _ID_BYTES_MAX else hashlib.sha256(place.encode()).hexdigest()

    def _hashed(self, given: str) -> str:
        config = self._config
        data = given.encode(errors="surrogatepass")
        if not data:
            raise RecordRefused("document ID is empty")
        if config.id_hashing_algorithm == "NONE" or (config.conditional_id_hashing and len(data) <= _ID_BYTES_MAX):
            return given
        digest = hashlib.new(config.id_hashing_algorithm.lower(), data).digest()
        return base64.b64encode(digest).rstrip(b"=").decode()

    # -- requests -------------------------------------------------------------------------------------------------

    def _send(self, actions: Sequence[tuple[int, bytes]]) -> list[Outcome]:
        """Send actions and return the outcome of each; a request that is rejected as a whole is bisected."""
        answers: dict[int, Outcome] = {}

        def send(some: Sequence[tuple[int, bytes]]) -> Outcome:
            try:
                answer = self._client.transport.perform_request(
                    "POST",
                    "/_bulk",
                    params={"filter_path": "errors,items.*.status,items.*.error"},
                    headers={"content-type": "application/x-ndjson"},
                    body=b"".join(action for _, action in some),
                )
            except self._error as error:
                text = f"{self._config.elastic_search_url}: {_cause(error)}"
                return text if error.status_code in _REFUSED else Retry(text)
            if answer.get("errors"):
                for (index, _), item in zip(some, answer["items"], strict=True):
                    answers[index] = _outcome(next(iter(item.values())))
            return None

        common = halved(actions, send, lambda cause: True)
        return [
            answers.get(index) if outcome is None else outcome
            for (index, _), outcome in zip(actions, common, strict=True)
        ]  # fmt: skip

    def _malformed(self, cause: str) -> str | None:
        action = self._config.malformed_doc_action
        if action == "FAIL":
            return cause
        if action == "WARN":
            self._log.warning("skipped a document: %s", cause)
        return None


def _outcome(item: Mapping[str, Any]) -> Outcome:
    status = int(item["status"])
    error = item.get("error")
    if error is None:
        return None  # also if a document to delete does not exist
    text = f"status {status}: {error.get('type')}: {error.get('reason')}"
    if inner := error.get("caused_by"):
        text += f": {inner.get('reason')}"
    text = " ".join(text.split())[:500]
    return text if status in _REFUSED else Retry(text)


def _cause(error: Any) -> str:
    """Return a TransportError as one line."""
    text = (
        f"{type(error).__name__}: {error}"
        if error.status_code == "N/A"
        else f"status {error.status_code}: {error.error}"
    )
    info = error.info
    if isinstance(info, dict) and isinstance(info.get("error"), dict):
        text += f": {info['error'].get('reason')}"
    return " ".join(text.split())[:500]


def _urls(config: ElasticsearchConfig) -> list[str]:
    return [url.strip() for url in config.elastic_search_url.split(",")]


def _date_format(pattern: str) -> str:
    """Convert a Java date pattern to Python's; raises InvalidConfig for unknown parts."""
    parts = re.findall(r"[A-Za-z]+|[^A-Za-z]+", pattern)
    for part in parts:
        if part.isalpha() and part not in _DATE_PARTS:
            raise InvalidConfig(
                f"indexName: unknown date field {part!r} in %{{+{pattern}}}: expected {', '.join(_DATE_PARTS)}"
            )
    return "".join(_DATE_PARTS.get(part, part.replace("%", "%%")) for part in parts)


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise RecordRefused(f"value is not valid UTF-8: {error.reason}") from error
    except ValueError as error:  # such as 1e999
        raise RecordRefused(f"value contains a number that is too large: {error}") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else "".join(c for c in value if unicodedata.category(c)[0] != "C")
    if isinstance(value, dict):
        return {key: _printable(one) for key, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list) else value
