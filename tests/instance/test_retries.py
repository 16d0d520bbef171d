"""Messages that fail too often: how often each is tried, what the others notice, and what becomes of the letters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.producers.outgoing import encode_entry
from magnetar.instance.acks.retries import Tries, pause_s
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

Start = Callable[[InstanceSpec], Awaitable[Instance]]

CALLS = """
import pathlib
def process(text):
    with open(pathlib.Path(__file__).parent / "calls", "a") as log:
        log.write(text + "\\n")
    if text.startswith("poison"):
        raise ValueError(f"cannot take {text}\\nat all")
    return text + "!"
"""


def calls_of(spec: InstanceSpec) -> list[str]:
    file = Path(spec.package / "calls")
    return file.read_text().split("\n")[:-1] if file.exists() else []


@pytest.fixture
async def start(any_runtime: Runtime) -> AsyncIterator[Start]:
    instances: list[Instance] = []

    async def start(spec: InstanceSpec) -> Instance:
        instance = await any_runtime.start(spec)
        instances.append(instance)

        async def is_running() -> bool:
            status = await instance.status()
            assert status.running or not status.failureException, status.failureException
            return status.running

        await until(is_running)
        return instance

    yield start
    for instance in instances:
        await instance.stop(30)
        assert instance.leftover() == ""


def retrying(topic: str, retries: int, delay_ms: int = 20, **source: object) -> dict[str, object]:
    """Details of a function with a dead-letter topic."""
    return {
        "retryDetails": {"maxMessageRetries": retries, "deadLetterTopic": f"{topic}-dead"},
        "source": {"negativeAckRedeliveryDelayMs": delay_ms, **source},
    }


@pytest.mark.parametrize(("kind", "retries"), [(records.SHARED, 2), (records.FAILOVER, 2), (records.SHARED, 0)])
async def test_a_poison_message_is_tried_so_often_and_others_once(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, kind: int, retries: int
) -> None:
    rng = random.Random(retries)
    batches = [[b"m%d-%d" % (batch, number) for number in range(rng.choice([1, 5, 400]))] for batch in range(6)]
    batches[0] = [b"m%d" % number for number in range(1000)]
    batches[0][500] = b"poison a"
    batches[3][-1] = b"poison b"
    batches.append([b"poison c"])
    spec = make_spec(CALLS, **retrying(topic, retries, subscriptionType=kind))
    await send_batches(client, f"{topic}-in", batches)
    await start(spec)
    poison = [b"poison a", b"poison b", b"poison c"]
    letters = await receive(client, f"{topic}-dead", 3)
    assert sorted(letter.data for letter in letters) == poison
    assert {letter.properties["TRIES"] for letter in letters} == {str(retries + 1)}
    await no_backlog(server, f"{topic}-in")
    good = [message for batch in batches for message in batch if message not in poison]
    outputs = await receive(client, f"{topic}-out", len(good))
    assert [output.data for output in outputs] == [message + b"!" for message in good]
    calls = calls_of(spec)
    counts = Counter(calls)
    assert {counts[text.decode()] for text in poison} == {retries + 1}
    assert all(counts[message.decode()] == 1 for message in good)
    if kind == records.FAILOVER:  # one after the other
        assert list(dict.fromkeys(calls)) == [message.decode() for batch in batches for message in batch]


OTHER_KINDS = {
    "async": CALLS.replace("def process", "async def process"),
    "generator": CALLS.replace("return text", "yield text"),
    "async generator": CALLS.replace("def process", "async def process").replace("return text", "yield text"),
}


@pytest.mark.parametrize("code", OTHER_KINDS.values(), ids=OTHER_KINDS)
async def test_in_order_async_functions_and_generators_ask_for_a_message_again(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, code: str
) -> None:
    spec = make_spec(code, **retrying(topic, 2, subscriptionType=records.FAILOVER))
    await send_batches(client, f"{topic}-in", [[b"a", b"poison", b"b"], [b"c"]])
    await start(spec)
    (letter,) = await receive(client, f"{topic}-dead", 1)
    assert (letter.data, letter.properties["TRIES"]) == (b"poison", "3")
    await no_backlog(server, f"{topic}-in")
    assert Counter(calls_of(spec)) == {"a": 1, "poison": 3, "b": 1, "c": 1}


async def test_a_letter_is_the_message_with_its_origin_and_the_reason(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    producer = await client.create_producer(f"{topic}-in", ProducerConfig(batch_max_delay_ms=50))
    sent = [
        producer.send_nowait(b"poison \xff", key="k", ordering_key=b"\x00o", event_time_ms=7, properties={"p": "ü"}),
        producer.send_nowait(b"poison 2", properties={"EXCEPTION": "theirs"}),
        producer.send_nowait(b"fine"),
    ]
    ids = [await future for future in sent]
    code = "def process(data):\n    1 / (data == b'fine')"
    spec = make_spec(code, **retrying(topic, 1))
    spec.metadata.functionDetails.source.inputSpecs[f"{topic}-in"].serdeClassName = "user_code.Bytes"
    (spec.package / "user_code.py").write_text(
        "class Bytes:\n    def serialize(self, x): return x\n    def deserialize(self, x): return x\n" + code
    )
    await start(spec)
    first, second = sorted(await receive(client, f"{topic}-dead", 2), key=lambda letter: letter.key is None)
    assert (first.data, first.key, first.ordering_key, first.event_time_ms) == (b"poison \xff", "k", b"\x00o", 7)
    properties = dict(first.properties)
    assert 'user_code.py", line' in properties.pop("TRACEBACK")
    assert properties == {
        "p": "ü",
        "REAL_TOPIC": f"{topic}-in",
        "REAL_SUBSCRIPTION": "public/default/f",
        "ORIGIN_MESSAGE_ID": str(ids[0]),
        "EXCEPTION": "ZeroDivisionError: division by zero",
        "TRIES": "2",
        "FUNCTION": "public/default/f",
        "FUNCTION_VERSION": "3",
    }
    assert second.properties["EXCEPTION"] == "ZeroDivisionError: division by zero"


NO_UTF8 = b"\x0a\x06\x0a\x01p\x12\x01\xff"  # a property whose value is no text


@pytest.mark.parametrize("partitions", [0, 3])
async def test_all_messages_of_large_batches_become_letters_with_their_keys(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, partitions: int
) -> None:
    if partitions:
        path = f"{topic}-dead".replace("://", "/")
        async with httpx.AsyncClient() as http:
            (await http.put(f"{server.web_url}/admin/v2/{path}/partitions", json=partitions)).raise_for_status()
    producer = await client.create_producer(f"{topic}-in")
    keys = {f"m{number}": f"k{number % 7}" for number in range(3500)}
    rows = list(keys.items())
    for begin in range(0, len(rows), 700):
        part = rows[begin : begin + 700]
        headers = [b"\x12%c%b" % (len(key), key.encode()) for _, key in part]
        await producer.ready()
        producer.send_entry(encode_entry([text.encode() for text, _ in part], headers))
    await producer.ready()
    for one in (b"alone", b"twin"):  # by itself, and beside others
        others = [b"other"] if one == b"twin" else []
        producer.send_entry(encode_entry([one, *others], [NO_UTF8, *[b""] * len(others)]))
    await producer.flush()
    await start(make_spec("def process(text): raise ValueError('no ' + text)", **retrying(topic, 0)))
    letters = await receive(client, f"{topic}-dead", 3503)
    assert {letter.data.decode(): letter.key for letter in letters if letter.key} == keys
    assert sorted(letter.data for letter in letters if not letter.key) == [b"alone", b"other", b"twin"]
    assert all(letter.properties["EXCEPTION"] == f"ValueError: no {letter.data.decode()}" for letter in letters)
    await no_backlog(server, f"{topic}-in")
    places = {(letter.key, letter.message_id.partition) for letter in letters if letter.key}
    assert len(places) == 7, "a key went to several partitions"


async def test_of_the_largest_message_the_letter_leaves_out_the_traceback(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    payload = random.Random(1).randbytes(5 * 1024 * 1024 - 6000)
    producer = await client.create_producer(f"{topic}-in", ProducerConfig(batching=False))
    await producer.send(payload)
    await start(make_spec("def process(data): raise ValueError('x' * 10_000)", **retrying(topic, 0)))
    (letter,) = await receive(client, f"{topic}-dead", 1)
    assert letter.data == payload
    assert letter.properties["EXCEPTION"].startswith("ValueError: xxx")
    assert "TRACEBACK" not in letter.properties


async def test_without_a_dead_letter_topic_a_message_is_dropped_by_name(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(CALLS, retryDetails={"maxMessageRetries": 1}, source={"negativeAckRedeliveryDelayMs": 10})
    await send_batches(client, f"{topic}-in", [[b"a", b"poison", b"b"]])
    instance = await start(spec)
    await no_backlog(server, f"{topic}-in")
    status = await instance.status()
    assert (status.numUserExceptions, status.numSystemExceptions) == (2, 1)
    text = status.latestSystemExceptions[0].exceptionString
    assert f" of {topic}-in after 2 attempts: no deadLetterTopic is set: ValueError: cannot take" in text


async def test_at_most_once_keeps_what_failed_in_letters(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(CALLS, processingGuarantees=records.ATMOST_ONCE, **retrying(topic, 0))
    await send_batches(client, f"{topic}-in", [[b"a", b"poison", b"b"]])
    await start(spec)
    (letter,) = await receive(client, f"{topic}-dead", 1)
    assert (letter.data, letter.properties["TRIES"]) == (b"poison", "1")
    await receive(client, f"{topic}-out", 2)
    assert calls_of(spec) == ["a", "poison", "b"]


async def test_manual_gives_up_what_failed_and_leaves_the_rest_to_the_function(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "def process(text, context):\n    1 / (text != 'poison')\n"
        "    context.ack(context.get_message_id(), context.get_current_message_topic_name())\n"
    )
    spec = make_spec(code, processingGuarantees=records.MANUAL, **retrying(topic, 1))
    await send_batches(client, f"{topic}-in", [[b"a", b"poison", b"b"]])
    await start(spec)
    (letter,) = await receive(client, f"{topic}-dead", 1)
    assert (letter.data, letter.properties["TRIES"]) == (b"poison", "2")
    await no_backlog(server, f"{topic}-in")


async def test_what_cannot_be_stored_stays_unacknowledged_and_the_status_says_why(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(CALLS, **retrying("persistent://no/such/topic", 0))
    await send_batches(client, f"{topic}-in", [[b"a", b"poison", b"b"]])
    instance = await start(spec)
    await receive(client, f"{topic}-out", 2)

    async def says_why() -> bool:
        text = (await instance.status()).failureException
        return text.startswith(
            "cannot store 1 dead letters in persistent://no/such/topic-dead; their messages remain unacknowledged"
        )

    await until(says_why)
    await send_batches(client, f"{topic}-in", [[b"c"]])
    await receive(client, f"{topic}-out", 3)
    assert calls_of(spec) == ["a", "poison", "b", "c"]


@pytest.mark.parametrize("seed", range(3))
def test_tries_are_counted_per_message_wherever_they_happen(seed: int) -> None:
    """Entries go from one of two instances to the other as they like; both together try each message 1 + 3 times."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    places = [Tries(), Tries()]
    for entry in range(200):
        position = ("t", 1, entry)
        redeliveries, counted, poison = 0, 0, {rng.randrange(1000) for _ in range(3)}
        while counted < 4:
            counts = rng.choice(places).failed(position, redeliveries, poison)
            counted += 1
            assert counts == dict.fromkeys(poison, counted)
            redeliveries += 1


def test_what_comes_again_for_another_reason_is_no_try() -> None:
    tries = Tries(entries_max=2)
    position = ("t", 1, 1)
    assert tries.failed(position, 0, [5]) == {5: 1}
    assert tries.failed(position, 1, []) == {}
    assert tries.failed(position, 2, [6]) == {6: 1}
    assert tries.failed(position, 2, [6]) == {6: 2}  # delivered again after a reconnection
    for entry in range(3):
        tries.failed(("t", 2, entry), 0, [0])
    assert len(tries) == 2
    tries.forget(("t", 2, 2))
    assert len(tries) == 1


def test_pauses_double_up_to_half_a_minute() -> None:
    assert [pause_s(failures) for failures in (0, 1, 2, 3, 10, 1 << 31)] == [0.1, 0.1, 0.2, 0.4, 30.0, 30.0]
    assert pause_s(7, 0.5) == 0.5
