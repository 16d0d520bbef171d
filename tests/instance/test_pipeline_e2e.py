"""Whole instances against the real broker: what arrives, what is acknowledged, what comes again.

The instances are threads of the test's process: the pipeline is the same for all runtimes.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.producers.outgoing import encode_entry
from magnetar.instance import output_headers
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.thread.runtime import ThreadInstance, ThreadRuntime
from magnetar.wire import functions_pb2 as records
from magnetar.wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata

from tests.support.eventually import until
from tests.support.function_topics import EARLIEST, backlog_of, no_backlog, receive, send_batches, stats_of
from tests.support.instances import MakeSpec
from tests.support.servers import Server

Start = Callable[[InstanceSpec], Awaitable[ThreadInstance]]


@pytest.fixture
async def runtime(server: Server) -> AsyncIterator[ThreadRuntime]:
    runtime = ThreadRuntime(server.service_url)
    yield runtime
    await runtime.close()


@pytest.fixture
async def start(runtime: ThreadRuntime) -> AsyncIterator[Start]:
    instances: list[ThreadInstance] = []

    async def start(spec: InstanceSpec) -> ThreadInstance:
        instance = await runtime.start(spec)
        instances.append(instance)
        async with asyncio.timeout(30):
            while not (status := await instance.status()).running:
                assert not status.failureException, status.failureException
                await asyncio.sleep(0.005)
        return instance

    yield start
    for instance in instances:
        await instance.stop(30)
        assert instance.leftover() == ""


async def has_failed(instance: ThreadInstance, times: int) -> None:
    """Wait for so many exceptions of the function."""

    async def has() -> bool:
        return (await instance.status()).numUserExceptions >= times

    await until(has)


RAISING = """
seen = set()
def process(text):
    kind, _, name = text.partition(" ")
    if kind == "once" and name not in seen:
        seen.add(name)
        raise ValueError(text)
    if kind == "none":
        return None
    if kind == "many":
        return text * 100
    return text + "!"
"""


def random_batches(rng: random.Random) -> list[list[bytes]]:
    """Batches of all shapes; the kinds of messages in random mixtures."""
    batches, number = [], 0
    for _ in range(rng.randrange(1, 30)):
        weights = rng.choice([(1, 0, 0, 0), (5, 1, 1, 1), (0, 1, 0, 0), (10, 1, 0, 0)])
        size = rng.choice([1, 1, 2, 7, 50, 1000])
        kinds = rng.choices(["ok", "once", "none", "many"], weights, k=size)
        batches.append([f"{kind} {number + index}".encode() for index, kind in enumerate(kinds)])
        number += size
    return batches


def output_of(message: bytes) -> bytes | None:
    """What the function returns when it does not raise."""
    kind = message.split()[0]
    return None if kind == b"none" else message * 100 if kind == b"many" else message + b"!"


@pytest.mark.parametrize("kind", [records.SHARED, records.FAILOVER])
@pytest.mark.parametrize("seed", range(5))
async def test_at_least_once_repeats_what_failed_and_nothing_else(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, seed: int, kind: int
) -> None:
    rng = random.Random(seed)
    batches = random_batches(rng)
    sent = [message for batch in batches for message in batch]
    spec = make_spec(RAISING, source={"subscriptionType": kind, "negativeAckRedeliveryDelayMs": 50})
    await send_batches(client, f"{topic}-in", batches)
    instance = await start(spec)
    await no_backlog(server, f"{topic}-in")
    expected = Counter(output for message in sent if (output := output_of(message)) is not None)
    messages = await receive(client, f"{topic}-out", expected.total())
    assert Counter(message.data for message in messages) == expected
    # Those that did not fail keep their order.
    steady = [message.data for message in messages if not message.data.startswith(b"once")]
    assert steady == [output_of(message) for message in sent if not message.startswith((b"once", b"none"))]
    failing = sum(message.startswith(b"once") for message in sent)
    status = await instance.status()
    assert status.numUserExceptions == failing
    assert status.numReceived == len(sent) + failing
    assert status.numSuccessfullyProcessed == len(sent)
    assert len(status.latestUserExceptions) == min(failing, 10)


@pytest.mark.parametrize("seed", range(5))
async def test_at_most_once_repeats_nothing(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, seed: int
) -> None:
    batches = random_batches(random.Random(seed))
    sent = [message for batch in batches for message in batch]
    await send_batches(client, f"{topic}-in", batches)
    guarantee = records.ATMOST_ONCE
    spec = make_spec(RAISING, processingGuarantees=guarantee, source={"negativeAckRedeliveryDelayMs": 50})
    instance = await start(spec)
    await no_backlog(server, f"{topic}-in")
    steady = [message for message in sent if not message.startswith((b"once", b"none"))]
    messages = await receive(client, f"{topic}-out", len(steady))
    assert [message.data for message in messages] == [output_of(message) for message in steady]

    async def all_is_done() -> bool:
        status = await instance.status()
        return status.numSuccessfullyProcessed + status.numUserExceptions == len(sent)

    await until(all_is_done)
    status = await instance.status()
    assert status.numReceived == len(sent)
    assert status.numUserExceptions == sum(message.startswith(b"once") for message in sent)


async def test_at_most_once_acknowledges_before_processing(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = "import pathlib, time\ndef process(text):\n    while not pathlib.Path(text).exists(): time.sleep(0.01)"
    spec = make_spec(code, processingGuarantees=records.ATMOST_ONCE)
    await start(spec)
    gate = spec.package / "go"
    await send_batches(client, f"{topic}-in", [[str(gate).encode()]])
    await no_backlog(server, f"{topic}-in")
    gate.touch()


async def test_poison_message_comes_again_and_again_alone(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = "def process(text):\n    return 1 // (text != 'poison') or text"
    spec = make_spec(code, source={"negativeAckRedeliveryDelayMs": 30})
    await send_batches(client, f"{topic}-in", [[b"a", b"poison", b"b"]])
    instance = await start(spec)
    await has_failed(instance, 4)

    async def is_alone() -> bool:
        status = await instance.status()  # of a moment between two runs
        return status.numReceived - status.numUserExceptions == 2

    await until(is_alone)
    await receive(client, f"{topic}-out", 2)


WAITING = """
import pathlib, time
def process(text):
    while text[0] == "/" and not pathlib.Path(text).exists():
        time.sleep(0.005)
    time.sleep(0.02)
    return text[:1]
"""


async def test_slow_function_does_not_hold_back_its_first_output(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(WAITING)
    gate = spec.package / "go"
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    await send_batches(client, f"{topic}-in", [[b"a", b"b", b"c", str(gate).encode(), b"d"]])
    await start(spec)
    assert [(await consumer.receive(30)).data for _ in range(2)] == [b"a", b"b"]
    gate.touch()
    assert [(await consumer.receive(30)).data for _ in range(3)][-1] == b"d"


async def test_outputs_of_queued_entries_go_out_as_one(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(WAITING.replace("    time.sleep(0.02)\n    return text[:1]", "    return text"))
    gate = spec.package / "go"
    await send_batches(client, f"{topic}-in", [[str(gate).encode()], *([b"m%d" % number] for number in range(500))])
    await start(spec)

    async def are_queued() -> bool:
        stats = await stats_of(server, f"{topic}-in")
        return bool(stats["subscriptions"]["public/default/f"]["msgOutCounter"] == 501)

    await until(are_queued)
    gate.touch()
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    entries, messages = 0, 0
    while messages < 501:
        async with asyncio.timeout(30):
            entry = await consumer.receive_entry()
        entries += 1
        messages += entry.num_messages
    assert entries < 100


async def test_large_outputs_are_split_and_too_large_ones_fail_alone(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec("def process(x): return b'x' * x")
    sizes = [400_000, 400_000, 400_000, 6_000_000, 400_000, 10]
    await send_batches(client, f"{topic}-in", [[b"%d" % size for size in sizes]])
    instance = await start(spec)
    messages = await receive(client, f"{topic}-out", 5)
    assert [len(message.data) for message in messages] == [size for size in sizes if size < 6_000_000]
    status = await instance.status()
    assert "output of 6000000 bytes exceeds the message size limit of" in status.latestUserExceptions[0].exceptionString


CONTEXT = """
import json
def process(text, context):
    message_id = context.get_message_id()
    return json.dumps([
        text, str(message_id), context.get_message_key(), context.get_partition_key(), context.get_message_eventtime(),
        context.get_message_properties(), context.get_current_message_topic_name(), context.get_function_name(),
        context.get_function_tenant(), context.get_function_namespace(), context.get_function_version(),
        context.get_instance_id(), context.get_user_config_value("k"), context.get_user_config_value("none"),
        context.get_user_config_map(), context.get_input_topics(), context.get_output_topic(),
    ])
"""


async def test_context_knows_message_and_instance(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    producer = await client.create_producer(f"{topic}-in", ProducerConfig(batch_max_delay_ms=50))
    futures = [
        producer.send_nowait(b"a", key="k1", event_time_ms=7),
        producer.send_nowait(b"b", properties={"p": "v"}),
        producer.send_nowait(b"c"),
    ]
    ids = [await future for future in futures]
    await start(make_spec(CONTEXT, userConfig='{"k": [1]}', instance_id=2))
    for message, message_id, own in zip(
        await receive(client, f"{topic}-out", 3),
        ids,
        [("a", "k1", 7, {}), ("b", "", 0, {"p": "v"}), ("c", "", 0, {})],
        strict=True,
    ):
        text, key, event_time, properties = own
        ledger, entry, _, index, _ = message_id
        assert json.loads(message.data) == [
            text, f"({ledger},{entry},-1,{index})", key, key, event_time, properties, f"{topic}-in", "f", "public",
            "default", "3", "2", [1], None, {"k": [1]}, [f"{topic}-in"], f"{topic}-out",
        ]  # fmt: skip


PUBLISHING = """
import threading
answers = []
def process(text, context):
    done = threading.Event()
    def callback(result, message):
        answers.append((int(result), message))
        done.set()
    context.publish(text, "to " + text, properties={"a": "b"}, callback=callback,
                    message_conf={"partition_key": "k", "event_timestamp": 5})
    assert done.wait(60)
    context.record_metric("m", 2)
    return str(answers)
"""


async def test_publish_through_the_context(client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str) -> None:
    await send_batches(client, f"{topic}-in", [[f"{topic}-side".encode()]])
    instance = await start(make_spec(PUBLISHING))
    (message,) = await receive(client, f"{topic}-side", 1)
    assert (message.data, message.key, message.event_time_ms) == (f"to {topic}-side".encode(), "k", 5)
    assert dict(message.properties) == {"a": "b"}
    (output,) = await receive(client, f"{topic}-out", 1)
    assert output.data == f"[(0, 'to {topic}-side')]".encode()
    metrics = await instance.metrics()
    assert dict(metrics.userMetrics) == {"user_metric_m_sum": 2.0, "user_metric_m_count": 1.0}
    assert metrics.processedSuccessfullyTotal == metrics.processedSuccessfullyTotal_1min == 1


async def test_failed_publish_makes_the_message_come_again(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "first = []\ndef process(text, context):\n"
        "    context.publish('persistent://no/such/tenant' if not first else text, 'x')\n    first.append(1)\n"
    )
    await send_batches(client, f"{topic}-in", [[f"{topic}-side".encode()]])
    instance = await start(make_spec(code, source={"negativeAckRedeliveryDelayMs": 50}))
    await receive(client, f"{topic}-side", 1)
    status = await instance.status()
    assert status.numSystemExceptions == 1
    assert "were not stored" in status.latestSystemExceptions[0].exceptionString


async def test_state_call_without_a_store_stops_the_instance_and_a_secret_is_none(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "def process(text, context):\n"
        "    return context.put_state('k', 'v') if text == 'state' else repr(context.get_secret('s'))\n"
    )
    await send_batches(client, f"{topic}-in", [[b"secret"]])
    instance = await start(make_spec(code))
    assert [message.data for message in await receive(client, f"{topic}-out", 1)] == [b"None"]
    await send_batches(client, f"{topic}-in", [[b"state"]])
    async with asyncio.timeout(60):
        reason = await instance.wait()
    assert "no state store is configured: set stateStorageServiceUrl" in reason


async def test_manual_acknowledges_what_the_function_acknowledges(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "def process(text, context):\n"
        "    if text != 'keep': context.ack(context.get_message_id(), context.get_current_message_topic_name())\n"
        "    return text\n"
    )
    await send_batches(client, f"{topic}-in", [[b"a", b"b"], [b"keep", b"c"], [b"d"]])
    await start(make_spec(code, processingGuarantees=records.MANUAL))
    await receive(client, f"{topic}-out", 5)

    async def one_is_left() -> bool:
        return await backlog_of(server, f"{topic}-in", "public/default/f") == 1

    await until(one_is_left)


async def test_marked_message_names_itself_on_its_output(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    producer = await client.create_producer(f"{topic}-in", ProducerConfig(batching=False))
    await producer.send(b"plain", properties={"p": "v"})
    message_id = await producer.send(b"marked", properties={output_headers.TRIGGER_PROPERTY: "1", "p": "v"})
    await start(make_spec("def process(x): return x"))
    plain, marked = await receive(client, f"{topic}-out", 2)
    assert dict(plain.properties) == {}
    assert dict(marked.properties) == {
        output_headers.INPUT_MESSAGE_ID: output_headers.message_id_text(message_id),
        output_headers.INPUT_TOPIC: f"{topic}-in",
    }


async def test_properties_are_forwarded_if_asked_for(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    headers = [
        SingleMessageMetadata(payload_size=1, properties=[KeyValue(key="n", value=str(number))]) for number in range(3)
    ]
    producer = await client.create_producer(f"{topic}-in")
    await producer.send_entry(encode_entry([b"a", b"b", b"c"], headers))
    code = "def process(x): return None if x == 'b' else x"
    await start(make_spec(code, sink={"forwardSourceMessageProperty": True}))
    messages = await receive(client, f"{topic}-out", 2)
    assert [dict(message.properties) for message in messages] == [{"n": "0"}, {"n": "2"}]


async def test_custom_serdes_and_failing_input(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = {
        "user_code.py": "def process(value): return value",
        "mine.py": "import json\nfrom pulsar import SerDe\nclass Json(SerDe):\n"
        "    def serialize(self, x): return json.dumps(x).encode()\n"
        "    def deserialize(self, x): return json.loads(x)\n",
    }
    source = records.SourceSpec(negativeAckRedeliveryDelayMs=60_000)
    source.inputSpecs[f"{topic}-in"].serdeClassName = "mine.Json"
    await send_batches(client, f"{topic}-in", [[b'{"a": 1}', b"{no json", b"[2]"]])
    instance = await start(make_spec(code, source=source, sink={"serDeClassName": "mine.Json"}))
    messages = await receive(client, f"{topic}-out", 2)
    assert [message.data for message in messages] == [b'{"a": 1}', b"[2]"]
    status = await instance.status()
    assert (status.numSystemExceptions, status.numUserExceptions) == (1, 0)
    assert "JSONDecodeError" in status.latestSystemExceptions[0].exceptionString


async def test_partitioned_topics_on_both_sides(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        for end in ("in", "out"):
            path = f"{topic}-{end}".replace("://", "/")
            answer = await http.put(f"{server.web_url}/admin/v2/{path}/partitions", json=3)
            assert answer.is_success, answer.text
    producer = await client.create_producer(f"{topic}-in")
    for number in range(60):
        await producer.send_entry(encode_entry([b"%d" % number] * 3))
    await start(make_spec("def process(x, context): return f'{x} {context.get_current_message_topic_name()[-1]}'"))
    messages = await receive(client, f"{topic}-out", 180)
    numbers = Counter(int(message.data.split()[0]) for message in messages)
    assert numbers == Counter(dict.fromkeys(range(60), 3))
    assert {message.data.split()[1] for message in messages} == {b"0", b"1", b"2"}
    for partition in range(3):
        await no_backlog(server, f"{topic}-in-partition-{partition}")


async def test_output_topic_that_is_refused_ends_the_instance_with_the_reason(
    runtime: ThreadRuntime, make_spec: MakeSpec
) -> None:
    instance = await runtime.start(make_spec("def process(x): return x", sink={"topic": "persistent://no/such/tenant"}))
    reason = await instance.wait()
    assert "no/such" in reason
    assert "Traceback" not in reason


async def test_thread_that_does_not_end_is_abandoned_and_its_output_discarded(
    client: AsyncClient, runtime: ThreadRuntime, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(WAITING)
    gate = spec.package / "go"
    await send_batches(client, f"{topic}-in", [[str(gate).encode()]])
    instance = await runtime.start(spec)

    async def is_at_work() -> bool:
        return (await instance.status()).numReceived == 1

    await until(is_at_work)
    await instance.stop(0.1)
    assert "did not stop within 0.1 s" in instance.leftover()
    gate.touch()
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    second = await runtime.start(make_spec("def process(x): return 'new'"))
    assert (await consumer.receive(30)).data == b"new"
    assert consumer.poll() is None
    await second.stop(30)
    assert second.leftover() == ""


async def test_log_topic_gets_what_the_function_says(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = "print('imported')\ndef process(text, context): context.get_logger().warning('said ' + text)"
    await send_batches(client, f"{topic}-in", [[b"one", b"two"]])
    await start(make_spec(code, logTopic=f"{topic}-log"))
    consumer = await client.subscribe(f"{topic}-log", "test", EARLIEST)
    messages = [await consumer.receive(30) for _ in range(3)]
    assert [message.data for message in messages] == [
        b"imported",
        b"[public/default/f:0] said one",
        b"[public/default/f:0] said two",
    ]
    expected = {"loglevel": "WARNING", "fqn": "public/default/f", "instance": "0"}
    assert dict(messages[-1].properties) == expected
