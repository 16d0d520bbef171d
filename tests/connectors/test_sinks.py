"""Sinks in an instance: guarantees, dead letters, retries, transform functions, contexts, stopping."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig, ProducerConfig
from magnetar.client.consumers.received import Message
from magnetar.client.outgoing_message import NO_VALUE, Base64Key
from magnetar.config.connector_conversion import IDENTITY
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec, any_runtime, client, make_spec, server, topic
from tests.support.keys import write_pair
from tests.support.servers import Server

__all__ = ["any_runtime", "client", "make_spec", "server", "topic"]

KEEPER = '''
import json, os, time
from pathlib import Path
from magnetar import Function
from magnetar.api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext

class Keeper(Sink):
    """Appends what it is given to a file; texts say what goes wrong."""

    def not_effectively_once(self, config):
        return ""

    def batching(self, config):
        return Batching(**config.get("batching", {}))

    def open(self, config, context):
        self.config = config
        self.context = context
        self.path = Path(config["path"])
        self.tries = {}
        if config.get("away"):
            raise Retry("the target is away")

    def say(self, **row):
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\\n")

    def write_batch(self, records):
        if self.config.get("hangs"):
            time.sleep(self.config["hangs"])
        for index, record in enumerate(records):
            text = record.value if isinstance(record.value, str) else record.value.decode()
            if text.startswith("refuse"):
                tries = self.tries[text] = self.tries.get(text, 0) + 1
                if tries > int(text.partition(":")[2] or 10**9):
                    continue
                for written in records[:index]:
                    self.keep(written)
                raise RecordRefused(f"try {tries} of {text}", index, index)
            if text == "pause":
                self.context.pause(record.topic)
                self.paused = record.topic
            if text == "bug":
                raise ZeroDivisionError("a bug")
            if text == "away-once" and not (Path(str(self.path) + ".away")).exists():
                Path(str(self.path) + ".away").touch()
                raise OSError("gone")
        for record in records:
            self.keep(record)

    def close(self):
        if self.config.get("stuck"):
            time.sleep(60)

    def idle(self):
        if Path(str(self.path) + ".go").exists() and hasattr(self, "paused"):
            self.context.resume(self.paused)

    def keep(self, record):
        text = record.value if isinstance(record.value, str) else record.value.decode()
        row = {"text": text[:100], "topic": record.topic, "key": record.key}
        self.say(sequence=record.sequence, pid=os.getpid(), **row)

def upper(value):
    text = value.decode()
    if text == "drop":
        return None
    if text == "raise":
        raise ValueError("no such text")
    if text == "key":
        return Record(value, key="new", properties={"a": "b"})
    return text.upper()

class Counted(Function):
    def process(self, value, context):
        key = context.get_message_key() + context.get_user_config_value("suffix")
        return f"{value.decode()}-{key}"
'''


def rows_of(tmp_path: Path) -> list[Any]:
    """Return what was kept, without a line that is being written."""
    path = tmp_path / "kept"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[], list[str]]:
    """Return the texts that were kept, in their order."""

    def read() -> list[str]:
        return [row["text"] for row in rows_of(tmp_path)]

    return read


def keeper(
    make_spec: MakeSpec, tmp_path: Path, configs: dict[str, object] | None = None, **details: object
) -> InstanceSpec:
    sink = {
        "className": "user_code.Keeper",
        "configs": json.dumps({"path": str(tmp_path / "kept")} | (configs or {})),
        "typeClassName": "none",
    }
    return make_spec(
        KEEPER, details.pop("transform", IDENTITY), sink=sink, componentType=records.FunctionDetails.SINK, **details
    )


def texts(count: int) -> list[bytes]:
    return [f"m{number:05}".encode() for number in range(count)]


def batches(values: list[bytes], size: int = 100) -> list[list[bytes]]:
    return [values[begin : begin + size] for begin in range(0, len(values), size)]


FAILOVER = {"subscriptionType": "FAILOVER"}


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE"])
async def test_records_are_written_and_refused_ones_go_away_alone(
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    kept: Callable[[], list[str]],
    guarantee: str,
) -> None:
    runtime = ThreadRuntime(server.service_url)
    source = FAILOVER if guarantee == "EFFECTIVELY_ONCE" else {}
    instance = await runtime.start(keeper(make_spec, tmp_path, processingGuarantees=guarantee, source=source))
    values = texts(1000)
    values[321] = b"refuse"
    await send_batches(client, f"{topic}-in", batches(values))

    async def are_kept() -> bool:
        return len(kept()) >= 999

    await until(are_kept)
    assert kept() == [value.decode() for value in values if value != b"refuse"]
    (letter,) = await receive(client, f"{topic}-in-f-DLQ", 1)
    assert letter.data == b"refuse"
    assert letter.properties["EXCEPTION"] == "try 1 of refuse"
    assert letter.properties["REAL_TOPIC"] == f"{topic}-in"
    assert letter.properties["REAL_SUBSCRIPTION"] == "public/default/f"
    await no_backlog(server, f"{topic}-in")
    await instance.stop(10)
    await runtime.close()


async def test_dead_letters_have_all_that_the_message_had(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path, retryDetails={"deadLetterTopic": f"{topic}-dead"})
    instance = await runtime.start(spec)
    producer = await client.create_producer(f"{topic}-in")
    message_id = await producer.send(b"refuse", key="schlüssel", properties={"a": "ü"}, event_time_ms=7)
    (letter,) = await receive(client, f"{topic}-dead", 1)
    assert (letter.data, letter.key, letter.event_time_ms) == (b"refuse", "schlüssel", 7)
    assert letter.properties["a"] == "ü"
    assert letter.properties["ORIGIN_MESSAGE_ID"] == str(message_id)
    await instance.stop(10)
    await runtime.close()


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
async def test_dead_letters_without_a_value_and_with_keys_of_bytes_stay_so(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, guarantee: str
) -> None:
    runtime = ThreadRuntime(server.service_url)
    details = {"retryDetails": {"maxMessageRetries": 1, "deadLetterTopic": f"{topic}-dead"}}
    source = FAILOVER if guarantee == "EFFECTIVELY_ONCE" else {}
    instance = await runtime.start(
        keeper(make_spec, tmp_path, processingGuarantees=guarantee, source=source, **details)
    )
    key, batched = base64.b64encode(b"\xff\x00").decode(), await client.create_producer(f"{topic}-in")
    alone = await client.create_producer(f"{topic}-in", ProducerConfig(batching=False))
    await batched.send(NO_VALUE, key=Base64Key(key), ordering_key=b"order")
    await alone.send(NO_VALUE, key=Base64Key(key), ordering_key=b"order")
    await batched.send(b"refuse", key=key)
    await batched.send(NO_VALUE)
    letters = await receive(client, f"{topic}-dead", 4)
    assert [has_key_of_bytes(letter) for letter in letters] == [True, True, False, False]
    assert letters[0].entry.metadata.partition_key_b64_encoded
    assert [letter.ordering_key for letter in letters] == [b"order", b"order", None, None]
    assert await asyncio.to_thread(seen_by_the_official_client, server, f"{topic}-dead", 4) == [
        (b"", True, key, "order"), (b"", True, key, "order"), (b"refuse", False, key, ""), (b"", True, "", ""),
    ]  # fmt: skip
    await instance.stop(10)
    await runtime.close()


def has_key_of_bytes(message: Message) -> bool:
    entry, index = message.entry, max(message.message_id.batch_index, 0)
    header: Any = entry.metadata if entry.headers is None else entry.headers[index]
    return bool(header.partition_key_b64_encoded)


def seen_by_the_official_client(server: Server, topic: str, count: int) -> list[tuple[object, ...]]:
    """Return value, absence of a value, key and ordering key of each message."""
    with contextlib.closing(pulsar.Client(server.service_url)) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        messages = [reader.read_next(30_000) for _ in range(count)]
        return [
            (message.data(), message.has_null_value(), message.partition_key(), message.ordering_key())
            for message in messages
        ]


@pytest.mark.parametrize("source", [{}, FAILOVER])
async def test_a_refused_record_is_tried_again_as_often_as_is_set(
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    kept: Callable[[], list[str]],
    source: dict[str, object],
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path, retryDetails={"maxMessageRetries": 2}, source=source)
    instance = await runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"a", b"refuse", b"b", b"refuse:2", b"c"]])
    (letter,) = await receive(client, f"{topic}-in-f-DLQ", 1)
    assert letter.properties["EXCEPTION"] == "try 3 of refuse"

    async def are_kept() -> bool:
        return sorted(kept()) == ["a", "b", "c", "refuse:2"]

    await until(are_kept)
    if source:
        assert kept() == ["a", "b", "refuse:2", "c"]
    await no_backlog(server, f"{topic}-in")
    await instance.stop(10)
    await runtime.close()


async def test_undecodable_values_are_bad_records(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, kept: Callable[[], list[str]]
) -> None:
    serde = """
class Text:
    def serialize(self, value):
        return value.encode()
    def deserialize(self, data):
        return data.decode()
"""
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path, source={"inputSpecs": {f"{topic}-in": {"serdeClassName": "user_code.Text"}}})
    (spec.package / "user_code.py").write_text(KEEPER + serde)
    instance = await runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"a", b"\xff\xfe", b"b"]])
    (letter,) = await receive(client, f"{topic}-in-f-DLQ", 1)
    assert letter.data == b"\xff\xfe"
    assert letter.properties["EXCEPTION"].startswith("UnicodeDecodeError: ")
    await no_backlog(server, f"{topic}-in")
    assert kept() == ["a", "b"]
    await instance.stop(10)
    await runtime.close()


async def test_a_bug_ends_the_instance_and_names_the_message(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, kept: Callable[[], list[str]]
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path)
    instance = await runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"a", b"bug", b"b"]])
    reason = await instance.wait()
    assert "the sink failed at message" in reason
    assert "ZeroDivisionError: a bug; it is redelivered at each start" in reason
    assert "maxMessageRetries" in reason
    assert kept() == ["a"]
    spec.metadata.functionDetails.retryDetails.maxMessageRetries = 1
    instance = await runtime.start(spec)
    (letter,) = await receive(client, f"{topic}-in-f-DLQ", 1)
    assert letter.properties["EXCEPTION"] == "ZeroDivisionError: a bug"
    await no_backlog(server, f"{topic}-in")
    assert kept() == ["a", "b"]  # what was written before the bug was acknowledged
    await instance.stop(10)
    await runtime.close()


async def test_a_library_that_is_missing_is_one_line(
    server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path)
    code = spec.package / "user_code.py"
    code.write_text("import no_such_library.parts\n" + code.read_text())
    instance = await runtime.start(spec)
    assert await instance.wait() == (
        "FunctionLoadError: user_code.Keeper imports no_such_library, which is not installed: install it where the"
        " instance runs, or add it to the archive"
    )
    await runtime.close()


async def test_at_most_once_loses_what_a_call_fails_with(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, kept: Callable[[], list[str]]
) -> None:
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(keeper(make_spec, tmp_path, processingGuarantees="ATMOST_ONCE"))
    await send_batches(client, f"{topic}-in", [[b"away-once"]])

    async def is_lost() -> bool:
        return (await instance.status()).numSystemExceptions == 1

    await until(is_lost)
    await send_batches(client, f"{topic}-in", [[b"a"]])

    async def goes_on() -> bool:
        return kept() == ["a"]

    await until(goes_on)
    status = await instance.status()
    assert "1 records may be lost" in status.latestSystemExceptions[0].exceptionString
    assert status.numSuccessfullyProcessed == 1
    await instance.stop(10)
    await runtime.close()


async def test_transform_functions_change_drop_and_refuse_records(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, kept: Callable[[], list[str]]
) -> None:
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(keeper(make_spec, tmp_path, transform="user_code.upper"))
    await send_batches(client, f"{topic}-in", [[b"a", b"drop", b"raise", b"key", b"b"]])
    (letter,) = await receive(client, f"{topic}-in-f-DLQ", 1)
    assert letter.data == b"raise"
    assert letter.properties["EXCEPTION"] == "ValueError: no such text"
    await no_backlog(server, f"{topic}-in")
    rows = rows_of(tmp_path)
    assert [(row["text"], row["key"]) for row in rows] == [("A", None), ("key", "new"), ("B", None)]
    assert [row["sequence"] % 4096 for row in rows] == [0, 3, 4]
    await instance.stop(10)
    await runtime.close()


async def test_a_transform_class_has_a_context(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, kept: Callable[[], list[str]]
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path, transform="user_code.Counted", userConfig='{"suffix": "!"}')
    instance = await runtime.start(spec)
    producer = await client.create_producer(f"{topic}-in")
    for number in range(3):
        await producer.send(b"v", key=f"k{number}")
    await no_backlog(server, f"{topic}-in")
    assert kept() == ["v-k0!", "v-k1!", "v-k2!"]
    await instance.stop(10)
    await runtime.close()


async def test_a_stop_while_retrying_is_quick(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, any_runtime: Runtime
) -> None:
    instance = await any_runtime.start(keeper(make_spec, tmp_path, {"away": True}))
    await send_batches(client, f"{topic}-in", [[b"a"]])

    async def retries() -> bool:
        return "retrying (3 attempts): the target is away" in (await instance.status()).failureException

    await until(retries)
    began_s = time.monotonic()
    await instance.stop(10)
    assert time.monotonic() - began_s < 3


async def test_batches_wait_for_their_time_but_a_stop_does_not(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, kept: Callable[[], list[str]]
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = keeper(make_spec, tmp_path, {"batching": {"records": 3, "time_s": 60}})
    instance = await runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"a"], [b"b"], [b"c"], [b"d"]])

    async def first_batch() -> bool:
        return kept() == ["a", "b", "c"]

    await until(first_batch)
    began_s = time.monotonic()
    await instance.stop(10)
    assert time.monotonic() - began_s < 5
    spec = keeper(make_spec, tmp_path, {"batching": {"records": 3, "time_s": 0.2}})
    instance = await runtime.start(spec)
    await no_backlog(server, f"{topic}-in")
    assert kept() == ["a", "b", "c", "d"]
    await instance.stop(10)
    await runtime.close()


async def test_a_call_that_does_not_return_is_shown(
    monkeypatch: pytest.MonkeyPatch,
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("magnetar.instance.connectors.session.SILENCE_S", 0.2)
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(keeper(make_spec, tmp_path, {"hangs": 2}))
    await send_batches(client, f"{topic}-in", [[b"a"]])

    async def is_shown() -> bool:
        return "write_batch of the connector has not returned for" in (await instance.status()).failureException

    await until(is_shown)
    await instance.stop(10)
    await runtime.close()


@pytest.mark.parametrize("configs", [{"stuck": True}, {"hangs": 60}])
async def test_a_sink_that_does_not_return_holds_up_no_stop(
    client: AsyncClient,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    any_runtime: Runtime,
    kept: Callable[[], list[str]],
    configs: dict[str, object],
) -> None:
    instance = await any_runtime.start(keeper(make_spec, tmp_path, configs))
    await send_batches(client, f"{topic}-in", [[b"a"]])

    async def is_at_work() -> bool:
        return bool(kept()) or (bool(configs.get("hangs")) and (await instance.status()).numReceived > 0)

    await until(is_at_work)
    began_s = time.monotonic()
    await instance.stop(1)
    assert time.monotonic() - began_s < 8


async def test_effectively_once_goes_on_where_a_killed_process_stood(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, any_runtime: Runtime
) -> None:
    spec = keeper(
        make_spec, tmp_path, {"batching": {"records": 50}}, processingGuarantees="EFFECTIVELY_ONCE", source=FAILOVER
    )
    values = texts(4000)
    await send_batches(client, f"{topic}-in", batches(values))

    def rows() -> list[tuple[int, str]]:
        return [(row["sequence"], row["text"]) for row in rows_of(tmp_path)]

    for part in (500, 1500):
        instance = await any_runtime.start(spec)

        async def has_begun(part: int = part) -> bool:
            return len(rows()) > part

        await until(has_begun)
        await instance.stop(0)
    instance = await any_runtime.start(spec)
    await no_backlog(server, f"{topic}-in")
    await instance.stop(10)
    # Written again in order and under the same numbers: a target that keeps the highest number has each once.
    highest, exact = -1, []
    for sequence, text in rows():
        if sequence > highest:
            highest = sequence
            exact.append(text)
    assert exact == [value.decode() for value in values]
    assert len(set(rows())) == len(values)  # a number names one message for ever


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
async def test_a_paused_input_waits_and_the_others_do_not(
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    kept: Callable[[], list[str]],
    guarantee: str,
) -> None:
    runtime = ThreadRuntime(server.service_url)
    source: dict[str, object] = {"inputSpecs": {f"{topic}-a": {}, f"{topic}-b": {}}}
    if guarantee == "EFFECTIVELY_ONCE":
        source |= FAILOVER
    spec = keeper(make_spec, tmp_path, processingGuarantees=guarantee, source=source)
    instance = await runtime.start(spec)
    await send_batches(client, f"{topic}-a", [[b"pause"]])

    async def is_paused() -> bool:
        return f"the sink has paused {topic}-a" in (await instance.status()).failureException

    await until(is_paused)
    waiting = texts(500)
    await send_batches(client, f"{topic}-a", batches(waiting, 10))
    await send_batches(client, f"{topic}-b", batches([b"b"] * 500, 10))
    await no_backlog(server, f"{topic}-b")
    assert kept() == ["pause"] + ["b"] * 500
    (tmp_path / "kept.go").touch()
    await no_backlog(server, f"{topic}-a")
    assert kept()[501:] == [value.decode() for value in waiting]
    await instance.stop(10)
    (tmp_path / "kept.go").unlink()
    instance = await runtime.start(spec)
    await send_batches(client, f"{topic}-a", [[b"pause"]])
    await until(is_paused)
    await send_batches(client, f"{topic}-a", batches(waiting, 10))
    began_s = time.monotonic()
    await instance.stop(10)
    assert time.monotonic() - began_s < 2.5  # what is parked is waited for by nobody
    await runtime.close()


def highest_of(pid: int) -> int:
    """Return the most memory that a process had, in KB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.slow
async def test_large_records_are_held_within_bounds(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    large = b"x" * 1_000_000
    await send_batches(client, f"{topic}-in", [[large]] * 400)
    runtime = ProcessRuntime()
    instance = await runtime.start(keeper(make_spec, tmp_path, {"hangs": 0.05}))

    async def many() -> bool:
        return len(rows_of(tmp_path)) >= 40

    await until(many)
    highest_kb = highest_of(rows_of(tmp_path)[0]["pid"])
    assert highest_kb < 200_000  # 64 MB held, 32 MB sent ahead; 400 MB are waiting
    await instance.stop(10)
    await runtime.close()


async def test_instances_share_partitions_and_each_is_written_in_order(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path, any_runtime: Runtime
) -> None:
    """Another instance joins, and the first is killed and begins again: numbers grow but for what comes again."""
    async with httpx.AsyncClient(base_url=server.web_url, trust_env=False) as http:
        path = f"/admin/v2/{topic.replace('://', '/')}-in/partitions"
        (await http.put(path, json=4)).raise_for_status()
    values = [f"{partition}-{number:05}" for number in range(1500) for partition in range(4)]

    def rows() -> list[tuple[str, int, str]]:
        return [(row["topic"], row["sequence"], row["text"]) for row in rows_of(tmp_path)]

    details = {"processingGuarantees": "EFFECTIVELY_ONCE", "source": FAILOVER, "parallelism": 2}
    specs = [
        keeper(make_spec, tmp_path, {"batching": {"records": 20}, "hangs": 0.03}, instance_id=number, **details)
        for number in range(2)
    ]
    for partition in range(4):
        mine = [value.encode() for value in values if value.startswith(f"{partition}-")]
        await send_batches(client, f"{topic}-in-partition-{partition}", batches(mine, 10))
    first = await any_runtime.start(specs[0])

    async def has_begun() -> bool:
        return len(rows()) > 300

    await until(has_begun)
    second = await any_runtime.start(specs[1])

    async def has_joined() -> bool:
        return (await second.status()).numSuccessfullyProcessed > 100

    await until(has_joined, 20)
    await first.stop(0)
    first = await any_runtime.start(specs[0])

    async def all_are_kept() -> bool:
        return len({text for _, _, text in rows()}) == len(values)

    await until(all_are_kept)
    await first.stop(10)
    await second.stop(10)
    exact: dict[str, list[str]] = defaultdict(list)
    highest: dict[str, int] = defaultdict(lambda: -1)
    for name, sequence, text in rows():
        if sequence > highest[name]:
            highest[name] = sequence
            exact[name].append(text)
    assert sorted(exact.values()) == [
        [value for value in values if value.startswith(f"{partition}-")] for partition in range(4)
    ]


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE"])
async def test_a_sink_reads_encrypted_messages_and_encrypts_its_letters(
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    kept: Callable[[], list[str]],
    guarantee: str,
) -> None:
    pair, runtime = write_pair(tmp_path, "k"), ThreadRuntime(server.service_url)
    source = FAILOVER if guarantee == "EFFECTIVELY_ONCE" else {}
    spec = keeper(make_spec, tmp_path, processingGuarantees=guarantee, source=source)
    for one in spec.details.source.inputSpecs.values():
        one.cryptoSpec.CopyFrom(pair.spec())
    instance = await runtime.start(spec)
    sending = ProducerConfig(encryption_keys=["k"], crypto_key_reader=pair.reader)
    async with await client.create_producer(f"{topic}-in", sending) as producer:
        await producer.send_entry([b"one", b"refuse", b"two"])
    await no_backlog(server, f"{topic}-in")

    async def are_kept() -> bool:
        return kept() == ["one", "two"]

    await until(are_kept)
    config = ConsumerConfig(initial_position="Earliest", crypto_failure_action="CONSUME")
    async with await client.subscribe(f"{topic}-in-f-DLQ", "raw", config) as raw:
        assert b"refuse" not in (await raw.receive(30)).data
    async with await client.subscribe(
        f"{topic}-in-f-DLQ", "s", ConsumerConfig(initial_position="Earliest", crypto_key_reader=pair.reader)
    ) as letters:
        assert (await letters.receive(30)).data == b"refuse"
    await instance.stop(10)
    await runtime.close()


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
async def test_a_sink_loses_nothing_for_the_want_of_a_key(
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    kept: Callable[[], list[str]],
    guarantee: str,
) -> None:
    pair, runtime = write_pair(tmp_path, "k"), ThreadRuntime(server.service_url)
    source = FAILOVER if guarantee == "EFFECTIVELY_ONCE" else {"negativeAckRedeliveryDelayMs": 1000}
    spec = keeper(make_spec, tmp_path, processingGuarantees=guarantee, source=source)
    sending = ProducerConfig(encryption_keys=["k"], crypto_key_reader=pair.reader)
    async with await client.create_producer(f"{topic}-in", sending) as producer:
        await producer.send(b"secret")
    async with await client.create_producer(f"{topic}-in") as producer:
        await producer.send(b"clear")
    instance = await runtime.start(spec)
    said = "is encrypted, and the consumer has no crypto_key_reader"

    async def is_said() -> bool:
        status = await instance.status()
        return said in status.failureException + "".join(one.exceptionString for one in status.latestSystemExceptions)

    await until(is_said)
    await instance.stop(10)
    assert kept() in ([], ["clear"])
    assert guarantee == "ATLEAST_ONCE" or not kept()
    for one in spec.details.source.inputSpecs.values():
        one.cryptoSpec.CopyFrom(pair.spec())
    instance = await runtime.start(spec)

    async def are_kept() -> bool:
        return sorted(kept()) == ["clear", "secret"]

    await until(are_kept)
    await instance.stop(10)
    await runtime.close()
