"""The ``pulsar`` sink writes records to a topic in another cluster, Apache Pulsar or Magnetar.

A batch is written once the other cluster has stored all its messages. With EFFECTIVELY_ONCE, the other cluster's
deduplication drops resent messages. The sink enables deduplication for the topic and verifies it. Its producers are
named after the sink and the record's source topic, and use the record's sequence ID.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..api.connector import Batching, Record, RecordRefused, Sink, SinkContext
from ..api.connector_config import option
from ..client.blocking import Client, Producer
from ..client.config import ProducerConfig
from ..client.deduplication import DeduplicationOff, memory_guard, switch_on
from ..errors import ConnectionLost, CredentialsUnavailable, InvalidConfig, MagnetarError, MessageTooLarge
from ..security.client_credentials import ClientCredentials
from ..wire.message_id import MessageId
from ..wire.topic_name import parse_topic_name
from .pulsar_cluster import (
    OPERATION_S,
    PulsarClusterConfig,
    away,
    check_cluster,
    check_key,
    connected,
    encrypting,
    security_of,
)

_SEND_S = 5.0


@dataclass
class PulsarSinkConfig(PulsarClusterConfig):
    """Settings of the ``pulsar`` sink."""

    topic: str = option("Target topic in the other cluster.", aliases=("topicName",))
    admin_url: str = option(
        "Admin URL of the other cluster, http://host:port or https://host:port, for enabling deduplication. Required "
        "for EFFECTIVELY_ONCE.",
        default="",
    )
    compression_type: Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"] = option(
        "Compression of messages.", default="NONE"
    )
    encryption_keys: list[str] = option("Key names for encrypting messages; empty for no encryption.", default=[])
    crypto_public_key: str = option("Public key for encrypting messages, as file:///path on the workers.", default="")


class PulsarSink(Sink):
    """Writes records to a topic in another cluster, Apache Pulsar or Magnetar."""

    config = PulsarSinkConfig

    def __init__(self) -> None:
        """Create an unconnected sink. The list of stored messages is kept when the sink is reopened."""
        self._stored: set[tuple[str, str]] = set()
        self._client: Client | None = None

    def check(self, config: PulsarSinkConfig) -> None:
        """Validate the configuration."""
        if config.admin_url and not config.admin_url.startswith(("http://", "https://")):
            raise InvalidConfig(
                f"invalid adminUrl {config.admin_url!r}: expected http://host:port or https://host:port"
            )
        check_cluster(config, [config.topic], "topic", config.admin_url)
        check_key("cryptoPublicKey", config.crypto_public_key)
        if bool(config.encryption_keys) != bool(config.crypto_public_key):
            raise InvalidConfig("encryptionKeys and cryptoPublicKey must be set together")

    def not_effectively_once(self, config: PulsarSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "" if config.admin_url else "deduplication in the other cluster cannot be verified: set adminUrl"

    def batching(self, config: PulsarSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=5000, size=4 << 20)

    def open(self, config: PulsarSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._config = config
        self._context = context
        self._producers: dict[str, Producer] = {}
        self._credentials = ClientCredentials(security_of(config))
        if context.is_exact:
            try:
                switch_on(config.admin_url, parse_topic_name(config.topic).base.text, self._credentials)
            except (DeduplicationOff, ConnectionLost, CredentialsUnavailable) as error:
                raise away(config, error, config.admin_url) from error
        self._client, parts = connected(config, lambda client: client.get_topic_partitions(config.topic))
        if context.is_exact and parts != [parse_topic_name(config.topic).text]:
            raise InvalidConfig(
                f"topic {config.topic!r} has {len(parts)} partitions: EFFECTIVELY_ONCE requires a single partition or "
                f"a non-partitioned topic"
            )
        if not context.is_exact:
            self._producer("")

    def _producer(self, source: str) -> Producer:
        """Return the producer for records from a topic, or the shared producer if the sink is not effectively once."""
        if (known := self._producers.get(source)) is not None:
            return known
        config, context = self._config, self._context
        settings = ProducerConfig(
            compression=config.compression_type,
            max_pending_messages=5000,
            block_if_queue_full=True,
            send_timeout_ms=int(_SEND_S * 1000),
            **encrypting(config.encryption_keys, config.crypto_public_key),
        )
        if source:
            settings = replace(
                settings,
                name=f"{context.incarnation}/{source}",
                batching=False,  # a retry might split batches differently, but deduplication works on whole batches
                guard=memory_guard(
                    config.admin_url, config.topic, credentials=self._credentials, timeout_s=OPERATION_S
                ),
            )
        assert self._client is not None
        try:
            producer = self._producers[source] = self._client.create_producer(config.topic, settings)
        except MagnetarError as error:
            if isinstance(error, InvalidConfig):
                raise
            raise away(config, error) from error
        return producer

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        values = [_as_bytes(record.value, index) for index, record in enumerate(records)]
        left = [index for index, record in enumerate(records) if (record.topic, record.message_id) not in self._stored]
        failed = self._send({index: (records[index], values[index]) for index in left})
        if not failed:
            self._stored.clear()
            return
        self._stored.update((records[index].topic, records[index].message_id) for index in left if index not in failed)
        for index in sorted(failed):
            if isinstance(failed[index], MessageTooLarge | InvalidConfig):
                raise RecordRefused(str(failed[index]), index)
        raise away(self._config, failed[min(failed)])

    def _send(self, messages: Mapping[int, tuple[Record, bytes]]) -> dict[int, MagnetarError]:
        """Send messages, wait for all outcomes, and return the errors of failed messages."""
        answers = _Answers(len(messages))
        is_exact = self._context.is_exact
        for index, (record, value) in messages.items():
            producer = self._producer(record.topic if is_exact else "")
            options: dict[str, Any] = {"properties": dict(record.properties)} if record.properties else {}
            if record.key is not None:
                options["key"] = record.key
            if record.event_time_ms:
                options["event_time_ms"] = record.event_time_ms
            if is_exact:
                options["sequence_id"] = record.sequence
            try:
                producer.send_async(value, answers.of(index), **options)
            except MagnetarError as error:
                answers.of(index)(error, None)
        answers.wait()
        return answers.failed

    def close(self) -> None:
        """Close the connector."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


class _Answers:
    """Outcomes of a batch's messages, set on the client's thread."""

    def __init__(self, count: int) -> None:
        self.failed: dict[int, MagnetarError] = {}
        self._left = count
        self._lock = threading.Lock()
        self._all = threading.Event()
        if not count:
            self._all.set()

    def of(self, index: int) -> Any:
        """Return the callback for one message."""

        def answered(error: MagnetarError | None, _message_id: MessageId | None) -> None:
            with self._lock:
                self._left -= 1
                if error is not None:
                    self.failed[index] = error
                if not self._left:
                    self._all.set()

        return answered

    def wait(self) -> None:
        """Wait until all callbacks have been called, but no longer than three send timeouts."""
        if not self._all.wait(3 * _SEND_S):
            raise TimeoutError(f"{self._left} messages were not confirmed within {3 * _SEND_S:g} s")


def _as_bytes(value: Any, index: int) -> bytes:
    """Return a value as payload; empty for None, which deletes the key from a compacted topic."""
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise RecordRefused(f"value is not bytes, a string or valid JSON: {error}", index) from error
