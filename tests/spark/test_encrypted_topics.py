"""Encrypted topics, read and written as the tasks of Spark do. No Spark, but Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from magnetar.errors import InvalidConfig, MagnetarError, ProtocolError
from magnetar.spark.source.options import read_options, write_options
from magnetar.spark.source.writer import pinned, write_rows

from tests.spark.conftest import SmallLedgers
from tests.spark.topics import fill, numbered, options_for, planned, read_all, values
from tests.support.keys import Pair, write_pair

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("keys")
    return write_pair(directory, "one"), write_pair(directory, "two")


@pytest.fixture
def official(broker: SmallLedgers) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZSTD"])
def test_what_the_official_client_has_encrypted_is_read(
    broker: SmallLedgers, topic: str, pairs: tuple[Pair, Pair], official: pulsar.Client, codec: str
) -> None:
    producer = official.create_producer(
        topic,
        encryption_key="k",
        crypto_key_reader=pairs[0].official,
        compression_type=getattr(pulsar.CompressionType, codec),
    )
    for payload in numbered(50):
        producer.send_async(payload, None, partition_key="key", properties={"a": "b"})
    producer.flush()
    options = options_for(broker.service_url, topic, **{"crypto.private.key": f"file://{pairs[0].private}"})
    rows = read_all(options, planned(options, 2))
    assert [row["value"] for row in rows] == numbered(50)
    assert {row["__key"] for row in rows} in ({"key"}, {b"key"})


def test_without_the_key_a_task_fails_and_names_the_entry(
    broker: SmallLedgers, topic: str, pairs: tuple[Pair, Pair]
) -> None:
    fill(broker.service_url, topic, [[b"secret"]], encryption_keys=["k"], crypto_key_reader=pairs[0].reader)
    with pytest.raises(ProtocolError, match=r"entry \d+:0 of .* is encrypted: set option crypto.private.key"):
        values(options_for(broker.service_url, topic))
    wrong = options_for(broker.service_url, topic, **{"crypto.private.key": f"file://{pairs[1].private}"})
    with pytest.raises(ProtocolError, match=r"cannot be decrypted: encryption key k: the private key does not match"):
        values(wrong)


def test_rows_are_written_encrypted(
    broker: SmallLedgers, topic: str, pairs: tuple[Pair, Pair], official: pulsar.Client
) -> None:
    keys = {"encryption.keys": "k, other", "crypto.public.key": str(pairs[0].public)}
    options = write_options({"service.url": broker.service_url, "topic": topic} | keys, "run")
    rows = pa.record_batch({"value": pa.array(numbered(20), pa.binary())})
    write_rows(pinned(options), 0, [rows])
    reader = official.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=pairs[0].official)
    assert [reader.read_next(30_000).data() for _ in range(20)] == numbered(20)
    with pytest.raises(ProtocolError, match="is encrypted"):
        values(options_for(broker.service_url, topic))


def test_nothing_is_written_in_the_clear_for_the_want_of_a_key(
    broker: SmallLedgers, topic: str, tmp_path: Path
) -> None:
    keys = {"encryption.keys": "k", "crypto.public.key": str(tmp_path / "missing.pem")}
    options = write_options({"service.url": broker.service_url, "topic": topic} | keys, "run")
    with pytest.raises(MagnetarError, match=r"encryption key k: cannot read the public key .*missing.pem"):
        write_rows(options, 0, [pa.record_batch({"value": pa.array([b"secret"], pa.binary())})])


@pytest.mark.parametrize("given", [{"encryption.keys": "k"}, {"crypto.public.key": "/a"}])
def test_half_of_the_options_for_writing_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=r"encryption\.keys \(the name of the public key\) and"):
        write_options({"service.url": "pulsar://localhost", "topic": "t"} | given, "run")


def test_options_for_writing_are_none_for_reading() -> None:
    with pytest.raises(InvalidConfig, match=r"option 'encryption.keys' is not supported for reads"):
        read_options({"service.url": "pulsar://localhost", "topic": "t", "encryption.keys": "k"})
