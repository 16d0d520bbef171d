"""What functions do by their context beyond publishing: their message as a value, seeking, pausing, ending, secrets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.producers.outgoing import encode_entry
from magnetar.runtime.interface import Runtime
from magnetar.wire import functions_pb2 as records

from tests.instance.test_exact_outbox import partitioned
from tests.instance.test_pipeline_e2e import Start, has_failed, runtime, start
from tests.support.eventually import until
from tests.support.exact import ExactSpec, arrived
from tests.support.function_topics import backlog_of, no_backlog, receive, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

__all__ = ["runtime", "start"]  # the fixtures

RECORD = """
import json
kept = []
def process(number, context):
    record = context.get_current_record()
    kept.append(record)
    context.new_output_message().key("k").properties({"p": "1"}).property("q", "2").event_time(5).value(number).send()
    context.new_output_message().key_bytes(b"\\x00").send_async(lambda result, value: None)
    first = kept[0]
    return json.dumps([
        first.value, first.data.decode(), first.key, dict(first.properties), first.event_time_ms, first.partition,
        first.topic == context.get_current_message_topic_name(), record.message_id == context.get_message_id(),
        context.get_message_partition_index(), context.get_num_instances(),
        context.get_user_config_value_or_default("x", "none"), context.get_output_schema_type(),
        record.sequence_id == context.get_message_sequence_id(), first.redelivery_count,
    ])
"""


async def test_a_record_stays_and_messages_are_put_together(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str
) -> None:
    instance = await any_runtime.start(make_spec(RECORD, parallelism=3))
    producer = await client.create_producer(f"{topic}-in")
    for number in (b"7", b"8"):
        producer.send_nowait(number, key="in", properties={"a": "b"}, event_time_ms=9)
    await producer.flush()
    messages = await receive(client, f"{topic}-out", 6)
    said = [json.loads(message.data) for message in messages if message.data.startswith(b"[")]
    assert said == [[7, "7", "in", {"a": "b"}, 9, -1, True, True, -1, 3, "none", "", True, 0]] * 2
    built = [message for message in messages if message.data in (b"7", b"8")]
    assert [(one.key, one.properties, one.event_time_ms) for one in built] == [("k", {"p": "1", "q": "2"}, 5)] * 2
    assert [message.key for message in messages if not message.data] == ["AA=="] * 2
    await instance.stop(30)


# -- seek -----------------------------------------------------------------------------------------------------------

SEEKING = """
import time
seen = []
first = []
def process(text, context):
    if not first:
        first.append(context.get_message_id())
    seen.append(text)
    if text == "m50" and seen.count("m50") == 1:
        context.seek(context.get_current_message_topic_name(), 0, {target})
    time.sleep({nap})
    return text
"""


@pytest.mark.parametrize(("kind", "nap"), [(records.SHARED, 0.002), (records.FAILOVER, 0.0)])
async def test_a_seek_back_gives_everything_behind_again_and_loses_nothing(
    server: Server, client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str, kind: int, nap: float
) -> None:
    sent = [b"m%d" % number for number in range(200)]
    await send_batches(client, f"{topic}-in", [sent[first : first + 5] for first in range(0, 200, 5)])
    spec = make_spec(SEEKING.format(target="first[0]", nap=nap), source={"subscriptionType": kind})
    instance = await any_runtime.start(spec)

    async def is_done() -> bool:
        found = (await instance.status()).numSuccessfullyProcessed
        return found >= 200 and await backlog_of(server, f"{topic}-in", "public/default/f") == 0

    await until(is_done)
    processed = (await instance.status()).numSuccessfullyProcessed
    messages = await receive(client, f"{topic}-out", processed)
    times = Counter(message.data for message in messages)
    assert set(times) == set(sent)
    # The first is what the seek went to: what comes is behind it. All that was done by then comes again.
    assert [times[b"m%d" % number] for number in range(1, 50)] == [2] * 49
    # What was fetched and not given to the function together with m50 is not processed before it comes again.
    doubled = sum(count == 2 for count in times.values())
    assert max(times.values()) == 2
    if nap:
        assert doubled < 100
    second = [message.data for message in messages][-199:]
    assert second == sent[1:]
    await instance.stop(30)


async def test_a_seek_forward_leaves_out_what_is_between(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = """
from magnetar.wire.message_id import LATEST
def process(text, context):
    if text == "m5":
        context.seek(context.get_input_topics()[0], 0, LATEST)
    return text
"""
    instance = await start(make_spec(code))
    producer = await client.create_producer(f"{topic}-in")
    for number in range(2000):
        await producer.ready()
        producer.send_entry(encode_entry([b"m%d" % number]))
    await producer.flush()
    await no_backlog(server, f"{topic}-in")
    await send_batches(client, f"{topic}-in", [[b"last"]])
    async with asyncio.timeout(30):
        consumer = await client.subscribe(f"{topic}-out", "all")
        await consumer.seek(0)
        came = [(await consumer.receive(30)).data]
        while came[-1] != b"last":
            came.append((await consumer.receive(30)).data)
    assert came[:6] == [b"m%d" % number for number in range(6)]
    assert len(came) == len(set(came))
    assert not (await instance.status()).numUserExceptions


async def test_a_seek_that_cannot_be_is_refused_where_it_is_asked_for(
    client: AsyncClient, start: Start, make_spec: MakeSpec, exact_spec: ExactSpec, topic: str
) -> None:
    code = """
import json
def process(text, context):
    said = []
    topic, own = context.get_current_message_topic_name(), context.get_message_id()
    odd = [(topic, 3, own), ("other", 0, own), (topic, "0", own), (5, 0, own), (topic, 0, None), ("a/b", 0, own)]
    for arguments in odd:
        try:
            context.seek(*arguments)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    try:
        context.pause("other")
    except ValueError as error:
        said.append(str(error))
    return json.dumps(said)
"""
    await start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"x"]])
    (message,) = await receive(client, f"{topic}-out", 1)
    reasons = [
        "ValueError: partition 3 of ", "ValueError: 'other' is not an input of this function: expected one of ",
        "InvalidConfig: invalid partition '0': expected", "InvalidConfig: invalid topic of type int: expected a str",
        "InvalidConfig: context.seek requires an id returned by context.get_message_id(), not NoneType",
        "InvalidTopicName: ", "'other' is not an input",
    ]  # fmt: skip
    for said, reason in zip(json.loads(message.data), reasons, strict=True):
        assert said.startswith(reason)
    sought = "def process(text, context):\n    context.seek(context.get_input_topics()[0], 0, context.get_message_id())"
    spec = exact_spec(sought, name="exact")
    instance = await start(spec)

    async def is_refused() -> bool:
        return "functions reset-cursor" in str((await instance.status()).latestUserExceptions)

    await until(is_refused)


# -- pause and resume -------------------------------------------------------------------------------------------------

PAUSING = """
import threading
def process(text, context):
    topic = context.get_current_message_topic_name()
    if text == "pause":
        context.pause(topic, max(context.get_message_partition_index(), 0))
        threading.Timer(0.5, context.resume, (topic, max(context.get_message_partition_index(), 0))).start()
    return text
"""


@pytest.mark.parametrize("guarantee", [records.ATLEAST_ONCE, records.EFFECTIVELY_ONCE])
@pytest.mark.parametrize("partitions", [0, 2])
async def test_a_paused_input_waits_and_others_go_on(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, exact_spec: ExactSpec,
    topic: str, guarantee: int, partitions: int,
) -> None:  # fmt: skip
    if partitions:
        await partitioned(server, f"{topic}-in", partitions)
    paused, other = (
        (f"{topic}-in-partition-0", f"{topic}-in-partition-1") if partitions else (f"{topic}-in", f"{topic}-b")
    )
    make = exact_spec if guarantee == records.EFFECTIVELY_ONCE else make_spec
    inputs = {name: records.ConsumerSpec() for name in ([f"{topic}-in"] if partitions else [paused, other])}
    instance = await start(make(PAUSING, source=records.SourceSpec(inputSpecs=inputs)))
    await send_batches(client, paused, [[b"pause"]])
    await arrived(client, f"{topic}-out", 1)
    await send_batches(client, paused, [[b"later"]])
    await send_batches(client, other, [[b"sooner"]])
    messages = await receive(client, f"{topic}-out", 3)
    assert [message.data for message in messages] == [b"pause", b"sooner", b"later"]
    assert not (await instance.status()).failureException


# -- the rest ---------------------------------------------------------------------------------------------------------


async def test_fatal_ends_the_instance_with_the_reason(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str
) -> None:
    code = "def process(text, context):\n    context.fatal(ValueError('no way on'))\n    return text"
    instance = await any_runtime.start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"x"]])
    reason = await asyncio.wait_for(instance.wait(), 30)
    assert "ValueError: no way on" in reason
    assert [message.data for message in await receive(client, f"{topic}-out", 1)] == [b"x"]  # it was done


async def test_secrets_come_from_where_the_config_says_and_are_hidden(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("MAGNETAR_TEST_SECRET", "from the environment")
    stored = {
        "text": "as it is stored",
        "env": {"env": "MAGNETAR_TEST_SECRET"},
        "file": {"file": str(tmp_path / "secret")},
        "mounted": {"path": str(tmp_path), "key": "secret"},
        "absent": {"env": "MAGNETAR_TEST_NO_SUCH"},
        "gone": {"file": str(tmp_path / "none")},
        "directory": {"file": str(tmp_path)},
    }
    code = f"""
import json
def process(text, context):
    found = {{name: context.get_secret(name) for name in {[*stored, "unknown", ""]!r}}}
    print(found)
    if text == "raise":
        raise ValueError(found["env"])
    return json.dumps(found)
"""
    spec = make_spec(code, secretsMap=json.dumps(stored))
    instance = await any_runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"x", b"raise"]])
    (message,) = await receive(client, f"{topic}-out", 1)
    assert json.loads(message.data) == {
        "text": "as it is stored", "env": "from the environment", "file": "from a file", "mounted": "from a file",
        "absent": None, "gone": None, "directory": None, "unknown": None, "": None,
    }  # fmt: skip

    async def has_raised() -> bool:
        return (await instance.status()).numUserExceptions == 1

    await until(has_raised)
    status = await instance.status()
    await instance.stop(30)
    said = str(status) + spec.log_file.read_text()
    assert "ValueError: ***" in said
    for secret in ("as it is stored", "from the environment", "from a file"):
        assert secret not in said


PROVIDER = """
class Vault:
    def init(self, config):
        self.prefix = config["prefix"]
    def provide_secret(self, name, stored):
        return f"{self.prefix}{name}={stored['id']}"
"""


async def test_a_provider_of_the_worker_finds_secrets(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vault_of_test.py").write_text(PROVIDER)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "def process(text, context):\n    return str([context.get_secret('db'), context.get_secret('other')])"
    spec = make_spec(code, secretsMap='{"db": {"id": 5}}')
    await start(replace(spec, secrets_provider="vault_of_test.Vault", secrets_config='{"prefix": "v:"}'))
    await send_batches(client, f"{topic}-in", [[b"x"]])
    (message,) = await receive(client, f"{topic}-out", 1)
    assert message.data == b"['v:db=5', None]"


async def test_a_provider_that_is_not_there_is_named_in_the_status(runtime: Runtime, make_spec: MakeSpec) -> None:
    code = "def process(text, context):\n    pass"
    spec = replace(make_spec(code, secretsMap='{"a": "b"}'), secrets_provider="no.such.Provider")
    instance = await runtime.start(spec)
    reason = await asyncio.wait_for(instance.wait(), 30)
    assert "secretsProviderClassName no.such.Provider: ModuleNotFoundError" in reason


async def test_the_context_asks_the_admin_interface_where_that_is_allowed(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = """
from magnetar.errors import RequestRefused
def process(text, context):
    try:
        context.admin.get("/admin/v2/tenants/none")
    except RequestRefused as error:
        return f"{error.status} {'public' in context.admin.get('/admin/v2/tenants')}"
"""
    refused = await start(replace(make_spec(code, name="refused"), admin_url=server.web_url))
    options = '{"exposePulsarAdminClientEnabled": true}'
    await send_batches(client, f"{topic}-in", [[b"x"]])
    await has_failed(refused, 1)
    assert "set exposePulsarAdminClientEnabled to true" in str((await refused.status()).latestUserExceptions)
    await start(replace(make_spec(code, name="allowed", customRuntimeOptions=options), admin_url=server.web_url))
    assert [message.data for message in await receive(client, f"{topic}-out", 1)] == [b"404 True"]
