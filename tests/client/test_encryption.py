"""Messages that are encrypted from end to end: by our client and by the official one, read by either."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.client import (
    AsyncClient,
    Client,
    Consumer,
    ConsumerConfig,
    CryptoError,
    EncryptionKey,
    FileKeyReader,
    InvalidConfig,
    MergedConsumer,
    OperationTimeout,
    Producer,
    ProducerConfig,
    ReaderConfig,
    UriKeyReader,
    encode_entry,
)
from magnetar.client.encryption.decryption import KEPT_S, Decryption
from magnetar.client.encryption.encryption import RENEW_S, RETRY_S, Encryption
from magnetar.wire.message_id import EARLIEST
from magnetar.wire.pulsar_api_pb2 import EncryptionKeys, MessageMetadata

from tests.client.clusters import Cluster

CONSUMER = ConsumerConfig(initial_position="Earliest")
LARGE_BYTES = 12_000_000
SECRET = b"nobody else may read this, which is said over and over again: " * 20


@dataclass(frozen=True)
class Pair:
    """The PEM files of a key."""

    public: Path
    private: Path

    @property
    def reader(self) -> FileKeyReader:
        return FileKeyReader(self.public, self.private)

    @property
    def official(self) -> pulsar.CryptoKeyReader:
        return pulsar.CryptoKeyReader(str(self.public), str(self.private))


def write_pair(directory: Path, name: str, key: Any) -> Pair:
    pair = Pair(directory / f"{name}-public.pem", directory / f"{name}-private.pem")
    pair.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    pair.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return pair


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """Two keys."""
    directory = tmp_path_factory.mktemp("keys")
    first, second = (write_pair(directory, name, rsa.generate_private_key(65537, 2048)) for name in ("one", "two"))
    return first, second


@pytest.fixture(scope="module")
def pair(pairs: tuple[Pair, Pair]) -> Pair:
    return pairs[0]


@pytest.fixture
def producing(pair: Pair) -> ProducerConfig:
    return ProducerConfig(encryption_keys=["k"], crypto_key_reader=pair.reader)


@pytest.fixture
def official(cluster: Cluster) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(cluster.service_url, logger=quiet, operation_timeout_seconds=30)
    yield client
    client.close()


async def received(consumer: Consumer | MergedConsumer, count: int) -> list[bytes]:
    return [(await consumer.receive(30)).data for _ in range(count)]


async def raw_bodies(client: AsyncClient, topic: str, count: int) -> list[bytes]:
    """The bodies of a topic's entries as they are stored."""
    config = replace(CONSUMER, crypto_failure_action="CONSUME")
    async with await client.subscribe(topic, "raw", config) as consumer:
        return [(await consumer.receive(30)).data for _ in range(count)]


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.asyncio
async def test_what_is_sent_encrypted_is_received(
    client: AsyncClient, topic: str, pair: Pair, producing: ProducerConfig, compression: Any, batching: bool
) -> None:
    config = replace(producing, compression=compression, batching=batching)
    async with await client.create_producer(topic, config) as producer:
        for number in range(5):
            producer.send_nowait(SECRET + b"%d" % number, key="käse", properties={"a": "b"}, event_time_ms=7)
        await producer.flush()
    consumer = await client.subscribe(topic, "s", replace(CONSUMER, crypto_key_reader=pair.reader))
    for number in range(5):
        message = await consumer.receive(30)
        assert message.data == SECRET + b"%d" % number
        assert (message.key, message.properties, message.event_time_ms) == ("käse", {"a": "b"}, 7)
        consumer.ack(message)
    for body in await raw_bodies(client, topic, 1 if batching else 5):
        assert SECRET[:20] not in body


@pytest.mark.asyncio
async def test_entries_and_delayed_messages_are_encrypted_too(
    client: AsyncClient, topic: str, pair: Pair, producing: ProducerConfig
) -> None:
    async with await client.create_producer(topic, producing) as producer:
        await producer.send_entry([SECRET, b"two"])
        await producer.send_entry(encode_entry([SECRET, b"four"], compression="ZSTD"))
        await producer.send(SECRET, deliver_at_ms=1)
        assert isinstance(producer, Producer)
        with pytest.raises(InvalidConfig, match="requires encryption: pass encryption to seal_entry"):
            producer.send_sealed(b"x", 9, 1)
    reader = await client.create_reader(topic, EARLIEST, ReaderConfig(crypto_key_reader=pair.reader))
    assert [(await reader.receive(30)).data for _ in range(5)] == [SECRET, b"two", SECRET, b"four", SECRET]
    assert not any(SECRET[:20] in body for body in await raw_bodies(client, topic, 3))


@pytest.mark.asyncio
async def test_a_message_in_chunks_is_encrypted_chunk_by_chunk(
    client: AsyncClient, topic: str, pair: Pair, producing: ProducerConfig, official: pulsar.Client
) -> None:
    payload = os.urandom(LARGE_BYTES)
    config = replace(producing, batching=False, chunking_enabled=True, send_timeout_ms=60_000)
    async with await client.create_producer(topic, config) as producer:
        await producer.send(payload, key="k")
    consumer = await client.subscribe(topic, "s", replace(CONSUMER, crypto_key_reader=pair.reader))
    assert (await consumer.receive(30)).data == payload
    theirs = official.subscribe(
        topic, "o", initial_position=pulsar.InitialPosition.Earliest, crypto_key_reader=pair.official
    )
    assert (await asyncio.to_thread(theirs.receive, 30_000)).data() == payload


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("codec", ["NONE", "ZLIB"])
@pytest.mark.asyncio
async def test_the_official_client_reads_ours(
    client: AsyncClient,
    topic: str,
    pairs: tuple[Pair, Pair],
    producing: ProducerConfig,
    official: pulsar.Client,
    batching: bool,
    codec: Any,
) -> None:
    config = replace(producing, encryption_keys=["k", "other"], batching=batching, compression=codec)
    async with await client.create_producer(topic, config) as producer:
        for number in range(20):
            producer.send_nowait(SECRET + b"%d" % number)
        await producer.flush()
    consumer = official.subscribe(
        topic, "s", initial_position=pulsar.InitialPosition.Earliest, crypto_key_reader=pairs[0].official
    )
    messages = [await asyncio.to_thread(consumer.receive, 30_000) for _ in range(20)]
    assert [message.data() for message in messages] == [SECRET + b"%d" % number for number in range(20)]


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZSTD"])
@pytest.mark.asyncio
async def test_ours_reads_the_official_client(
    client: AsyncClient, topic: str, pair: Pair, official: pulsar.Client, batching: bool, codec: str
) -> None:
    producer = official.create_producer(
        topic,
        encryption_key="k",
        crypto_key_reader=pair.official,
        batching_enabled=batching,
        compression_type=getattr(pulsar.CompressionType, codec),
    )
    for number in range(20):
        producer.send_async(SECRET + b"%d" % number, None, partition_key="x", properties={"a": "b"})
    await asyncio.to_thread(producer.flush)
    consumer = await client.subscribe(topic, "s", replace(CONSUMER, crypto_key_reader=pair.reader))
    for number in range(20):
        message = await consumer.receive(30)
        assert (message.data, message.key, message.properties) == (SECRET + b"%d" % number, "x", {"a": "b"})


@pytest.mark.asyncio
async def test_the_partitions_of_a_producer_share_a_data_key(
    cluster: Cluster, client: AsyncClient, topic: str, pair: Pair
) -> None:
    cluster.create_partitioned(topic, 3)
    asked: list[str] = []

    class Counting(FileKeyReader):
        def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
            asked.append(name)
            return super().get_public_key(name, metadata)

    config = ProducerConfig(encryption_keys=["k"], crypto_key_reader=Counting(pair.public), batching=False)
    async with await client.create_producer(topic, config) as producer:
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(9)))
    assert asked == ["k"]
    consumer = await client.subscribe(topic, "s", replace(CONSUMER, crypto_key_reader=pair.reader))
    assert sorted([(await consumer.receive(30)).data for _ in range(9)]) == [b"%d" % number for number in range(9)]


def test_the_blocking_client_encrypts(cluster: Cluster, topic: str, pair: Pair, producing: ProducerConfig) -> None:
    with Client(cluster.service_url) as client:
        with client.create_producer(topic, producing) as producer:
            producer.send(SECRET)
        with client.subscribe(topic, "s", replace(CONSUMER, crypto_key_reader=pair.reader)) as consumer:
            assert consumer.receive(30_000).data == SECRET


# -- what cannot be decrypted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
@pytest.mark.asyncio
async def test_what_cannot_be_decrypted_comes_again(
    client: AsyncClient,
    topic: str,
    pairs: tuple[Pair, Pair],
    producing: ProducerConfig,
    kind: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Changing:
        """A reader that has another key at first, as after a change of keys that did not reach it yet."""

        pair = pairs[1]

        def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
            return self.pair.reader.get_private_key(name, metadata)

        def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
            raise AssertionError

    reader = Changing()
    config = replace(CONSUMER, type=kind, crypto_key_reader=reader, negative_ack_delay_ms=200)
    async with await client.create_producer(topic, producing) as producer:
        for number in range(3):
            await producer.send(b"%d" % number)
    consumer = await client.subscribe(topic, "s", config)
    with pytest.raises(OperationTimeout):
        await consumer.receive(1)
    assert "encryption key k: the private key does not match the message" in caplog.text
    reader.pair = pairs[0]
    assert sorted(await received(consumer, 3)) == [b"0", b"1", b"2"]


@pytest.mark.asyncio
async def test_without_a_reader_nothing_is_lost(
    client: AsyncClient, topic: str, pair: Pair, producing: ProducerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with await client.create_producer(topic, producing) as producer:
        await producer.send(SECRET)
    async with await client.subscribe(topic, "s", CONSUMER) as consumer:
        with pytest.raises(OperationTimeout):
            await consumer.receive(1)
    assert "is encrypted, and the consumer has no crypto_key_reader" in caplog.text
    async with await client.subscribe(topic, "s", replace(CONSUMER, crypto_key_reader=pair.reader)) as consumer:
        assert (await consumer.receive(30)).data == SECRET


@pytest.mark.asyncio
async def test_discarding_goes_on_with_what_can_be_read(
    client: AsyncClient, topic: str, pairs: tuple[Pair, Pair], producing: ProducerConfig
) -> None:
    others = replace(producing, crypto_key_reader=pairs[1].reader)
    async with (
        await client.create_producer(topic, producing) as first,
        await client.create_producer(topic, others) as second,
    ):
        await first.send(b"lost")
        await second.send(b"read")
    config = replace(CONSUMER, crypto_key_reader=pairs[1].reader, crypto_failure_action="DISCARD")
    async with await client.subscribe(topic, "s", config) as consumer:
        message = await consumer.receive(30)
        assert message.data == b"read"
        await consumer.ack(message)
    async with await client.subscribe(topic, "s", replace(config, crypto_key_reader=pairs[0].reader)) as consumer:
        with pytest.raises(OperationTimeout):
            await consumer.receive(1)


@pytest.mark.asyncio
async def test_consuming_gives_the_entry_as_it_is(
    client: AsyncClient, topic: str, pair: Pair, producing: ProducerConfig
) -> None:
    async with await client.create_producer(topic, producing) as producer:
        for payload in (SECRET, b"two", b"three"):
            producer.send_nowait(payload, key="k")
        await producer.flush()
        await producer.send(b"four")
    config = replace(CONSUMER, crypto_failure_action="CONSUME", receiver_queue_size=2)
    async with await client.subscribe(topic, "s", config) as consumer:
        message = await consumer.receive(30)
        metadata = message.entry.metadata
        assert metadata.num_messages_in_batch == 3
        plain = Decryption(pair.reader).decrypt(metadata, message.data)
        assert SECRET in plain
        assert message.key == "k"
        assert message.message_id.batch_index == -1
        consumer.ack(message)
        consumer.ack(await consumer.receive(30))
    async with await client.subscribe(topic, "s", config) as consumer:
        with pytest.raises(OperationTimeout):
            await consumer.receive(1)


# -- keys that are missing or wrong -------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_producer_without_its_key_is_refused(client: AsyncClient, topic: str, tmp_path: Path) -> None:
    elliptic = write_pair(tmp_path, "ec", ec.generate_private_key(ec.SECP256R1()))
    short = write_pair(tmp_path, "short", rsa.generate_private_key(65537, 1024))
    (tmp_path / "text").write_text("hello")
    for path, why in (
        (tmp_path / "missing", f"encryption key k: cannot read the public key {tmp_path / 'missing'}: No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "text", "encryption key k: not a public key in PEM format"),
        (elliptic.private, "encryption key k: not a public key in PEM format"),
        (elliptic.public, "encryption key k: unsupported key type EC: only RSA is supported"),
        ("", "encryption key k: no file for the public key: pass its path to the key reader"),
    ):
        config = ProducerConfig(encryption_keys=["k"], crypto_key_reader=FileKeyReader(path))
        with pytest.raises(CryptoError) as caught:
            await client.create_producer(topic, config)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)
    config = ProducerConfig(encryption_keys=["k"], crypto_key_reader=short.reader)
    async with await client.create_producer(topic, config) as producer:  # 1024 bits have room for a data key
        await producer.send(b"x")


@pytest.mark.asyncio
async def test_clear_messages_go_out_only_where_that_is_allowed(
    client: AsyncClient, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = FileKeyReader(tmp_path / "missing")
    config = ProducerConfig(encryption_keys=["k"], crypto_key_reader=missing, crypto_failure_action="SEND")
    async with await client.create_producer(topic, config) as producer:
        await producer.send(b"clear")
    assert "sending messages unencrypted: encryption key k: cannot read the public key" in caplog.text
    consumer = await client.subscribe(topic, "s", CONSUMER)
    assert (await consumer.receive(30)).data == b"clear"


def test_keys_may_come_in_uris(pair: Pair) -> None:
    content = pair.private.read_bytes()
    data = "data:application/x-pem-file;base64," + base64.b64encode(content).decode()
    for uri in (data, pair.private.as_uri(), str(pair.private)):
        assert UriKeyReader(uri).get_private_key("k", {}).key == content
    for uri in ("data:application/x-pem-file;base64,%%%", "data:nothing", "data:;base64,ä"):
        with pytest.raises(InvalidConfig, match="invalid data URI of the public key: "):
            UriKeyReader(uri).get_public_key("k", {})


def test_private_keys_that_cannot_be_used_are_named(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    from magnetar.client.encryption.data_keys import decrypted_key, encrypted_key

    encrypted = encrypted_key(b"k" * 32, pairs[0].public.read_bytes(), "k")
    key = rsa.generate_private_key(65537, 2048)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw"))
    elliptic = write_pair(tmp_path, "ec", ec.generate_private_key(ec.SECP256R1()))
    for pem, why in (
        (locked, "the key is password-protected"),
        (b"text", "not a private key in PEM format"),
        (elliptic.private.read_bytes(), "unsupported key type EC: only RSA is supported"),
        (pairs[1].private.read_bytes(), "the private key does not match the message"),
    ):
        with pytest.raises(CryptoError, match=why):
            decrypted_key(encrypted, pem, "k")
    assert decrypted_key(encrypted, pairs[0].private.read_bytes(), "k") == b"k" * 32
    odd = encrypted_key(b"k" * 5, pairs[0].public.read_bytes(), "k")
    with pytest.raises(CryptoError, match="invalid data key length 5 in the message"):
        decrypted_key(odd, pairs[0].private.read_bytes(), "k")


# -- data keys ----------------------------------------------------------------------------------------------------


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what it is about tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_data_key_is_renewed_and_the_one_before_is_kept_if_that_fails(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(FileKeyReader):
        fails = False

        def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
            if self.fails:
                raise RuntimeError("the server of the keys is away")
            return super().get_public_key(name, metadata)

    clock, reader = Clock(), Failing(pair.public)
    encryption = Encryption(["k"], reader, sends_clear=False, clock=clock)
    await encryption.open()
    decryption = Decryption(pair.reader)

    def key_in_use() -> bytes:
        metadata = MessageMetadata()
        assert decryption.decrypt(metadata, encryption.encrypt(metadata, SECRET)) == SECRET
        return metadata.encryption_keys[0].value

    first = key_in_use()
    clock.now_s += RENEW_S - 1
    assert key_in_use() == first
    reader.fails = True
    clock.now_s += 1
    key_in_use()
    await until(lambda: "cannot renew the data key, using the previous one" in caplog.text)
    assert "the server of the keys is away" in caplog.text
    assert key_in_use() == first
    reader.fails = False
    clock.now_s += RETRY_S
    await until(lambda: key_in_use() != first)


def test_a_private_key_is_asked_for_once_in_four_hours(pair: Pair) -> None:
    asked: list[Mapping[str, str]] = []

    class Counting(FileKeyReader):
        def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
            asked.append(metadata)
            return super().get_private_key(name, metadata)

    class Named(FileKeyReader):
        def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
            return EncryptionKey(super().get_public_key(name, metadata).key, {"version": "3"})

    async def encrypted() -> tuple[MessageMetadata, bytes]:
        encryption, metadata = Encryption(["k"], Named(pair.public), sends_clear=False), MessageMetadata()
        await encryption.open()
        return metadata, encryption.encrypt(metadata, SECRET)

    clock = Clock()
    decryption = Decryption(Counting(private_key_path=pair.private), clock)
    metadata, body = asyncio.run(encrypted())
    for _ in range(3):
        assert decryption.decrypt(metadata, body) == SECRET
    assert asked == [{"version": "3"}]
    clock.now_s = KEPT_S
    assert decryption.decrypt(metadata, body) == SECRET
    assert len(asked) == 2


@pytest.fixture(scope="module")
def encryption(pair: Pair) -> Encryption:
    async def opened() -> Encryption:
        made = Encryption(["k"], pair.reader, sends_clear=False)
        await made.open()
        return made

    return asyncio.run(opened())


@given(body=st.binary(max_size=300), data=st.data())
def test_what_was_changed_is_not_decrypted(
    encryption: Encryption, pair: Pair, body: bytes, data: st.DataObject
) -> None:
    metadata = MessageMetadata()
    encrypted = bytearray(encryption.encrypt(metadata, body))
    decryption = _decryption(pair)
    assert decryption.decrypt(metadata, bytes(encrypted)) == body
    place = data.draw(st.integers(0, len(encrypted) - 1))
    encrypted[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CryptoError, match="the body was modified, or encrypted with another key"):
        decryption.decrypt(metadata, bytes(encrypted))


_known: dict[Path, Decryption] = {}


def _decryption(pair: Pair) -> Decryption:
    return _known.setdefault(pair.private, Decryption(pair.reader))


@settings(max_examples=50, deadline=None)
@given(
    keys=st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=300)), max_size=5),
    nonce=st.binary(max_size=40),
    body=st.binary(max_size=100),
)
def test_any_metadata_ends_in_an_answer(pair: Pair, keys: list[tuple[str, bytes]], nonce: bytes, body: bytes) -> None:
    metadata = MessageMetadata(encryption_param=nonce)
    metadata.encryption_keys.extend(EncryptionKeys(key=name, value=value) for name, value in keys)
    with pytest.raises(CryptoError):
        _decryption(pair).decrypt(metadata, body)


@given(nonce=st.binary(max_size=40), body=st.binary(max_size=100))
def test_any_nonce_and_body_end_in_an_answer(encryption: Encryption, pair: Pair, nonce: bytes, body: bytes) -> None:
    metadata = MessageMetadata()
    encryption.encrypt(metadata, SECRET)
    metadata.encryption_param = nonce
    with pytest.raises(CryptoError):
        _decryption(pair).decrypt(metadata, body)
