"""Calls of the context with values that cannot work: they raise where they are made, and the instance goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.producers.outgoing import encode_entry
from magnetar.instance.acks import publisher
from magnetar.instance.acks.at_least_once import AtLeastOnce
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.thread.runtime import ThreadInstance
from magnetar.wire import functions_pb2 as records
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import CommandMessage, MessageMetadata

from tests.instance.test_pipeline_e2e import has_failed, runtime, start
from tests.support.eventually import until
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

__all__ = ["runtime", "start"]  # the fixtures

Start = Callable[[InstanceSpec], Awaitable[ThreadInstance]]

PUBLISHING = """
import datetime, json
from math import inf, nan
ODD = {cases!r}
def process(text, context):
    said = []
    for arguments in ODD:
        try:
            context.publish(*arguments[0], **arguments[1])
        except Exception as error:
            said.append(f"{{type(error).__name__}}: {{error}}")
        else:
            said.append("")
    context.publish({good!r}, "fine")
    return json.dumps(said)
"""
T = "public/default/t"
ODD: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((T, "x"), {"message_conf": {"event_timestamp": -1}}, "'event_timestamp' -1: expected 0 to"),
    ((T, "x"), {"message_conf": {"event_timestamp": 2**63}}, "expected 0 to 9223372036854775807"),
    ((T, "x"), {"message_conf": {"event_timestamp": "soon"}}, "'event_timestamp' is 'soon': expected a number"),
    (
        (T, "x"),
        {"message_conf": {"partition_key": "\udc80"}},
        "partition_key cannot be encoded as UTF-8",
    ),
    (
        (T, "x"),
        {"message_conf": {"ordering_key": "\udc80"}},
        "ordering_key cannot be encoded as UTF-8",
    ),
    ((T, "x"), {"message_conf": {"sequence_id": -5}}, "'sequence_id' -5: expected 0 to"),
    ((T, "x"), {"message_conf": {"properties": 5}}, "'properties' must be a dict of str, not int"),
    ((T, "x"), {"message_conf": {"deliver_after": 5}}, "invalid deliver_after 5: expected a timedelta"),
    ((T, "x"), {"message_conf": {"deliver_after": timedelta(-1)}}, "-1 day, 0:00:00: must not be negative"),
    ((T, "x"), {"message_conf": {"deliver_after": timedelta(1), "deliver_at": 1}}, "are mutually exclusive"),
    ((T, "x"), {"message_conf": {"deliver_at": -1}}, "'deliver_at' -1: expected 0 to"),
    ((T, "x"), {"message_conf": {"deliver_at": 2**63}}, "expected 0 to 9223372036854775807"),
    ((T, "x"), {"message_conf": {"deliver_at": math.nan}}, "'deliver_at' is nan: expected a number"),
    ((T, "x"), {"message_conf": {"deliver_at": math.inf}}, "'deliver_at' is inf: expected a number"),
    ((T, "x"), {"message_conf": {"partition_key": b"k"}}, "'partition_key' is b'k': expected a str, not bytes"),
    (
        (T, "x"),
        {"message_conf": {"disable_replication": True}},
        "is not supported: messages are not replicated to other clusters",
    ),
    ((T, "x"), {"message_conf": {"replication_clusters": ["a"]}}, "'replication_clusters' is not supported"),
    ((T, "x"), {"message_conf": 5}, "message_conf must be a dict, not int"),
    ((T, "x"), {"properties": {"\udc80": "v"}}, "in properties cannot be encoded as UTF-8: lone surrogate U+DC80"),
    (
        (T, "x"),
        {"properties": {"k": "\udc80"}},
        "value of 'k' in properties cannot be encoded as UTF-8",
    ),
    ((T, "x"), {"properties": ["k"]}, "properties must be a dict of str, not list"),
    ((T, "x"), {"properties": {"k": "v" * 6_000_000}}, "with key and properties, exceeds the limit of 5177344 bytes"),
    (
        (T, "x"),
        {"message_conf": {"partition_key": "k" * 3_000_000}},
        "with key and properties, exceeds the limit of 5177344 bytes",
    ),
    ((T, "x" * 6_000_000), {}, "message of 6000000 bytes for public/default/t, with key and"),
    ((T, "\udc80"), {}, "surrogates not allowed"),
    ((T, None), {}, "cannot serialize NoneType"),
    ((T, "x"), {"callback": 5}, "the callback of publish must be callable, not int"),
    ((T, "x"), {"compression_type": "fast"}, "invalid compression_type 'fast': expected one of"),
    (("a/b", "x"), {}, "invalid topic name 'a/b'"),
    (("t\udc80", "x"), {}, "topic_name cannot be encoded as UTF-8: lone surrogate U+DC80 at index 1"),
    ((None, "x", "no.Such"), {}, "no"),
]


@pytest.mark.slow
async def test_a_bad_publish_raises_where_it_is_called_and_the_instance_goes_on(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = PUBLISHING.format(cases=[(arguments, options) for arguments, options, _ in ODD], good=f"{topic}-side")
    await start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"1"], [b"2"]])
    for output in await receive(client, f"{topic}-out", 2):
        for said, (arguments, options, why) in zip(json.loads(output.data), ODD, strict=True):
            assert why in said, f"{arguments!r:.60} {options!r:.60}: {said}"
            assert "\n" not in said
    await receive(client, f"{topic}-side", 2)
    await no_backlog(server, f"{topic}-in")


async def test_an_output_without_utf8_form_fails_its_message_alone(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "def process(text):\n    if text == 'raise': raise ValueError('\\udc80')\n"
        "    return text + '\\udc80' * (text == 'odd')"
    )
    instance = await start(make_spec(code, source={"negativeAckRedeliveryDelayMs": 600_000}))
    await send_batches(client, f"{topic}-in", [[b"a", b"odd", b"raise", b"b"]])
    assert [message.data for message in await receive(client, f"{topic}-out", 2)] == [b"a", b"b"]
    await has_failed(instance, 2)
    status = await instance.status()
    assert any("surrogates not allowed" in latest.exceptionString for latest in status.latestUserExceptions)


async def test_odd_acknowledgements_raise_and_later_ones_are_made(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = """
from magnetar.wire.message_id import MessageId
class Odd:
    def __init__(self, data): self.data = data
    def serialize(self): return self.data
def process(text, context):
    own, topic = context.get_message_id(), context.get_current_message_topic_name()
    said = []
    for id, where in [
        (None, topic), (Odd(b"\\xff"), topic), (Odd(5), topic), (own, 5), (own, "elsewhere\\udc80"),
        (MessageId(-1, -1), topic), (MessageId(1, 2, -1, 5, 2**30), topic), (MessageId(1, 2, -1, 5, 3), topic),
    ]:
        try:
            context.ack(id, where)
        except Exception as error:
            said.append(type(error).__name__)
    context.ack(MessageId(own.ledger, own.entry, 7), topic + "-partition-7")
    context.ack(own, topic)
    return " ".join(said)
"""
    await start(make_spec(code, processingGuarantees=records.MANUAL))
    await send_batches(client, f"{topic}-in", [[b"a"], [b"b"]])
    outputs = await receive(client, f"{topic}-out", 2)
    assert len(outputs[0].data.split()) == 8
    await no_backlog(server, f"{topic}-in")


async def test_too_many_metrics_are_said_once_and_the_function_goes_on(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = "def process(n, context):\n    for i in range(500): context.record_metric(f'{n}-{i}', 1)\n    return n\n"
    instance = await start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"%d" % number for number in range(5)]])
    await receive(client, f"{topic}-out", 5)
    status, metrics = await instance.status(), await instance.metrics()
    assert "reached the limit of" in status.latestUserExceptions[0].exceptionString
    assert len(status.latestUserExceptions) == 1
    assert (len(metrics.userMetrics), metrics.processedSuccessfullyTotal) == (2000, 5)


async def test_the_message_is_known_on_the_thread_of_the_function_only(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = f"""
import threading
def process(text, context):
    said = []
    def elsewhere():
        for call in (context.get_message_id, context.get_message_key, context.get_message_properties):
            try:
                call()
            except Exception as error:
                said.append(str(error))
        context.publish("{topic}-side", text)
    thread = threading.Thread(target=elsewhere, name="mine")
    thread.start()
    thread.join()
    return said[2]
"""
    await start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"a"]])
    (output,) = await receive(client, f"{topic}-out", 1)
    assert b"was called on thread 'mine', which is not inside a call of the function" in output.data
    await receive(client, f"{topic}-side", 1)


def settlement_of(instance: ThreadInstance) -> AtLeastOnce:
    settlement = instance._pipeline.settlement
    assert isinstance(settlement, AtLeastOnce)
    return settlement


async def test_a_failure_nobody_foresaw_ends_the_instance_with_its_reason(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task of the pipeline, or of what publishes, dies of is shown, and not waited for without end."""
    for broken in ("_publisher", "_tick", "_mailbox"):
        code = f"def process(text, context):\n    context.publish('{topic}-side', text)\n    return text\n"
        instance = await start(make_spec(code, name=broken.strip("_")))
        core = instance._pipeline.core

        def divide() -> None:
            raise ZeroDivisionError("not foreseen")

        async def fail(*_: Any) -> None:
            raise ZeroDivisionError("not foreseen")

        if broken == "_publisher":
            monkeypatch.setattr(core.client, "create_producer", fail)
        elif broken == "_tick":
            core.tasks.start(fail(), "tick", core.failed)
        else:
            core.mailbox.post(divide)
        await send_batches(client, f"{topic}-in", [[b"a"]])
        assert "ZeroDivisionError" in await instance.wait()
        monkeypatch.undo()


@pytest.mark.slow
async def test_a_function_publishes_to_more_topics_than_it_has_producers(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently used is closed, never one with something on its way; each topic keeps its order."""
    monkeypatch.setattr(publisher, "TOPICS_MAX", 3)
    code = f"def process(n, context):\n    context.publish(f'{topic}-{{n % 8}}', n)\n    return n\n"
    instance = await start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"%d" % number for number in range(40)] for _ in range(2)])
    await receive(client, f"{topic}-out", 80)

    async def is_done() -> bool:
        assert len(settlement_of(instance)._publisher._topics) <= 3
        return not settlement_of(instance)._in_flight

    await until(is_done)
    for number in range(8):
        messages = await receive(client, f"{topic}-{number}", 10)
        assert [int(message.data) for message in messages] == [*range(number, 40, 8)] * 2
    assert (await instance.status()).numSystemExceptions == 0


@pytest.mark.parametrize("guarantee", [records.ATLEAST_ONCE, records.ATMOST_ONCE])
async def test_entries_that_no_client_sends_are_acknowledged_and_hold_nothing_up(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, guarantee: int
) -> None:
    instance = await start(make_spec("def process(text): return text", processingGuarantees=guarantee))
    consumer = settlement_of(instance)._inputs[f"{topic}-in"].input
    assert isinstance(consumer, Consumer)
    plain = encode_entry([b"a"]).body
    odd: list[tuple[dict[str, Any], bytes]] = [
        ({"num_messages_in_batch": 0}, b""),
        ({"num_messages_in_batch": 0}, plain),
        ({"num_messages_in_batch": -1}, b""),
        ({"num_messages_in_batch": -1}, plain),
        ({"num_messages_in_batch": 2**31 - 1}, plain),
        ({"num_messages_in_batch": 1}, plain[:-1]),
        ({"num_messages_in_batch": 1, "compression": 1, "uncompressed_size": 2**32 - 1}, plain),
        ({"publish_time": 2**64 - 1, "event_time": 2**64 - 1, "sequence_id": 2**64 - 1}, b"fine"),
    ]
    for number, (fields, body) in enumerate(odd):
        values: dict[str, Any] = {"producer_name": "p", "sequence_id": 1, "publish_time": 1}
        metadata = MessageMetadata(**(values | fields))
        message = CommandMessage(consumer_id=0)
        message.message_id.ledgerId, message.message_id.entryId = 0, number
        consumer.handle_message(message, seal(metadata, body))  # brokers refuse some of them
    await send_batches(client, f"{topic}-in", [[b"last"]])
    assert [message.data for message in await receive(client, f"{topic}-out", 2)] == [b"fine", b"last"]
    await no_backlog(server, f"{topic}-in")

    async def holds_nothing() -> bool:
        return not settlement_of(instance)._held._sizes

    await until(holds_nothing)


TEXTS = """
import json
def process(text, context):
    record = context.get_current_record()
    return json.dumps([context.get_message_key(), context.get_message_properties(), record.key, record.properties])
"""


async def test_texts_of_a_message_that_are_no_utf8_are_replaced(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    producer = await client.create_producer(f"{topic}-in")
    headers = [b"\x0a\x08\x0a\x02p\xfe\x12\x02\xffv\x12\x02k\xff", b"\x12\x01k"]  # property p?=?v and key k?; key k
    await producer.send_entry(encode_entry([b"odd", b"even"], headers))
    await start(make_spec(TEXTS))
    odd, even = [json.loads(message.data) for message in await receive(client, f"{topic}-out", 2)]
    assert odd == ["k\ufffd", {"p\ufffd": "\ufffdv"}] * 2
    assert even == ["k", {}] * 2
