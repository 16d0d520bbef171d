"""Source and sink ``pulsar``, with our own broker as the other cluster."""

from __future__ import annotations

import json
import uuid
from typing import Any, ClassVar

import pulsar

from tests.connectors.cases.base import Case, SinkCase, SourceCase
from tests.connectors.servers.other_cluster import OtherCluster

TIMEOUT_MS = 20_000
BAD_CLUSTER: list[tuple[dict[str, Any], str]] = [
    ({"serviceUrl": None}, "serviceUrl is missing"),
    (
        {"serviceUrl": "http://127.0.0.1:8080"},
        "invalid service URL 'http://127.0.0.1:8080': unsupported scheme http",
    ),
    ({"serviceUrl": "pulsar://127.0.0.1:1"}, "retrying"),
    ({"topic": "persistent://one"}, "topic"),
    ({"subscription": "x"}, "unknown field subscription"),
]


class OtherClusterCase(Case):
    """A topic in the other cluster for one case."""

    connector = "pulsar"
    server = OtherCluster
    server_process: OtherCluster
    topic = ""

    def configs(self) -> dict[str, object]:
        self.topic = self.topic or f"t-{uuid.uuid4().hex[:8]}"
        return {"serviceUrl": self.server_process.service_url, "topic": self.topic}

    def client(self) -> pulsar.Client:
        """Return a client of the other cluster."""
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        return pulsar.Client(self.server_process.service_url, logger=logger)


class PulsarSinkCase(OtherClusterCase, SinkCase):
    """Messages with keys, properties and times."""

    is_ordered = True
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        *BAD_CLUSTER,
        ({"compressionType": "RAR"}, "compressionType must be one of"),
        ({"adminUrl": "localhost:8080"}, "invalid adminUrl 'localhost:8080': expected http://host:port"),
    ]

    def read_back(self) -> list[tuple[int, str]]:
        client = self.client()
        reader = client.create_reader(self.topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
        found = []
        while reader.has_message_available():
            message = reader.read_next(TIMEOUT_MS)
            value = json.loads(message.data())
            number = value["id"]
            assert message.partition_key() == (self.key(number) or "")
            assert message.properties().get("number", "") == (str(number) if number % 3 else "")
            assert message.event_timestamp() == 1_700_000_000_000 + number
            found.append((number, value["text"]))
        client.close()
        return found


class PulsarExactSinkCase(PulsarSinkCase):
    """Each record once: the other cluster drops duplicates."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = []

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "adminUrl": self.server_process.admin_url}


class PulsarSourceCase(OtherClusterCase, SourceCase):
    """A failover subscription, which preserves the order."""

    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        *BAD_CLUSTER,
        ({"subscriptionType": "Solo"}, "subscriptionType must be one of"),
        ({"receiverQueueSize": 0}, "receiverQueueSize must be at least 1"),
    ]

    def feed(self, records: list[tuple[int, str]]) -> None:
        client = self.client()
        producer = client.create_producer(self.topic, batching_enabled=True, block_if_queue_full=True)
        failures: list[object] = []

        def sent(result: pulsar.Result, _: object) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)

        for number, text in records:
            producer.send_async(
                text.encode(), sent, partition_key=None if number % 10 == 0 else f"schlüssel-{number}",
                properties={"number": str(number)}, event_timestamp=1_700_000_000_000 + number,
            )  # fmt: skip
        producer.flush()
        client.close()
        assert not failures

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        number = int(message.properties()["number"])
        assert message.partition_key() == ("" if number % 10 == 0 else f"schlüssel-{number}")
        assert message.event_timestamp() == 1_700_000_000_000 + number
        return number, message.data().decode()


class PulsarExactSourceCase(PulsarSourceCase):
    """Each message once."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = []
