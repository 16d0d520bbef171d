"""Instances whose inputs and outputs are encrypted, with the official client at both ends."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.producers.outgoing import encode_entry
from magnetar.errors import OperationTimeout
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.exact import ExactSpec
from tests.support.function_topics import EARLIEST, backlog_of, no_backlog
from tests.support.instances import MakeSpec
from tests.support.keys import Pair, write_pair
from tests.support.servers import Server

pytestmark = pytest.mark.slow

ECHO = "def process(text):\n    return text + '!'\n"
KINDS = {
    "plain": ECHO,
    "async": "async def process(text):\n    return text + '!'\n",
    "generator": "def process(text):\n    yield text + '!'\n",
}
SECRET = "nobody else may read this "


@pytest.fixture(scope="session")
def known_pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("keys")
    return write_pair(directory, "one"), write_pair(directory, "two")


@pytest.fixture
def pair(known_pairs: tuple[Pair, Pair], tmp_path: Path) -> Pair:
    """A key, in files of this test's own."""
    pair = Pair(tmp_path / "public.pem", tmp_path / "private.pem")
    known_pairs[0].copy_to(pair)
    return pair


@pytest.fixture
def official(server: Server) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=quiet, operation_timeout_seconds=30)
    yield client
    client.close()


def encrypted(spec: InstanceSpec, pair: Pair, **settings: Any) -> InstanceSpec:
    """Have an instance decrypt its inputs and encrypt its outputs."""
    for one in spec.details.source.inputSpecs.values():
        one.cryptoSpec.CopyFrom(pair.spec(**settings))
    if spec.details.componentType != records.FunctionDetails.SINK:
        spec.details.sink.producerSpec.cryptoSpec.CopyFrom(pair.spec(**settings))
    return spec


def publish(official: pulsar.Client, topic: str, pair: Pair, count: int, first: int = 0, key: str = "k") -> list[str]:
    """Send encrypted messages by the official client, and return what a function makes of them."""
    producer = official.create_producer(
        topic, encryption_key=key, crypto_key_reader=pair.official, batching_max_publish_delay_ms=2
    )
    texts = [f"{SECRET}{number}" for number in range(first, first + count)]
    for text in texts:
        producer.send_async(text.encode(), None)
    producer.flush()
    producer.close()
    return [text + "!" for text in texts]


def read(official: pulsar.Client, topic: str, pair: Pair, count: int) -> list[str]:
    """Receive and decrypt so many messages by the official client."""
    reader = official.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=pair.official)
    found = [reader.read_next(30_000).data().decode() for _ in range(count)]
    reader.close()
    return found


async def stored(client: AsyncClient, topic: str, count: int = 1) -> bytes:
    """Return the bodies of so many entries of a topic as the broker has them."""
    config = replace(EARLIEST, crypto_failure_action="CONSUME")
    async with await client.subscribe(topic, "raw", config) as consumer:
        return b"".join([(await consumer.receive(30)).data for _ in range(count)])


async def started(runtime: Runtime, spec: InstanceSpec) -> Instance:
    instance = await runtime.start(spec)

    async def is_running() -> bool:
        status = await instance.status()
        is_busy = "has not responded for" in status.failureException  # the machine, not the instance
        assert not status.failureException or is_busy, status.failureException
        return status.running

    await until(is_running)
    return instance


async def shown(instance: Instance, words: str) -> None:
    """Wait until the status of an instance has these words."""

    async def is_shown() -> bool:
        status = await instance.status()
        texts = [one.exceptionString for one in status.latestSystemExceptions]
        return any(words in text for text in (*texts, status.failureException))

    await until(is_shown)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE"])
async def test_the_official_client_writes_what_is_read_and_reads_what_is_written(
    client: AsyncClient,
    official: pulsar.Client,
    any_runtime: Runtime,
    make_spec: MakeSpec,
    exact_spec: ExactSpec,
    topic: str,
    pair: Pair,
    guarantee: str,
    kind: str,
) -> None:
    if guarantee == "EFFECTIVELY_ONCE":
        if kind == "generator":
            pytest.skip("generators are at least once")
        spec = encrypted(exact_spec(KINDS[kind]), pair)
    else:
        spec = encrypted(make_spec(KINDS[kind], processingGuarantees=guarantee), pair)
    expected = await asyncio.to_thread(publish, official, f"{topic}-in", pair, 200)
    instance = await started(any_runtime, spec)
    found = await asyncio.to_thread(read, official, f"{topic}-out", pair, 200)
    assert sorted(found) == sorted(expected)
    assert kind == "async" or found == expected
    assert SECRET.encode() not in await stored(client, f"{topic}-out")
    status = await instance.status()
    assert (status.numReceived, status.numSystemExceptions) == (200, 0)
    await instance.stop(30)


READER = """
import pathlib
class Reader:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
    def get_public_key(self, name, metadata):
        return (self.directory / "public.pem").read_bytes()
    def get_private_key(self, name, metadata):
        assert name == "k"
        return (self.directory / "private.pem").read_text()
def process(text):
    return text + '!'
"""


async def test_keys_come_from_a_class_of_the_package(
    official: pulsar.Client, any_runtime: Runtime, make_spec: MakeSpec, topic: str, pair: Pair
) -> None:
    config = f'{{"directory": "{pair.public.parent}"}}'
    spec = encrypted(make_spec(READER), pair, reader="user_code.Reader", cryptoKeyReaderConfig=config)
    expected = await asyncio.to_thread(publish, official, f"{topic}-in", pair, 20)
    instance = await started(any_runtime, spec)
    assert await asyncio.to_thread(read, official, f"{topic}-out", pair, 20) == expected
    await instance.stop(30)


@pytest.mark.parametrize(
    ("code", "settings", "words"),
    [
        (
            ECHO,
            {"reader": "user_code.Missing"},
            "cryptoKeyReaderClassName user_code.Missing: module 'user_code' has no",
        ),
        (ECHO, {"reader": "user_code.process"}, "cryptoKeyReaderClassName user_code.process names a function, not a"),
        (READER, {"reader": "user_code.Reader"}, "unexpected keyword argument 'public_key_path'"),
        (
            ECHO + "class Reader:\n    def __init__(self, **config): pass\n",
            {"reader": "user_code.Reader"},
            "cryptoKeyReaderClassName user_code.Reader has no method get_public_key(name, metadata)",
        ),
        (
            ECHO + "class Reader:\n    def __init__(self, **config): pass\n"
            "    def get_public_key(self, name, metadata): return 7\n    get_private_key = get_public_key\n",
            {"reader": "user_code.Reader"},
            "get_public_key of user_code.Reader returned int: expected the PEM as bytes, or an EncryptionKey",
        ),
    ],
)
async def test_a_reader_that_is_none_ends_the_instance_with_the_reason(
    make_spec: MakeSpec, any_runtime: Runtime, pair: Pair, code: str, settings: dict[str, str], words: str
) -> None:
    instance = await any_runtime.start(encrypted(make_spec(code), pair, **settings))
    await shown(instance, words)
    await instance.stop(30)


async def test_everything_an_instance_writes_is_encrypted(
    client: AsyncClient, official: pulsar.Client, any_runtime: Runtime, make_spec: MakeSpec, topic: str, pair: Pair
) -> None:
    code = (
        "def process(text, context):\n"
        "    context.publish(context.get_output_topic() + '-side', text)\n"
        "    context.get_logger().info(text)\n"
        "    raise ValueError(text)\n"
    )
    retry = records.RetryDetails(maxMessageRetries=0, deadLetterTopic=f"{topic}-dead")
    spec = encrypted(make_spec(code, retryDetails=retry, logTopic=f"{topic}-log"), pair)
    instance = await started(any_runtime, spec)
    expected = await asyncio.to_thread(publish, official, f"{topic}-in", pair, 1)
    for name in ("out-side", "dead", "log"):
        found = await asyncio.to_thread(read, official, f"{topic}-{name}", pair, 1)
        assert name == "log" or found == [expected[0][:-1]]
        assert SECRET.encode() not in await stored(client, f"{topic}-{name}")
    await instance.stop(30)


# -- without the key ------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "ATMOST_ONCE"])
@pytest.mark.parametrize("retries", [None, 1])
async def test_what_cannot_be_decrypted_comes_again_until_the_key_is_there(
    server: Server,
    client: AsyncClient,
    official: pulsar.Client,
    any_runtime: Runtime,
    make_spec: MakeSpec,
    topic: str,
    known_pairs: tuple[Pair, Pair],
    pair: Pair,
    guarantee: str,
    retries: int | None,
) -> None:
    if retries is not None and guarantee == "ATMOST_ONCE":
        pytest.skip("it repeats nothing")
    details: dict[str, Any] = {} if retries is None else {"retryDetails": records.RetryDetails(maxMessageRetries=1)}
    spec = encrypted(
        make_spec(ECHO, processingGuarantees=guarantee, source={"negativeAckRedeliveryDelayMs": 1000}, **details), pair
    )
    known_pairs[1].copy_to(pair)  # not the one of the messages
    expected = await asyncio.to_thread(publish, official, f"{topic}-in", known_pairs[0], 10)
    instance = await started(any_runtime, spec)
    await shown(instance, "encryption key k: the private key does not match the message; redelivering it in 1 s")
    producer = await client.create_producer(f"{topic}-in")
    await producer.send(b"clear")  # passes those that wait
    assert await asyncio.to_thread(read, official, f"{topic}-out", pair, 1) == ["clear!"]
    assert await backlog_of(server, f"{topic}-in", "public/default/f") >= 10
    known_pairs[0].copy_to(pair)
    await no_backlog(server, f"{topic}-in")
    # What was written before has the other key, so only what came afterwards can be read with this one.
    reader = official.create_reader(
        f"{topic}-out", pulsar.MessageId.earliest, crypto_key_reader=known_pairs[1].official
    )
    found = [(await asyncio.to_thread(reader.read_next, 30_000)).data().decode() for _ in range(11)]
    assert sorted(found) == sorted([*expected, "clear!"])
    await instance.stop(30)


async def test_without_a_crypto_config_nothing_is_lost(
    server: Server, official: pulsar.Client, any_runtime: Runtime, make_spec: MakeSpec, topic: str, pair: Pair
) -> None:
    await asyncio.to_thread(publish, official, f"{topic}-in", pair, 3)
    instance = await started(any_runtime, make_spec(ECHO))
    await shown(instance, "is encrypted, and the consumer has no crypto_key_reader; redelivering it in 60 s")
    await instance.stop(30)
    assert await backlog_of(server, f"{topic}-in", "public/default/f") == 3


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
async def test_in_order_an_instance_ends_at_what_it_cannot_decrypt_and_loses_nothing(
    server: Server,
    client: AsyncClient,
    official: pulsar.Client,
    any_runtime: Runtime,
    make_spec: MakeSpec,
    exact_spec: ExactSpec,
    topic: str,
    known_pairs: tuple[Pair, Pair],
    pair: Pair,
    guarantee: str,
) -> None:
    make = exact_spec if guarantee == "EFFECTIVELY_ONCE" else make_spec
    source = {"subscriptionType": records.FAILOVER}
    expected = await asyncio.to_thread(publish, official, f"{topic}-in", known_pairs[0], 5)
    expected += await asyncio.to_thread(publish, official, f"{topic}-in", known_pairs[1], 5, 5, "other")
    expected += await asyncio.to_thread(publish, official, f"{topic}-in", known_pairs[0], 5, 10)
    spec = encrypted(make(ECHO, source=source), pair)
    for _ in range(2):
        instance = await any_runtime.start(spec)
        reason = await asyncio.wait_for(instance.wait(), 30)
        assert "the private key does not match the message; later entries wait for it" in reason
        assert f"functions reset-cursor --topic {topic}-in --message-id" in reason
    assert await asyncio.to_thread(read, official, f"{topic}-out", known_pairs[0], 5) == expected[:5]
    keys = {"k": str(known_pairs[0].private), "other": str(known_pairs[1].private)}
    spec.details.source.inputSpecs[f"{topic}-in"].cryptoSpec.CopyFrom(
        pair.spec("magnetar.client.NamedKeyReader", cryptoKeyReaderConfig=json.dumps({"privateKeys": keys}))
    )
    instance = await started(any_runtime, spec)
    assert await asyncio.to_thread(read, official, f"{topic}-out", known_pairs[0], 15) == expected
    await instance.stop(30)


@pytest.mark.matrix
@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
@pytest.mark.parametrize("action", ["DISCARD", "CONSUME"])
async def test_other_actions_go_on(
    server: Server,
    client: AsyncClient,
    official: pulsar.Client,
    any_runtime: Runtime,
    make_spec: MakeSpec,
    exact_spec: ExactSpec,
    topic: str,
    known_pairs: tuple[Pair, Pair],
    pair: Pair,
    guarantee: str,
    action: str,
) -> None:
    code = "def process(data: bytes):\n    return str(len(data)) if data[:1] != b'n' else data.decode()\n"
    make = exact_spec if guarantee == "EFFECTIVELY_ONCE" else make_spec
    reading = ProducerConfig(encryption_keys=["k"], crypto_key_reader=known_pairs[1].reader)
    async with await client.create_producer(f"{topic}-in", reading) as producer:
        await producer.send_entry([SECRET.encode()] * 5)
    expected = await asyncio.to_thread(publish, official, f"{topic}-in", pair, 5)
    spec = encrypted(make(code), pair, consumerCryptoFailureAction=action)
    instance = await started(any_runtime, spec)
    await no_backlog(server, f"{topic}-in")
    status = await instance.status()
    if action == "DISCARD":
        assert status.numSystemExceptions == 1  # an entry
        assert "discarding it as set by consumerCryptoFailureAction" in status.latestSystemExceptions[0].exceptionString
        found = await asyncio.to_thread(read, official, f"{topic}-out", pair, 5)
    else:
        size, *found = await asyncio.to_thread(read, official, f"{topic}-out", pair, 6)
        assert int(size) > 5 * len(SECRET)
    assert found == [text[:-1] for text in expected]
    await instance.stop(30)


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
async def test_without_the_public_key_nothing_goes_out_unless_that_is_asked_for(
    client: AsyncClient,
    any_runtime: Runtime,
    make_spec: MakeSpec,
    exact_spec: ExactSpec,
    topic: str,
    pair: Pair,
    guarantee: str,
) -> None:
    make = exact_spec if guarantee == "EFFECTIVELY_ONCE" else make_spec
    spec = make(ECHO)
    producer = await client.create_producer(f"{topic}-in")
    await producer.send(b"x")
    pair.public.unlink()
    spec.details.sink.producerSpec.cryptoSpec.CopyFrom(pair.spec())
    instance = await any_runtime.start(spec)
    await shown(instance, f"encryption key k: cannot read the public key {pair.public}: No such file")
    await instance.stop(30)
    spec.details.sink.producerSpec.cryptoSpec.CopyFrom(pair.spec(producerCryptoFailureAction="SEND"))
    instance = await started(any_runtime, spec)
    async with await client.subscribe(f"{topic}-out", "s", EARLIEST) as consumer:
        assert (await consumer.receive(30)).data == b"x!"
    await instance.stop(30)


# -- exactly once ---------------------------------------------------------------------------------------------------

SLOW = "import time\ndef process(text, context):\n    time.sleep(0.001)\n    return text + '!'\n"
COUNTING = SLOW.replace("    return", "    context.incr_counter('all', 1)\n    return")


@pytest.mark.parametrize("code", [SLOW, COUNTING], ids=["direct", "outbox"])
async def test_encrypted_outputs_are_exact_although_the_instance_is_killed(
    server: Server,
    client: AsyncClient,
    official: pulsar.Client,
    committing_spec: ExactSpec,
    topic: str,
    pair: Pair,
    code: str,
) -> None:
    reading = ProducerConfig(encryption_keys=["k"], crypto_key_reader=pair.reader)
    async with await client.create_producer(f"{topic}-in", reading) as producer:
        for first in range(0, 600, 5):
            await producer.ready()
            producer.send_entry(encode_entry([f"{SECRET}{number}".encode() for number in range(first, first + 5)]))
        await producer.flush()
    spec = encrypted(committing_spec(code), pair)
    runtime, rng = ProcessRuntime(), random.Random(7)
    for _ in range(4):
        instance = await runtime.start(spec)
        await asyncio.sleep(rng.uniform(0.1, 0.5))
        os.kill(instance.process_id, signal.SIGKILL)
        await instance.wait()
    await runtime.start(spec)
    expected = [f"{SECRET}{number}!" for number in range(600)]
    assert await asyncio.to_thread(read, official, f"{topic}-out", pair, 600) == expected
    await no_backlog(server, f"{topic}-in")
    await runtime.close()
    config = replace(EARLIEST, crypto_key_reader=pair.reader)
    async with await client.subscribe(f"{topic}-out", "all", config) as consumer:
        assert [(await consumer.receive(30)).data.decode() for _ in range(600)] == expected
        with pytest.raises(OperationTimeout):
            await consumer.receive(0.5)
    assert SECRET.encode() not in await stored(client, f"{topic}-out", 20)
