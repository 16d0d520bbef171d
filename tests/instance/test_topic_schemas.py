"""Functions with schemas against the real broker: registered, checked, and read by the version of the writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import _pulsar
import httpx
import pulsar
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from magnetar.client import AvroSchema, Int32, JsonSchema, ProtobufSchema, Schema, StringSchema
from magnetar.client.client import AsyncClient
from magnetar.errors import TopicNotFound
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.wire import functions_pb2 as records
from magnetar.wire import pulsar_api_pb2 as pb
from pulsar.schema import AvroSchema as OfficialAvro
from pulsar.schema import Integer, Record, String
from pulsar.schema import JsonSchema as OfficialJson

from tests.support.eventually import until
from tests.support.exact import ExactSpec
from tests.support.function_topics import EARLIEST, no_backlog
from tests.support.instances import MakeSpec
from tests.support.servers import Server

Start = Callable[[InstanceSpec], Awaitable[Instance]]

CODE = """
from __future__ import annotations
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from magnetar import batch_function
from google.protobuf.timestamp_pb2 import Timestamp
from pulsar.schema import Integer, Record, String
from pulsar import Function

@dataclass
class Order:
    id: int
    item: str

@dataclass
class OrderWithText:
    id: int
    item: str
    text: str = ""

@dataclass
class Receipt:
    id: int
    text: str
    note: str | None = None

class Person(Record):
    number = Integer()
    text = String()

def receipt(order: Order) -> Receipt:
    return Receipt(order.id, order.item.upper())

class Older(Function):
    def process(self, input: Person, context) -> Person:
        return Person(number=input.number + 1, text=input.text)

def exact(order: Order) -> OrderWithText:
    return OrderWithText(order.id, order.item.upper())

def later(moment: Timestamp) -> Timestamp:
    return Timestamp(seconds=moment.seconds + 1)

def show(value):
    return repr(value)

def show_and_acknowledge(value, context):
    context.ack(context.get_message_id(), context.get_current_message_topic_name())
    return repr(value)

def each(value: dict) -> Iterator[Receipt]:
    yield from (Receipt(value["a"], text) for text in ("x", "y"))

async def soon(value: dict) -> Receipt:
    await asyncio.sleep(0)
    return Receipt(value["a"], "z")

@batch_function
def together(values: list[dict]) -> list[Receipt | None]:
    return [Receipt(value["a"], str(len(value))) for value in values]

def same(value):
    return value
"""


@dataclass
class Order:
    id: int
    item: str


@dataclass
class OrderWithText:
    id: int
    item: str
    text: str = ""


@dataclass
class Receipt:
    id: int
    text: str
    note: str | None = None


class Person(Record):  # type: ignore[misc]
    number = Integer()
    text = String()


@dataclass
class Old:
    a: Int32


@dataclass
class New:
    a: Int32
    b: str = "none"


@dataclass
class Newest:
    a: Int32
    c: Int32 = 0
    b: str = "none"


def source(topic: str, schema_type: str, **spec: Any) -> records.SourceSpec:
    made = records.SourceSpec(negativeAckRedeliveryDelayMs=60_000)
    made.inputSpecs[f"{topic}-in"].CopyFrom(records.ConsumerSpec(schemaType=schema_type, **spec))
    return made


@pytest.fixture
async def start(any_runtime: Runtime) -> AsyncIterator[Start]:
    instances: list[Instance] = []

    async def start(spec: InstanceSpec) -> Instance:
        instance = await any_runtime.start(spec)
        instances.append(instance)

        async def is_running() -> bool:
            return (await instance.status()).running

        await until(is_running)
        return instance

    yield start
    for instance in instances:
        await instance.stop(30)
        assert instance.leftover() == ""


async def give(client: AsyncClient, topic: str, schema: Schema[Any]) -> None:
    """Have a topic with a schema."""
    await (await client.create_producer(topic, schema=schema)).close()


async def has_schema(client: AsyncClient, topic: str) -> bool:
    try:
        await client.topic_schema(topic)
    except TopicNotFound:
        return False
    return True


async def schema_of(client: AsyncClient, topic: str) -> tuple[int, bytes]:
    info = await client.topic_schema(topic)
    return info.kind, info.definition


async def test_dataclasses_with_json_schemas(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    """Both topics get the schema, and what comes out names its version."""
    await start(make_spec(CODE, "user_code.receipt", source=source(topic, "JSON"), sink={"schemaType": "json"}))
    assert await schema_of(client, f"{topic}-in") == (pb.Schema.Json, JsonSchema(Order).info.definition)
    assert await schema_of(client, f"{topic}-out") == (pb.Schema.Json, JsonSchema(Receipt).info.definition)
    producer = await client.create_producer(f"{topic}-in", schema=JsonSchema(Order))
    consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST, schema=JsonSchema(Receipt))
    for number in range(3):
        await producer.send(Order(number, "tea"))
    for number in range(3):
        message = await consumer.receive(30)
        assert message.value == Receipt(number, "TEA")
        assert message.schema_version == bytes(8)


@pytest.mark.parametrize("schema_type", ["AVRO", "AUTO_CONSUME"])
async def test_avro_messages_are_read_by_the_version_that_wrote_them(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, schema_type: str
) -> None:
    """Those of several versions that are waiting are one unit of work."""
    old = await client.create_producer(f"{topic}-in", schema=AvroSchema(Old))
    new = await client.create_producer(f"{topic}-in", schema=AvroSchema(New))
    for number in range(0, 10, 2):
        await old.send(Old(number))
        await new.send(New(number + 1, "x"))
    await start(make_spec(CODE, "user_code.show", source=source(topic, schema_type)))
    await (await client.create_producer(f"{topic}-in", schema=AvroSchema(Newest))).send(Newest(10, 3))
    consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST)
    got = {(await consumer.receive(30)).data.decode() for _ in range(11)}
    expected = {f"{{'a': {n}}}" if n % 2 == 0 else f"{{'a': {n}, 'b': 'x'}}" for n in range(10)}
    assert got == expected | {"{'a': 10, 'c': 3, 'b': 'none'}"}


@pytest.mark.parametrize(
    ("any_runtime", "guarantee", "name"),
    [
        ("process", records.ATLEAST_ONCE, "show"),
        ("thread", records.ATMOST_ONCE, "show"),
        ("thread", records.MANUAL, "show_and_acknowledge"),
    ],
    indirect=["any_runtime"],
)
async def test_topics_of_a_pattern_have_schemas_of_their_own(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, guarantee: int, name: str
) -> None:
    """Each counts its versions from 0, also one that joins."""
    spec = records.ConsumerSpec(schemaType="AVRO", isRegexPattern=True)
    read = records.SourceSpec(inputSpecs={f"{topic}-in-.*": spec})
    await (await client.create_producer(f"{topic}-in-old", schema=AvroSchema(Old))).send(Old(1))
    await (await client.create_producer(f"{topic}-in-new", schema=AvroSchema(New))).send(New(2, "x"))
    await start(make_spec(CODE, f"user_code.{name}", source=read, processingGuarantees=guarantee))
    await (await client.create_producer(f"{topic}-in-newest", schema=AvroSchema(Newest))).send(Newest(3, 4))
    consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST)
    got = {(await consumer.receive(30)).data.decode() for _ in range(3)}
    assert got == {"{'a': 1}", "{'a': 2, 'b': 'x'}", "{'a': 3, 'c': 4, 'b': 'none'}"}
    for one in ("old", "new", "newest"):
        await no_backlog(server, f"{topic}-in-{one}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("each", {"0x", "0y", "1x", "1y"}), ("soon", {"0z", "1z"}), ("together", {"01", "12"})],
)
async def test_functions_of_other_kinds(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, name: str, expected: set[str]
) -> None:
    """Generators, coroutines and batch functions are given and return what others are."""
    for number, message in enumerate((Old(0), New(1, "x"))):
        producer = await client.create_producer(f"{topic}-in", schema=AvroSchema((Old, New)[number]))
        await producer.send(message)
    await start(make_spec(CODE, f"user_code.{name}", source=source(topic, "AVRO"), sink={"schemaType": "JSON"}))
    consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST, schema=JsonSchema(Receipt))
    received = [await consumer.receive(30) for _ in expected]
    assert {f"{one.value.id}{one.value.text}" for one in received if one.value} == expected
    assert {one.schema_version for one in received} == {bytes(8)}


async def test_dicts_are_written_by_the_output_topics_schema(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    await give(client, f"{topic}-out", AvroSchema(New))
    await give(client, f"{topic}-in", JsonSchema(New))
    instance = await start(make_spec(CODE, "user_code.same", source=source(topic, "JSON"), sink={"schemaType": "AVRO"}))
    producer = await client.create_producer(f"{topic}-in")
    for data in (b'{"a":1}', b'{"a":2,"b":"x"}', b'{"a":"no"}', b"[1]", b'{"a":NaN}', b'{"a":4}'):
        await producer.send(data)
    consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST, schema=AvroSchema(New))
    assert [(await consumer.receive(30)).value for _ in range(3)] == [New(1), New(2, "x"), New(4)]
    status = await instance.status()
    assert (status.numUserExceptions, status.numSystemExceptions) == (2, 1)
    texts = [one.exceptionString for one in status.latestUserExceptions]
    assert any("schema AVRO of New, field New.a: expected Avro type int, got 'no'" in text for text in texts), texts
    assert "NaN is not valid JSON" in status.latestSystemExceptions[0].exceptionString


async def test_protobuf_and_text(client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str) -> None:
    await start(make_spec(CODE, "user_code.later", source=source(topic, "PROTOBUF"), sink={"schemaType": "PROTOBUF"}))
    producer = await client.create_producer(f"{topic}-in", schema=ProtobufSchema(Timestamp))
    consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST, schema=ProtobufSchema(Timestamp))
    await producer.send(Timestamp(seconds=7))
    assert (await consumer.receive(30)).value == Timestamp(seconds=8)


async def test_exact_outputs_name_the_version_of_their_schema(
    client: AsyncClient, server: Server, start: Start, exact_spec: ExactSpec, topic: str
) -> None:
    """Also when the topic is made anew meanwhile, and counts its versions from 0 again."""
    await give(client, f"{topic}-out", JsonSchema(Order))
    await give(client, f"{topic}-out", JsonSchema(OrderWithText))
    producer = await client.create_producer(f"{topic}-in", schema=JsonSchema(Order))
    await producer.send(Order(1, "tea"))
    await start(
        exact_spec(CODE, className="user_code.exact", source=source(topic, "JSON"), sink={"schemaType": "JSON"})
    )
    for number, version in ((1, 1), (2, 0)):
        consumer = await client.subscribe(f"{topic}-out", "t", EARLIEST)
        message = await consumer.receive(30)
        assert message.data == b'{"id":%d,"item":"TEA","text":""}' % number
        assert int.from_bytes(message.schema_version, "big") == version
        await consumer.close()
        if number == 1:
            async with httpx.AsyncClient(timeout=60) as http:
                path = f"{topic}-out".replace("://", "/")
                answer = await http.delete(f"{server.web_url}/admin/v2/{path}", params={"force": "true"})
                assert answer.is_success, answer.text
            await until(partial(has_schema, client, f"{topic}-out"))
            await producer.send(Order(2, "tea"))


async def test_schema_that_does_not_fit_the_topic_keeps_the_instance_from_running(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str
) -> None:
    await give(client, f"{topic}-in", StringSchema())
    await give(client, f"{topic}-out", JsonSchema(Order))
    for class_name, read, sink, expected in (
        ("receipt", "JSON", {}, f"input topic {topic}-in: IncompatibleSchema: "),
        ("receipt", "", {"schemaType": "JSON"}, f"output topic {topic}-out: IncompatibleSchema: "),
        ("show", "AVRO", {}, f"{topic}-in has schema STRING, but the config says AVRO: set schemaType STRING"),
        ("same", "", {"topic": f"{topic}-new", "schemaType": "JSON"}, f"requires a schema on topic {topic}-new: "),
    ):
        spec = make_spec(CODE, f"user_code.{class_name}", source=source(topic, read), sink=sink)
        instance = await any_runtime.start(spec)
        reason = await instance.wait()
        assert expected in reason
        assert "Traceback" not in reason
    with pytest.raises(TopicNotFound):
        await client.topic_schema(f"{topic}-new")


@pytest.mark.parametrize(("schema_type", "official"), [("JSON", OfficialJson), ("AVRO", OfficialAvro)])
async def test_records_of_the_official_client(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, schema_type: str, official: Any
) -> None:
    """A function whose types are the official client's, between producers and consumers that are."""
    spec = make_spec(CODE, "user_code.Older", source=source(topic, schema_type), sink={"schemaType": schema_type})
    await start(spec)

    def talk() -> tuple[Any, int]:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        theirs = pulsar.Client(server.service_url, logger=logger, operation_timeout_seconds=30)
        try:
            producer = theirs.create_producer(f"{topic}-in", schema=official(Person))
            consumer = theirs.subscribe(
                f"{topic}-out", "t", schema=official(Person), initial_position=_pulsar.InitialPosition.Earliest
            )
            producer.send(Person(number=7, text="ada"))
            message = consumer.receive(30_000)
            return message.value(), message._message.int_schema_version()
        finally:
            theirs.close()

    value, version = await asyncio.to_thread(talk)
    assert (value.number, value.text, version) == (8, "ada", 0)
