"""Messages that must be encrypted: producers and entries that are not are refused, and nothing of them is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from magnetar.broker.service import BrokerService
from magnetar.client import AsyncClient, ClientConfig, ConsumerConfig, MagnetarError, ProducerConfig
from magnetar.wire.pulsar_api_pb2 import EncryptionKeys, ServerError
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.brokers import running_broker
from tests.broker.raw import Raw
from tests.support.keys import Pair, write_pair
from tests.support.servers import running

NAMESPACE = "public/wire"
TOPIC = f"persistent://{NAMESPACE}/t"
ENCRYPTED: dict[str, Any] = {"encryption_keys": [EncryptionKeys(key="k", value=b"v")], "encryption_param": b"p" * 12}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(tmp_path_factory.mktemp("keys"), "k")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path) as broker:
        yield broker


async def require(broker: BrokerService, is_required: bool) -> None:
    await broker.namespaces.change_policies(NAMESPACE, lambda old: old | {"encryption_required": is_required})


Connect = Callable[..., Awaitable[Raw]]


@pytest.fixture
async def connect(broker: BrokerService) -> AsyncIterator[Connect]:
    """Make connections that have asked for a producer."""
    connections: list[Raw] = []

    async def connect(topic: str = TOPIC, **fields: Any) -> Raw:
        raw = await Raw.connected(broker.port)
        connections.append(raw)
        raw.send("PRODUCER", topic=topic, producer_id=1, request_id=1, **fields)
        return raw

    yield connect
    for raw in connections:
        await raw.close()


async def stored(broker: BrokerService) -> int:
    topic = await broker.topic(parse_topic_name(TOPIC))
    return int(topic.producers.messages_in)


async def test_a_producer_that_does_not_encrypt_is_refused(broker: BrokerService, connect: Connect) -> None:
    await require(broker, True)
    answer = (await (await connect()).receive()).command.error
    assert (answer.error, answer.message) == (ServerError.MetadataError, f"Encryption is required in {TOPIC}")
    assert (await (await connect(encrypted=True)).receive()).command.HasField("producer_success")
    system = f"persistent://{NAMESPACE}/__events"
    assert (await (await connect(system)).receive()).command.HasField("producer_success")
    await require(broker, False)
    assert (await (await connect()).receive()).command.HasField("producer_success")


@pytest.mark.parametrize("is_burst", [False, True])
@pytest.mark.parametrize("deduplicates", [False, True])
async def test_entries_in_the_clear_are_refused_in_order_among_encrypted_ones(
    broker: BrokerService, connect: Connect, is_burst: bool, deduplicates: bool
) -> None:
    await require(broker, True)
    if deduplicates:
        await broker.namespaces.change_topic_policies(
            parse_topic_name(TOPIC), lambda old: old | {"deduplicationEnabled": True}
        )
    raw = await connect(encrypted=True)
    assert (await raw.receive()).command.HasField("producer_success")
    metadata = [ENCRYPTED, {}, {}, ENCRYPTED] if is_burst else [ENCRYPTED, {}]
    for number, fields in enumerate(metadata):
        raw.send_message(b"body", sequence_id=number, metadata=fields)
    answers: list[tuple[int, str]] = []
    while len(answers) < (2 if deduplicates else len(metadata)):
        command = (await raw.receive()).command
        if command.HasField("send_receipt"):
            answers.append((command.send_receipt.sequence_id, ""))
        elif command.HasField("send_error"):
            assert command.send_error.error == ServerError.MetadataError
            answers.append((command.send_error.sequence_id, command.send_error.message))
    refusal = "Messages must be encrypted"
    expected = [(number, "" if fields else refusal) for number, fields in enumerate(metadata)]
    assert answers == (expected[:2] if deduplicates else expected)
    if deduplicates:  # what is behind it would make its repetition seem old, so the producer is closed
        assert (await raw.receive()).command.HasField("close_producer")
    assert await stored(broker) == (1 if deduplicates else sum(map(bool, metadata)))


async def test_of_many_messages_at_once_those_in_the_clear_are_refused(broker: BrokerService, connect: Connect) -> None:
    """They come as runs, of which a broker without the policy looks at no keys."""
    await require(broker, True)
    raw = await connect(encrypted=True)
    assert (await raw.receive()).command.HasField("producer_success")
    for number in range(200):
        raw.send_message(b"body", sequence_id=number, metadata=ENCRYPTED if number % 3 else {})
    for number in range(200):
        command = (await raw.receive()).command
        if number % 3:
            assert command.send_receipt.sequence_id == number
        else:
            assert (command.send_error.sequence_id, command.send_error.error) == (number, ServerError.MetadataError)
    assert await stored(broker) == 133


async def test_producers_that_do_not_encrypt_are_closed_when_the_policy_comes(
    broker: BrokerService, connect: Connect
) -> None:
    clear, encrypting = await connect(), await connect(encrypted=True)
    for raw in (clear, encrypting):
        assert (await raw.receive()).command.HasField("producer_success")
    await require(broker, True)
    assert (await clear.receive()).command.HasField("close_producer")
    encrypting.send_message(b"body", metadata=ENCRYPTED)
    assert (await encrypting.receive()).command.HasField("send_receipt")


@pytest.mark.parametrize("topic", [TOPIC, f"non-persistent://{NAMESPACE}/t"])
async def test_our_client_encrypts_where_it_must(broker: BrokerService, pair: Pair, topic: str) -> None:
    await require(broker, True)
    # As the official clients do, it asks again until its time is over: the broker says so of other troubles too.
    async with AsyncClient(f"pulsar://127.0.0.1:{broker.port}", ClientConfig(operation_timeout_s=0.5)) as client:
        with pytest.raises(MagnetarError, match=f"Encryption is required in {topic}"):
            await client.create_producer(topic)
        config = ConsumerConfig(initial_position="Earliest", crypto_key_reader=pair.reader)
        consumer = await client.subscribe(topic, "s", config)
        encrypting = ProducerConfig(encryption_keys=["k"], crypto_key_reader=pair.reader)
        async with await client.create_producer(topic, encrypting) as producer:
            await producer.send(b"secret")
        assert (await consumer.receive(30)).data == b"secret"


async def test_a_client_that_may_send_in_the_clear_fails_the_message(broker: BrokerService, tmp_path: Path) -> None:
    await require(broker, True)
    missing = Pair(tmp_path / "missing", tmp_path / "missing")
    config = ProducerConfig(
        encryption_keys=["k"], crypto_key_reader=missing.reader, crypto_failure_action="SEND", send_timeout_ms=500
    )
    async with AsyncClient(f"pulsar://127.0.0.1:{broker.port}") as client:
        producer = await client.create_producer(TOPIC, config)
        with pytest.raises(MagnetarError):
            await producer.send(b"secret")
        await producer.close()
    assert await stored(broker) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running("broker", tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.mark.slow
async def test_the_policy_is_set_over_rest_and_the_official_client_obeys(server: Any, pair: Pair) -> None:
    async with httpx.AsyncClient(base_url=f"{server.web_url}/admin/v2/namespaces") as http:
        assert (await http.put("/public/must", json={"encryption_required": True})).status_code == 204
        for namespace, is_on in (("public/must", True), ("public/default", False)):
            assert (await http.get(f"/{namespace}/encryptionRequired")).json() is is_on
        assert (await http.post("/public/default/encryptionRequired", content='"true"')).status_code == 204  # Go's way
        assert (await http.get("/public/default")).json()["encryption_required"] is True
        assert (await http.get("/public/absent/encryptionRequired")).status_code == 404
        assert (await http.delete("/public/default/encryptionRequired")).status_code == 412
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=quiet, operation_timeout_seconds=3)
    for namespace in ("public/must", "public/default"):
        topic = f"persistent://{namespace}/official"
        with pytest.raises(pulsar.PulsarException):
            await asyncio.to_thread(client.create_producer, topic)
        producer = client.create_producer(topic, encryption_key="k", crypto_key_reader=pair.official)
        producer.send(b"secret")
        reader = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=pair.official)
        assert reader.read_next(30_000).data() == b"secret"
    client.close()


@pytest.mark.slow
def test_the_whole_broker_may_ask_for_it(tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "broker.conf").write_text("encryptionRequireOnProducer=true\n")
    with running("broker", tmp_path, "--config", str(tmp_path / "broker.conf")) as server:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(server.service_url, logger=quiet, operation_timeout_seconds=3)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("t")
        client.create_producer("t", encryption_key="k", crypto_key_reader=pair.official).send(b"secret")
        client.close()
