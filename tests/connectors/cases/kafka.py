"""Source and sink ``kafka``, on a topic of three partitions."""

from __future__ import annotations

import json
import uuid
from typing import ClassVar

import pulsar
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.connectors.cases.base import Case, SinkCase, SourceCase
from tests.connectors.servers.kafka import TIMEOUT_S, KafkaServer

BAD_CONNECTION: list[tuple[dict[str, object], str]] = [
    ({"bootstrapServers": None}, "bootstrapServers is missing"),
    ({"bootstrapServers": "localhost"}, "invalid bootstrapServers entry 'localhost': expected host:port"),
    ({"bootstrapServers": "127.0.0.1:1"}, "retrying"),
    ({"topic": "no-such-topic"}, "topic 'no-such-topic' does not exist in Kafka"),
    ({"topic": "a b"}, "invalid topic 'a b'"),
    ({"topics": "x"}, "unknown field topics"),
    ({"securityProtocol": "SASL_SSL"}, "securityProtocol SASL_SSL requires a user"),
    ({"securityProtocol": "SASL_SSL", "saslJaasConfig": "Krb5LoginModule required;"}, "Krb5LoginModule"),
    ({"sslTruststoreLocation": "/etc/kafka.jks"}, "sslTruststoreLocation '/etc/kafka.jks' is a Java keystore"),
    ({"sslEnabledProtocols": "TLSv1.2"}, "sslEnabledProtocols"),
]


class KafkaCase(Case):
    """A topic for one case."""

    connector = "kafka"
    server = KafkaServer
    server_process: KafkaServer
    partitions: ClassVar[int] = 3
    topic = ""

    def prepare(self) -> None:
        self.server_process.create_named(self.topic, self.partitions)

    def connection(self) -> dict[str, object]:
        self.topic = self.topic or f"t-{uuid.uuid4().hex[:8]}"
        return {"bootstrapServers": self.server_process.bootstrap_servers, "topic": self.topic}


class KafkaSinkCase(KafkaCase, SinkCase):
    """Records with keys, properties and times."""

    bad_configs: ClassVar[list[tuple[dict[str, object], str]]] = [
        *BAD_CONNECTION,
        ({"acks": "0"}, "acks 0"),
        ({"acks": "many"}, "acks must be one of"),
        ({"batchSize": 0}, "batchSize must be at least 1"),
        ({"valueSerializerClass": "LongSerializer"}, "unsupported valueSerializerClass 'LongSerializer'"),
        ({"producerConfigProperties": {"linger": 1}}, 'No such configuration property: "linger"'),
    ]

    def prepare(self) -> None:
        self.connection()
        super().prepare()

    def configs(self) -> dict[str, object]:
        return {**self.connection(), "acks": "all", "copyHeadersEnabled": True}

    def bad_record(self) -> bytes:
        """Return a record that exceeds the topic's size limit."""
        return b"x" * 1_050_000

    def read_back(self) -> list[tuple[int, str]]:
        consumer = Consumer({
            "bootstrap.servers": self.server_process.bootstrap_servers, "group.id": "test", "log_level": 0,
        })  # fmt: skip
        places = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places]
        consumer.assign([TopicPartition(self.topic, number, 0) for number in range(self.partitions)])
        found = []
        missing = sum(ends)
        while missing > 0:
            messages = consumer.consume(min(missing, 1000), TIMEOUT_S)
            assert messages, f"{missing} records cannot be read back"
            missing -= len(messages)
            for message in messages:
                assert message.error() is None
                value = json.loads(message.value() or b"")
                number = value["id"]
                assert value["nothing"] is None
                key = self.key(number)
                assert message.key() == (None if key is None else key.encode())
                headers = dict(message.headers() or ())
                assert headers.get("number", b"0") == (str(number).encode() if number % 3 else b"0")
                assert message.timestamp()[1] == 1_700_000_000_000 + number
                found.append((number, value["text"]))
        consumer.close()
        return found


class KafkaSourceCase(KafkaCase, SourceCase):
    """A group member; order is kept only within a partition."""

    is_ordered = False
    bad_configs: ClassVar[list[tuple[dict[str, object], str]]] = [
        *BAD_CONNECTION,
        ({"groupId": None}, "groupId is missing"),
        ({"heartbeatIntervalMs": 0}, "heartbeatIntervalMs must be at least 1"),
        ({"heartbeatIntervalMs": 40_000}, "heartbeatIntervalMs must be less than sessionTimeoutMs"),
        ({"sessionTimeoutMs": 3_600_000}, "retrying"),
        ({"autoOffsetReset": "none"}, "autoOffsetReset is none"),
        ({"autoOffsetReset": "middle"}, "autoOffsetReset must be one of"),
        ({"partition": 7}, "partition 7: topic"),
        ({"keyDeserializationClass": "LongDeserializer"}, "unsupported keyDeserializationClass 'LongDeserializer'"),
        ({"consumerConfigProperties": {"fetch": 1}}, 'No such configuration property: "fetch"'),
        ({"consumerConfigProperties": {"enable.auto.commit": False}}, "set autoCommitEnabled"),
    ]

    def prepare(self) -> None:
        self.connection()
        super().prepare()

    def configs(self) -> dict[str, object]:
        return {**self.connection(), "groupId": f"g-{self.topic}", "copyHeadersEnabled": True}

    def feed(self, records: list[tuple[int, str]]) -> None:
        producer = Producer({
            "bootstrap.servers": self.server_process.bootstrap_servers, "acks": "all", "log_level": 0,
            "enable.idempotence": True, "message.max.bytes": 1_048_000,
        })  # fmt: skip
        failures: list[object] = []

        def sent(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        for number, text in records:
            producer.produce(
                self.topic, text.encode(), key=None if number % 10 == 0 else f"schlüssel-{number}".encode(),
                partition=number % self.partitions, timestamp=1_700_000_000_000 + number,
                headers=[("number", str(number).encode())],
                on_delivery=sent,
            )  # fmt: skip
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures

    def feed_bad(self) -> None:
        """There is no record of Kafka that is none of ours; one without a value and without UTF-8 is none of these."""

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        properties = message.properties()
        number = int(properties["number"])
        assert message.partition_key() == ("" if number % 10 == 0 else f"schlüssel-{number}")
        assert message.event_timestamp() == 1_700_000_000_000 + number
        assert properties["__kafka_topic"] == self.topic
        assert int(properties["__kafka_partition"]) == number % self.partitions
        return number, message.data().decode()


class KafkaPartitionSourceCase(KafkaSourceCase):
    """One partition read without a group: each record once, in topic order."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    partitions = 1
    is_ordered = True
    bad_configs: ClassVar[list[tuple[dict[str, object], str]]] = []

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "partition": 0}
