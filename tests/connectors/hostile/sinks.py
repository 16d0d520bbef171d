"""Handling of hostile values by each sink: one lane per sink, which lists rejected values and the reasons.

All others are carried: what the target has of them is what `SinkLane.carried` returns.
"""

from __future__ import annotations

import asyncio
import csv
import json
import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import nats
import pulsar
from magnetar.wire.printable import printable
from nats.js.api import AckPolicy, ConsumerConfig

from tests.connectors.cases.base import SinkCase
from tests.connectors.cases.console_sink import ConsoleSinkCase
from tests.connectors.cases.delta_sink import DeltaSinkCase
from tests.connectors.cases.elasticsearch_sink import ElasticsearchSinkCase
from tests.connectors.cases.file_sink import FileSinkCase, ParquetFileSinkCase
from tests.connectors.cases.http_sink import HttpSinkCase
from tests.connectors.cases.iceberg_sink import IcebergSinkCase
from tests.connectors.cases.influxdb_sink import InfluxdbSinkCase
from tests.connectors.cases.jdbc import JdbcMariaDbCase, JdbcPostgresCase, JdbcSqliteCase
from tests.connectors.cases.kafka import KafkaSinkCase
from tests.connectors.cases.mqtt import Client, MqttSinkCase
from tests.connectors.cases.nats import NatsSinkCase
from tests.connectors.cases.pulsar import TIMEOUT_MS, PulsarSinkCase
from tests.connectors.cases.rabbitmq import RabbitSinkCase
from tests.connectors.cases.redis import RedisHashes, RedisStream, RedisValues
from tests.connectors.cases.s3_sink import S3SinkCase
from tests.connectors.hostile.table import NO_OBJECT, NOT_JSON, Hostile
from tests.support.waiting import wait_for


class SinkLane(SinkCase):
    """One sink.

    Attributes:
        refused: by the name of a value, a part of the reason why it is refused.
        ignored: names of values that the sink skips, as it is configured to.
        log_records: what the sink has logged.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    ignored: ClassVar[Collection[str]] = ()
    log_records: Sequence[logging.LogRecord] = ()

    def carried(self, hostile: Hostile) -> object:
        """Return the target's form of an accepted value: its bytes, unless a lane overrides this."""
        return hostile.payload

    def stored(self) -> Collection[object]:
        """Return all values stored in the target."""
        raise NotImplementedError


def text_of(payload: bytes | str) -> object:
    """Return the text of an object, with numbers as they are written."""
    return json.loads(payload, parse_float=str, parse_int=str, parse_constant=str)["text"]


def compact(text: str) -> str:
    """Return the JSON of a list or object without spaces, and any other text unchanged."""
    return text.replace(", ", ",").replace(": ", ":") if text and text[0] in "[{" else text


class JsonLane(SinkLane):
    """Targets that hold objects: texts by ID."""

    def carried(self, hostile: Hostile) -> object:
        return (hostile.number, repr(text_of(hostile.payload)))


_NO_JSON = {**dict.fromkeys(NOT_JSON, "JSON"), "10,000 deep": "recursion"}
_LONE = {"lone surrogate": "surrogate"}
_NO_ROWS = _NO_JSON | _LONE | dict.fromkeys(NO_OBJECT, "")
_NO_TEXT = {
    **dict.fromkeys(("minus zero", "2**63", "10**40", "60 digits", "1e999", "true"), "JSON parse error"),
    **dict.fromkeys(("list of nulls", "object of null"), "JSON parse error"),
}
"""What a column of texts of a table with a schema refuses."""


# -- bytes as they are ------------------------------------------------------------------------------------------------


class RedisValueLane(RedisValues, SinkLane):
    """Values by key."""

    def stored(self) -> Collection[object]:
        with self.server_process.client() as client:
            return list(client.mget(client.keys("m:*")))


class RedisStreamLane(RedisStream, SinkLane):
    """Entries of a stream."""

    def stored(self) -> Collection[object]:
        with self.server_process.client() as client:
            return [fields[b"value"] for _, fields in client.xrange("out")]


class MqttLane(MqttSinkCase, SinkLane):
    """Messages of MQTT."""

    def stored(self) -> Collection[object]:
        marker = Client(self.server_process, "marker", clean=True)
        marker.client.publish("out/marker", b"", qos=1)
        wait_for(lambda: any(message.topic == "out/marker" for message in list(self._received)), "the marker", 60)
        marker.close()
        return [message.payload for message in list(self._received) if message.topic != "out/marker"]


class NatsLane(NatsSinkCase, SinkLane):
    """Messages of a stream."""

    def stored(self) -> Collection[object]:
        async def read() -> list[object]:
            server = self.server_process
            client = await nats.connect(server.url, user=server.username, password=server.password)
            js = client.jetstream(timeout=30.0)
            missing = (await js.stream_info("out")).state.messages
            consumer = await js.pull_subscribe("out.>", stream="out", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
            found: list[object] = []
            while len(found) < missing:
                found += [message.data for message in await consumer.fetch(missing - len(found), timeout=30.0)]
            await client.close()
            return found

        return asyncio.run(read())


class RabbitLane(RabbitSinkCase, SinkLane):
    """Messages of a queue."""

    def stored(self) -> Collection[object]:
        found: list[object] = []
        with self.opened() as connection:
            channel = connection.channel()
            while (got := channel.basic_get("out", auto_ack=True))[0] is not None:
                found.append(got[2])
        return found


class PulsarLane(PulsarSinkCase, SinkLane):
    """Messages of another cluster."""

    def stored(self) -> Collection[object]:
        client = self.client()
        reader = client.create_reader(self.topic, pulsar.MessageId.earliest)
        found: list[object] = []
        while reader.has_message_available():
            found.append(reader.read_next(TIMEOUT_MS).data())
        client.close()
        return found


class KafkaLane(KafkaSinkCase, SinkLane):
    """Records of Kafka."""

    partitions = 1

    def stored(self) -> Collection[object]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.server_process.bootstrap_servers, "group.id": "hostile"})
        _, end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=30)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[object] = []
        while len(found) < end:
            found += [message.value() or b"" for message in consumer.consume(end - len(found), 30)]
        consumer.close()
        return found


class ConsoleLane(ConsoleSinkCase, SinkLane):
    """Lines of a log, in which unprintable characters are escaped."""

    def configs(self) -> dict[str, object]:
        return {"mostChars": 1_000_000}

    def carried(self, hostile: Hostile) -> object:
        return printable(hostile.payload.decode("utf-8", "backslashreplace"))

    def stored(self) -> Collection[object]:
        return [record.getMessage() for record in self.log_records]


# -- objects ----------------------------------------------------------------------------------------------------------


class HttpLane(HttpSinkCase, JsonLane):
    """Request bodies, unchanged; the receiver rejects unknown ones."""

    refused = dict.fromkeys((*NOT_JSON[3:], *NO_OBJECT, "10,000 deep"), "422")

    def carried(self, hostile: Hostile) -> object:
        return (hostile.number, repr(json.loads(hostile.payload)["text"]))

    def stored(self) -> Collection[object]:
        lines = self.server_process.received.read_bytes().splitlines()
        values = [json.loads(line)["value"] for line in lines]
        return [(value["id"], repr(value["text"])) for value in values]


class FileLane(FileSinkCase, JsonLane):
    """Lines of JSON."""

    refused = _NO_JSON | _LONE

    def carried(self, hostile: Hostile) -> object:
        return super().carried(hostile) if hostile.name not in NO_OBJECT else hostile.payload

    def stored(self) -> Collection[object]:
        found: list[object] = []
        for path in sorted(self.out.glob("[!.]*")):
            for line in path.read_bytes().split(b"\n"):
                if line.startswith(b"{"):
                    found.append((json.loads(line)["id"], repr(text_of(line))))
                elif line:
                    found.append(line)
        return found


class S3Lane(S3SinkCase, JsonLane):
    """Objects of lines of JSON."""

    refused = _NO_JSON

    def carried(self, hostile: Hostile) -> object:
        return super().carried(hostile) if hostile.name not in NO_OBJECT else hostile.payload

    def records_of(self, body: bytes) -> Any:
        import gzip

        found: list[object] = []
        for line in gzip.decompress(body).split(b"\n"):
            if line.startswith(b"{"):
                found.append((json.loads(line)["id"], repr(text_of(line))))
            elif line:
                found.append(line)
        return found

    def stored(self) -> Collection[object]:
        client = self.server_process.client()
        found: list[object] = []
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            for one in page.get("Contents", ()):
                found += self.records_of(client.get_object(Bucket=self.bucket, Key=one["Key"])["Body"].read())
        client.close()
        return found


class TextLane(JsonLane):
    """Tables with a text column, which holds the JSON of other values."""

    def carried(self, hostile: Hostile) -> object:
        return self.text_of(hostile)

    def text_of(self, hostile: Hostile) -> tuple[int, str | None]:
        text = json.loads(hostile.payload, parse_float=str)["text"]
        return (hostile.number, text if text is None or isinstance(text, str) else compact(json.dumps(text)))

    def stored(self) -> Collection[object]:
        return [(number, compact(text)) for number, text in self.read_back()]


class CsvFileLane(FileSinkCase, TextLane):
    """Rows of CSV, where null is an empty cell."""

    format = "csv"
    refused = _NO_ROWS

    def carried(self, hostile: Hostile) -> object:
        number, text = self.text_of(hostile)
        return (number, text or "")

    def stored(self) -> Collection[object]:
        csv.field_size_limit(sys.maxsize)
        found: list[object] = []
        for path in sorted(self.out.glob("[!.]*")):
            with open(path, encoding="utf-8", newline="") as file:
                found += [(int(row["id"]), compact(row["text"])) for row in csv.DictReader(file)]
        return found


class ParquetFileLane(ParquetFileSinkCase, TextLane):
    """Rows of Parquet in a text column, because one value is a text; numbers are converted to doubles first."""

    refused = _NO_ROWS | {"1e999": "Out of range"}

    def carried(self, hostile: Hostile) -> object:
        number, text = self.text_of(hostile)
        return (number, str(float(text or "")) if hostile.name == "60 digits" else text)


class DeltaLane(DeltaSinkCase, TextLane):
    """Rows of a Delta table."""

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "schema": {"id": "long", "text": "string"}}

    refused = _NO_ROWS | _NO_TEXT


class IcebergLane(IcebergSinkCase, TextLane):
    """Rows of an Iceberg table."""

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "schema": {"id": "long", "text": "string"}}

    refused = _NO_ROWS | _NO_TEXT


class JdbcSqliteLane(JdbcSqliteCase, TextLane):
    """Rows of SQLite, where true is 1."""

    refused = _NO_ROWS | {"empty": "no value"}

    def carried(self, hostile: Hostile) -> object:
        number, text = self.text_of(hostile)
        return (number, {"true": "1"}.get(text or "", text) if hostile.name == "true" else text)


class JdbcPostgresLane(JdbcPostgresCase, TextLane):
    """Rows of PostgreSQL."""

    refused = _NO_ROWS | {"empty": "no value", "NUL": "cannot be converted to text"}


class JdbcMariaDbLane(JdbcMariaDbCase, TextLane):
    """Rows of MariaDB."""

    refused = _NO_ROWS | {"empty": "no value"}


class RedisHashLane(RedisHashes, TextLane):
    """Hashes."""

    refused = _NO_ROWS

    def stored(self) -> Collection[object]:
        with self.server_process.client() as client:
            found = [client.hmget(key, "id", "text") for key in client.keys("m:*")]
        return [(int(number), compact(text.decode())) for number, text in found]

    def carried(self, hostile: Hostile) -> object:
        number, text = self.text_of(hostile)
        return (number, "null" if text is None else text)


class InfluxdbLane(InfluxdbSinkCase, TextLane):
    """Points whose field is a string because the first one was a string."""

    refused: ClassVar[Mapping[str, str]] = {
        **_NO_ROWS, **dict.fromkeys(("2**63", "10**40"), "does not fit into 64 bits"), "1e999": "not a finite number",
        **dict.fromkeys(("minus zero", "60 digits", "true"), "field type conflict"),
        **dict.fromkeys(("list of nulls", "object of null"), "must be a string, number or boolean"),
    }  # fmt: skip


class OpenSearchLane(ElasticsearchSinkCase, JsonLane):
    """Documents with a text field; numbers are doubles, and null fields are omitted."""

    refused: ClassVar[Mapping[str, str]] = {
        name: reason for name, reason in _NO_ROWS.items() if name != "empty"
    } | {"1e999": "too large", "object of null": "failed to parse"}  # fmt: skip
    ignored = ("empty",)  # nullValueAction

    def carried(self, hostile: Hostile) -> object:
        return (hostile.number, repr(json.loads(hostile.payload)["text"]))

    def stored(self) -> Collection[object]:
        self.request("POST", f"{self.index}/_refresh")
        hits = self.request("POST", f"{self.index}/_search", {"size": 2000})["hits"]["hits"]
        return [(hit["_source"]["id"], repr(hit["_source"].get("text"))) for hit in hits]


LANES: tuple[type[SinkLane], ...] = (
    ConsoleLane, CsvFileLane, DeltaLane, FileLane, IcebergLane, JdbcSqliteLane, ParquetFileLane, HttpLane,
    InfluxdbLane, JdbcMariaDbLane, JdbcPostgresLane, KafkaLane, MqttLane, NatsLane, OpenSearchLane, PulsarLane,
    RabbitLane, RedisHashLane, RedisStreamLane, RedisValueLane, S3Lane,
)  # fmt: skip
NO_LANE = {"mongodb": "no MongoDB could be had; test_mongodb_sink.py has its decisions"}
