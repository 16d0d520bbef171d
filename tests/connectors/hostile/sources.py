"""Handling of hostile values by each source: one lane per source, which lists dead letters and the reasons.

All others are carried: what a record has of them is what `SourceLane.carried` returns.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import pika
from magnetar.api.connector import Record
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.connectors.cases.base import SourceCase
from tests.connectors.cases.file_source import FileSourceCase
from tests.connectors.cases.http_source import PATIENCE_S, HttpSourceCase
from tests.connectors.cases.jdbc_poll import JdbcPollMariaDbCase, JdbcPollPostgresCase, JdbcPollSqliteCase
from tests.connectors.cases.kafka import KafkaSourceCase
from tests.connectors.cases.mqtt import Client, MqttSourceCase
from tests.connectors.cases.nats import NatsSourceCase, run
from tests.connectors.cases.postgres_cdc import PostgresCdcCase
from tests.connectors.cases.pulsar import PulsarSourceCase
from tests.connectors.cases.rabbitmq import RabbitSourceCase
from tests.connectors.cases.redis import RedisStreamsSourceCase
from tests.connectors.cases.s3_source import LocalS3SourceCase
from tests.connectors.cases.websocket import WebsocketSourceCase, putting
from tests.connectors.hostile.table import NOT_JSON, OVERSIZED, Hostile

_TOO_LARGE = {OVERSIZED.name: "exceeds the message size limit of"}
_NOT_UTF8 = ("Latin-1", "UTF-16")


class SourceLane(SourceCase):
    """One source.

    Attributes:
        refused: by the name of a value, a part of the reason in its dead letter, or in the answer to its sender.
        absent: names of values that the other system does not take, or that are nothing there.
        takes_oversized: whether the other system takes a value that is too large for a message.
        answers: reasons that senders have received, by the name of the value.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    absent: ClassVar[Collection[str]] = ()
    takes_oversized: ClassVar[bool] = False

    @property
    def answers(self) -> Mapping[str, str]:
        return {}

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        """Write values to the other system, from a thread, while the source reads."""
        raise NotImplementedError

    def carried(self, hostile: Hostile) -> object:
        """Return a record's form of an accepted value: its bytes, unless a lane overrides this."""
        return hostile.payload

    def found(self, record: Record) -> object:
        """Return the comparable form of a record."""
        return record.value.encode() if isinstance(record.value, str) else record.value


class _CellLane(SourceLane):
    """Tables in which a value is the text of a row."""

    def carried(self, hostile: Hostile) -> object:
        return (hostile.number, hostile.payload.decode())

    def found(self, record: Record) -> object:
        row = json.loads(record.value)
        return (int(row["id"]), row["text"])


def csv_of(values: Sequence[Hostile]) -> bytes:
    rows = [b'%d,"%s"\r\n' % (one.number, one.payload.replace(b'"', b'""')) for one in values]
    return b"id,text\r\n" + b"".join(rows)


# -- files ------------------------------------------------------------------------------------------------------------


class FileLane(FileSourceCase, SourceLane):
    """Lines, unchanged."""

    refused: ClassVar[Mapping[str, str]] = {OVERSIZED.name: "line is longer than"}
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        (self.directory / "whole").write_bytes(b"".join(one.payload + b"\n" for one in values))
        (self.directory / "whole").rename(self.files / "whole")


class CsvFileLane(FileSourceCase, _CellLane):
    """Rows of CSV."""

    refused: ClassVar[Mapping[str, str]] = {
        OVERSIZED.name: "line is longer than", **dict.fromkeys(_NOT_UTF8, "not valid UTF-8")
    }  # fmt: skip
    takes_oversized = True

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "format": "csv"}

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        (self.directory / "whole").write_bytes(csv_of(values))
        (self.directory / "whole").rename(self.files / "whole")


class JsonS3Lane(LocalS3SourceCase, SourceLane):
    """Lines of JSON."""

    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(NOT_JSON[:-1], "is not valid JSON"), "10,000 deep": "recursion", **_TOO_LARGE
    }  # fmt: skip
    absent = ("empty",)  # an empty line is none
    takes_oversized = True

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "format": "json"}

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        (self.path / "o ü").write_bytes(b"".join(one.payload + b"\n" for one in values))


class CsvS3Lane(LocalS3SourceCase, _CellLane):
    """Rows of CSV."""

    refused: ClassVar[Mapping[str, str]] = {**dict.fromkeys(_NOT_UTF8, "not valid UTF-8"), **_TOO_LARGE}
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        (self.path / "o ü").write_bytes(csv_of(values))


# -- tables -----------------------------------------------------------------------------------------------------------


class JdbcPollSqliteLane(JdbcPollSqliteCase, _CellLane):
    """Rows of SQLite, whose texts may contain arbitrary bytes."""

    refused: ClassVar[Mapping[str, str]] = {**dict.fromkeys(_NOT_UTF8, "surrogates not allowed"), **_TOO_LARGE}
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        with contextlib.closing(sqlite3.connect(self.directory / "rows.db", timeout=30)) as connection, connection:
            rows = [(one.number, one.payload) for one in values]
            connection.executemany("INSERT INTO polled (id, text) VALUES (?, CAST(? AS text))", rows)


class JdbcPollPostgresLane(JdbcPollPostgresCase, _CellLane):
    """Rows of PostgreSQL; test_jdbc_poll_source.py covers values of its other types."""

    refused = _TOO_LARGE
    absent = _NOT_UTF8
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        self.feed([(one.number, one.payload.decode()) for one in values])


class JdbcPollMariaDbLane(JdbcPollMariaDbCase, _CellLane):
    """Rows of MariaDB."""

    refused = _TOO_LARGE
    absent = _NOT_UTF8
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        self.feed([(one.number, one.payload.decode()) for one in values])


class PostgresCdcLane(PostgresCdcCase, _CellLane):
    """Changes of PostgreSQL."""

    refused = _TOO_LARGE
    absent = _NOT_UTF8
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        self.feed([(one.number, one.payload.decode()) for one in values])

    def found(self, record: Record) -> object:
        row = json.loads(record.value)["after"]
        return (row["id"], row["text"])


# -- messages ---------------------------------------------------------------------------------------------------------


class HttpLane(HttpSourceCase, SourceLane):
    """Request bodies; senders of invalid JSON receive the reason."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys((*NOT_JSON, "10,000 deep"), "400") | {OVERSIZED.name: "413"}
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        self._answers: dict[str, str] = {}
        for one in values:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            connection.request("POST", "/orders", one.payload, {"Authorization": "Bearer geheim"})
            answer = connection.getresponse()
            if answer.status != 200:
                self._answers[one.name] = f"{answer.status} {answer.read().decode().strip()}"
            connection.close()

    @property
    def answers(self) -> Mapping[str, str]:
        return getattr(self, "_answers", {})


class KafkaLane(KafkaSourceCase, SourceLane):
    """Records of Kafka."""

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.server_process.bootstrap_servers})
        for one in values:
            producer.produce(self.topic, one.payload, partition=0)
        assert producer.flush(60) == 0


class MqttLane(MqttSourceCase, SourceLane):
    """Messages of MQTT."""

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        feeder = Client(self.server_process, "feeder", clean=True)
        for one in values:
            properties = Properties(PacketTypes.PUBLISH)
            feeder.client.publish("in/1", one.payload, 1, properties=properties).wait_for_publish(PATIENCE_S)
        feeder.close()


class NatsLane(NatsSourceCase, SourceLane):
    """Messages of a stream."""

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        async def publish(js: Any) -> None:
            for one in values:
                await js.publish("in.1", one.payload)

        run(self.server_process, publish)


class PulsarLane(PulsarSourceCase, SourceLane):
    """Messages of another cluster."""

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        client = self.client()
        producer = client.create_producer(self.topic)
        for one in values:
            producer.send(one.payload)
        client.close()


class RabbitLane(RabbitSourceCase, SourceLane):
    """Messages of a queue."""

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        with self.opened() as connection:
            channel = connection.channel()
            for one in values:
                channel.basic_publish("", "in", one.payload, pika.BasicProperties(delivery_mode=2))


class RedisStreamsLane(RedisStreamsSourceCase, SourceLane):
    """Entries of a stream."""

    refused = _TOO_LARGE
    takes_oversized = True

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        with self.server_process.client() as client:
            for one in values:
                client.xadd("in", {"value": one.payload})


class WebsocketLane(WebsocketSourceCase, SourceLane):
    """Binary messages."""

    def put_hostile(self, values: Sequence[Hostile]) -> None:
        with putting(self.url()) as connection:
            for one in values:
                connection.send(one.payload)
            connection.send("sync")
            connection.recv(30)


LANES: tuple[type[SourceLane], ...] = (
    CsvFileLane, CsvS3Lane, FileLane, HttpLane, JdbcPollSqliteLane, JsonS3Lane, JdbcPollMariaDbLane,
    JdbcPollPostgresLane, KafkaLane, MqttLane, NatsLane, PostgresCdcLane, PulsarLane, RabbitLane, RedisStreamsLane,
    WebsocketLane,
)  # fmt: skip
NO_LANE = {"cron": "it makes its records itself", "generator": "it makes its records itself"}
