"""Producers and consumers with schemas, through a broker, and with the official Python client on the other side."""

from __future__ import annotations

import asyncio
import queue
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pulsar
import pulsar.schema as official
import pytest
from magnetar.client import (
    EARLIEST,
    AsyncClient,
    AutoConsumeSchema,
    AutoProduceBytesSchema,
    AvroSchema,
    BytesSchema,
    Client,
    ConsumerConfig,
    ConsumerDeadLetterPolicy,
    InvalidConfig,
    JsonSchema,
    KeyValue,
    KeyValueSchema,
    Message,
    ProducerConfig,
    ProtobufNativeSchema,
    ProtobufSchema,
    Schema,
    SchemaSerializationError,
    StringSchema,
    TopicNotFound,
)
from magnetar.errors import IncompatibleSchema
from magnetar.wire.functions_pb2 import FunctionDetails

from tests.client.clusters import Cluster
from tests.client.proxy import Proxy
from tests.client.schemas.records import Item, Order, TheirOrder, their_order
from tests.client.schemas.test_primitives import WRITTEN_BY_JAVA
from tests.client.schemas.test_records import ORDER

FROM_THE_START = ConsumerConfig(initial_position="Earliest")
ITEMS = [Item("a", 1), Item("b", 2), Item("c", 3)]
KEYED: list[Schema[Any]] = [
    KeyValueSchema(StringSchema(), AvroSchema(Item)),
    KeyValueSchema(StringSchema(), AvroSchema(Item), "SEPARATED"),
]
ROUND: list[tuple[Schema[Any], list[Any]]] = [
    (BytesSchema(), [b"a", b"\xff"]),
    (StringSchema(), ["a", "é"]),
    (JsonSchema(Item), ITEMS),
    (AvroSchema(Item), ITEMS),
    (ProtobufNativeSchema(FunctionDetails), [FunctionDetails(tenant="t"), FunctionDetails()]),
    (ProtobufSchema(FunctionDetails), [FunctionDetails(tenant="t")]),
    *((schema, [KeyValue("k", ITEMS[0]), KeyValue("l", None), KeyValue(None, ITEMS[1])]) for schema in KEYED),
]


@dataclass
class ItemBefore:
    name: str


@dataclass
class ItemAfter:
    name: str
    count: int = 1
    color: str | None = None


@pytest.fixture
def blocking(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.service_url) as it:
        yield it


@pytest.fixture
def theirs(cluster: Cluster) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize(("schema", "values"), [pytest.param(*row, id=str(row[0])) for row in ROUND])
async def test_values_go_there_and_back(
    client: AsyncClient, topic: str, schema: Schema[Any], values: list[Any], batching: bool
) -> None:
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=schema)
    producer = await client.create_producer(topic, ProducerConfig(batching=batching), schema=schema)
    await asyncio.gather(*map(producer.send_nowait, values), producer.flush())
    for value in values:
        message = await consumer.receive(20)
        assert message.value == value
        assert message.schema_version == (b"" if isinstance(schema, BytesSchema) else b"\x00" * 8)
        await consumer.ack(message)
    assert await client.partitions(topic) == [topic]


async def test_every_single_value_has_a_type_of_its_own_on_the_broker(client: AsyncClient, topic: str) -> None:
    for number, (schema, value, _) in enumerate(WRITTEN_BY_JAVA):
        if isinstance(schema, BytesSchema):
            continue
        consumer = await client.subscribe(f"{topic}-{number}", "s", FROM_THE_START, schema=schema)
        producer = await client.create_producer(f"{topic}-{number}", schema=schema)
        await producer.send(value)
        assert (await consumer.receive(20)).value == value
        assert (await client.topic_schema(f"{topic}-{number}")).type_name == schema.info.type_name
        await producer.close()
        await consumer.close()


def test_blocking_client_sends_and_receives_values(blocking: Client, topic: str) -> None:
    schema = AvroSchema(Item)
    with (
        blocking.create_producer(topic, schema=schema) as producer,
        blocking.subscribe(topic, "s", FROM_THE_START, schema=schema) as consumer,
    ):
        producer.send(ITEMS[0], key="k", properties={"p": "1"})
        for item in ITEMS[1:]:
            producer.send_async(item)
        producer.flush()
        messages = [consumer.receive(20_000) for _ in ITEMS]
        assert [message.value for message in messages] == ITEMS
        assert (messages[0].key, messages[0].properties) == ("k", {"p": "1"})
        consumer.acknowledge_all(messages)
        with pytest.raises(SchemaSerializationError, match="schema AVRO of Item: expected an instance of Item, got 'x"):
            producer.send("x")
        with pytest.raises(SchemaSerializationError, match="schema AVRO of Item: expected an instance of Item, got 5"):
            producer.send_async(5)
        reader = blocking.create_reader(topic, EARLIEST, schema=schema)
        assert [reader.read_next(20_000).value for _ in ITEMS] == ITEMS
        assert not reader.has_message_available()
        assert blocking.get_schema_info(topic).definition == schema.info.definition


def test_blocking_listener_and_table_view_have_values(blocking: Client, topic: str) -> None:
    schema = JsonSchema(Item)
    heard: queue.Queue[Item] = queue.Queue()
    blocking.subscribe(topic, "s", message_listener=lambda _, message: heard.put(message.value), schema=schema)
    with blocking.create_producer(topic, schema=schema) as producer:
        for item in ITEMS:
            producer.send(item, key=item.name)
        assert [heard.get(timeout=20) for _ in ITEMS] == ITEMS
        with blocking.create_table_view(topic, schema=schema) as view:
            assert view.snapshot() == {item.name: item for item in ITEMS}


async def test_value_that_cannot_be_decoded_is_no_part_of_a_table(client: AsyncClient, topic: str) -> None:
    schema = JsonSchema(Item)
    typed = await client.create_producer(topic, schema=schema)
    await typed.send(ITEMS[0], key="a")
    raw = await client.create_producer(topic)
    await raw.send(b"{", key="a")
    await raw.send(b"{", key="b")
    view = await client.create_table_view(topic, schema=schema)
    assert view.snapshot() == {"a": ITEMS[0]}


async def test_topics_of_a_pattern_have_values(client: AsyncClient, topic: str) -> None:
    for number in range(2):
        producer = await client.create_producer(f"{topic}-{number}", schema=AvroSchema(Item))
        await producer.send(ITEMS[number])
    consumer = await client.subscribe(re.compile(f"{topic}-.*"), "s", FROM_THE_START, schema=AvroSchema(Item))
    found = [(await consumer.receive(20)).value for _ in range(2)]
    assert sorted(found, key=str) == ITEMS[:2]


async def test_listener_reader_and_table_view_have_values(client: AsyncClient, topic: str) -> None:
    schema = AvroSchema(Item)
    producer = await client.create_producer(topic, schema=schema)
    heard: asyncio.Queue[Item] = asyncio.Queue()

    async def listen(_: Any, message: Message) -> None:
        heard.put_nowait(message.value)

    await client.subscribe(topic, "s", message_listener=listen, schema=schema)
    for item in ITEMS:
        await producer.send(item, key=item.name)
    assert [await asyncio.wait_for(heard.get(), 20) for _ in ITEMS] == ITEMS
    reader = await client.create_reader(topic, EARLIEST, schema=schema)
    assert [(await reader.read_next(20)).value for _ in ITEMS] == ITEMS
    view = await client.create_table_view(topic, schema=schema)
    assert view.snapshot() == {item.name: item for item in ITEMS}
    await producer.send(None, key="b")
    await view.refresh()
    assert view.get("a") == ITEMS[0]
    assert "b" not in view


async def test_partitions_share_a_schema(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    cluster.create_partitioned(topic, 3)
    schema = KeyValueSchema(StringSchema(), AvroSchema(Item), "SEPARATED")
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=schema)
    producer = await client.create_producer(topic, schema=schema)
    sent = [KeyValue(item.name * 5, item) for item in ITEMS * 10]
    await asyncio.gather(*map(producer.send_nowait, sent), producer.flush())
    messages = [await consumer.receive(20) for _ in sent]
    assert sorted(message.value for message in messages if message.value) == sorted(sent)
    assert len({message.topic for message in messages}) > 1
    assert {message.schema_version for message in messages} == {b"\x00" * 8}


async def test_consumer_reads_what_older_and_newer_producers_wrote(client: AsyncClient, topic: str) -> None:
    old = await client.create_producer(topic, schema=AvroSchema(ItemBefore))
    await old.send(ItemBefore("old"))
    new = await client.create_producer(topic, schema=AvroSchema(ItemAfter))
    await new.send(ItemAfter("new", 2, "red"))
    await old.send(ItemBefore("old again"))
    latest = await client.subscribe(topic, "new", FROM_THE_START, schema=AvroSchema(ItemAfter))
    read = [await latest.receive(20) for _ in range(3)]
    assert [message.value for message in read] == [ItemAfter("old"), ItemAfter("new", 2, "red"), ItemAfter("old again")]
    assert [int.from_bytes(message.schema_version, "big") for message in read] == [0, 1, 0]
    before = await client.subscribe(topic, "old", FROM_THE_START, schema=AvroSchema(ItemBefore))
    assert [(await before.receive(20)).value.name for _ in range(3)] == ["old", "new", "old again"]


async def test_consumer_of_any_schema_decodes_by_that_of_each_message(client: AsyncClient, topic: str) -> None:
    old = await client.create_producer(topic, schema=AvroSchema(ItemBefore))
    await old.send(ItemBefore("old"))
    new = await client.create_producer(topic, schema=AvroSchema(ItemAfter))
    await new.send(ItemAfter("new"))
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=AutoConsumeSchema())
    assert (await consumer.receive(20)).value == {"name": "old"}
    assert (await consumer.receive(20)).value == {"name": "new", "count": 1, "color": None}
    without = await client.subscribe(f"{topic}-bytes", "s", FROM_THE_START, schema=AutoConsumeSchema())
    await (await client.create_producer(f"{topic}-bytes")).send(b"\xff")
    assert (await without.receive(20)).value == b"\xff"


@pytest.mark.parametrize("schema", KEYED, ids=str)
async def test_consumer_of_any_schema_decodes_keys_too(client: AsyncClient, topic: str, schema: Schema[Any]) -> None:
    producer = await client.create_producer(topic, schema=schema)
    await producer.send(KeyValue("k", Item("x", 5)))
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=AutoConsumeSchema())
    assert (await consumer.receive(20)).value == ("k", {"name": "x", "count": 5})


async def test_producer_of_bytes_checks_them_by_the_topics_schema(client: AsyncClient, topic: str) -> None:
    await (await client.create_producer(topic, schema=AvroSchema(Item))).send(ITEMS[0])
    producer = await client.create_producer(topic, schema=AutoProduceBytesSchema())
    await producer.send(AvroSchema(Item).encode(ITEMS[1]))
    with pytest.raises(SchemaSerializationError, match="schema AVRO of Item: cannot decode 1 bytes"):
        await producer.send(b"\xff")
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=AvroSchema(Item))
    messages = [await consumer.receive(20) for _ in range(2)]
    assert [message.value for message in messages] == ITEMS[:2]
    assert {message.schema_version for message in messages} == {b"\x00" * 8}
    free = await client.create_producer(f"{topic}-free", schema=AutoProduceBytesSchema())
    await free.send(b"\xff")


async def test_incompatible_schema_is_refused_by_the_broker(client: AsyncClient, topic: str) -> None:
    @dataclass
    class Other:
        name: int

    await client.create_producer(topic, schema=AvroSchema(Item))
    for schema in (StringSchema(), AvroSchema(Other)):
        with pytest.raises(IncompatibleSchema):
            await client.create_producer(topic, schema=schema)
        with pytest.raises(IncompatibleSchema):
            await client.subscribe(topic, "s", schema=schema)
        with pytest.raises(IncompatibleSchema):
            await client.create_reader(topic, EARLIEST, schema=schema)
    with pytest.raises(TopicNotFound):
        await client.topic_schema(topic, b"\x00" * 7 + b"\x09")


async def test_message_that_cannot_be_decoded_stops_nobody(client: AsyncClient, topic: str) -> None:
    schema = JsonSchema(Item)
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=schema)
    typed = await client.create_producer(topic, schema=schema)
    raw = await client.create_producer(topic)
    await typed.send(ITEMS[0])
    await raw.send(b"{")
    await typed.send(ITEMS[1])
    first, bad, last = [await consumer.receive(20) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(SchemaSerializationError, match="schema JSON of Item: 1 bytes are not valid JSON"):
            _ = bad.value
    assert (first.value, bad.data, last.value) == (ITEMS[0], b"{", ITEMS[1])
    for message in (first, bad, last):
        await consumer.ack(message)


@pytest.mark.parametrize("of_values", [True, False])
async def test_letters_keep_the_schema_of_their_message(client: AsyncClient, topic: str, of_values: bool) -> None:
    dead, retry = f"{topic}-dead", f"{topic}-retry"
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=dead, retry_letter_topic=retry)
    config = ConsumerConfig(type="Shared", initial_position="Earliest", retry_enable=True, dead_letter_policy=policy)
    # The topic of letters has another version of the schema before.
    await client.create_producer(dead, schema=AvroSchema(ItemAfter))
    await (await client.create_producer(topic, schema=AvroSchema(ItemBefore))).send(ItemBefore("old"))
    await (await client.create_producer(topic, schema=AvroSchema(ItemAfter))).send(ItemAfter("new", 2, "red"))
    consumer = (
        await client.subscribe(topic, "s", config, schema=AvroSchema(ItemAfter))
        if of_values
        else await client.subscribe(topic, "s", config)
    )
    for _ in range(4):  # each from its topic, and from that of retry letters
        await consumer.reconsume_later(await consumer.receive(20))
    letters = await client.subscribe(dead, "s", FROM_THE_START, schema=AvroSchema(ItemAfter))
    read = [await letters.receive(20) for _ in range(2)]
    assert {message.value.name: message.value for message in read} == {
        "old": ItemAfter("old"),
        "new": ItemAfter("new", 2, "red"),
    }
    assert {int.from_bytes(message.schema_version, "big") for message in read} == {0, 1}


async def test_topic_that_is_created_again_counts_its_schemas_anew(
    cluster: Cluster, client: AsyncClient, topic: str
) -> None:
    first = await client.create_producer(topic, schema=AvroSchema(ItemBefore))
    await first.send(ItemBefore("first life"))
    reader = await client.create_reader(topic, EARLIEST, schema=AutoConsumeSchema())
    assert (await reader.read_next(20)).value == {"name": "first life"}
    await reader.close()
    await first.close()
    cluster.delete(topic)
    second = await client.create_producer(topic, schema=JsonSchema(Item))
    await second.send(ITEMS[0])
    reader = await client.create_reader(topic, EARLIEST, schema=AutoConsumeSchema())
    assert (await reader.read_next(20)).value == {"name": "a", "count": 1}


async def test_letter_whose_topic_has_another_schema_goes_without(client: AsyncClient, topic: str) -> None:
    config = ConsumerConfig(
        type="Shared",
        initial_position="Earliest",
        retry_enable=True,
        dead_letter_policy=ConsumerDeadLetterPolicy(retry_letter_topic=f"{topic}-retry"),
    )
    await client.create_producer(f"{topic}-retry", schema=StringSchema())
    await (await client.create_producer(topic, schema=JsonSchema(Item))).send(ITEMS[0])
    consumer = await client.subscribe(topic, "s", config)
    await consumer.reconsume_later(await consumer.receive(20))
    letter = await consumer.receive(20)
    assert (letter.data, letter.schema_version) == (JsonSchema(Item).encode(ITEMS[0]), b"")


async def test_no_value_is_none(client: AsyncClient, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=StringSchema())
    for batching in (True, False):
        producer = await client.create_producer(topic, ProducerConfig(batching=batching), schema=StringSchema())
        await producer.send(None, key="k")
        await producer.send("")
        assert [(await consumer.receive(20)).value for _ in range(2)] == [None, ""]
        await producer.close()


async def test_version_stays_with_messages_over_a_reconnection(proxy: Proxy, proxied: AsyncClient, topic: str) -> None:
    producer = await proxied.create_producer(topic, schema=AvroSchema(Item))
    consumer = await proxied.subscribe(topic, "s", FROM_THE_START, schema=AutoConsumeSchema())
    await producer.send(ITEMS[0])
    proxy.cut()
    await producer.send(ITEMS[1])
    names = []
    while "b" not in names:  # what was not acknowledged before the cut may come twice
        message = await consumer.receive(20)
        assert message.schema_version == b"\x00" * 8
        names.append(message.value["name"])
    assert names[0] == "a"


async def test_seek_forgets_the_message_that_waits_for_its_schema(client: AsyncClient, topic: str) -> None:
    producer = await client.create_producer(topic, schema=AvroSchema(Item))
    for item in ITEMS:
        await producer.send(item)
    consumer = await client.subscribe(topic, "s", FROM_THE_START, schema=AvroSchema(Item))
    await consumer.consumer.arrival()
    assert consumer.poll() is None  # the schema is asked for now
    await consumer.seek(EARLIEST)
    assert [(await consumer.receive(20)).value for _ in ITEMS] == ITEMS
    await producer.send(Item("d"))
    assert (await consumer.receive(20)).value == Item("d")


async def test_what_is_no_schema_is_refused(client: AsyncClient, topic: str) -> None:
    wrong: Any
    for wrong, why in (
        (StringSchema, r"invalid schema .*: use StringSchema\(...\)"),
        ("string", "invalid schema 'string': use"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            await client.create_producer(topic, schema=wrong)
        with pytest.raises(InvalidConfig, match=why):
            await client.subscribe(topic, "s", schema=wrong)
        with pytest.raises(InvalidConfig, match=why):
            await client.create_reader(topic, EARLIEST, schema=wrong)


# -- with the official client -----------------------------------------------------------------------------------------

PAIRS: list[tuple[Schema[Any], Any, Any, Any]] = [
    (StringSchema(), official.StringSchema(), "é", "é"),
    (JsonSchema(Order), official.JsonSchema(TheirOrder), ORDER, their_order(ORDER)),
    (AvroSchema(Order), official.AvroSchema(TheirOrder), ORDER, their_order(ORDER)),
    (
        ProtobufNativeSchema(FunctionDetails),
        official.ProtobufNativeSchema(FunctionDetails),
        FunctionDetails(name="f"),
        FunctionDetails(name="f"),
    ),
]


@pytest.mark.parametrize(
    ("ours", "their", "value", "their_value"), [pytest.param(*row, id=str(row[0])) for row in PAIRS]
)
def test_official_client_reads_ours_and_the_other_way_round(
    blocking: Client, theirs: pulsar.Client, topic: str, ours: Schema[Any], their: Any, value: Any, their_value: Any
) -> None:
    consumer = blocking.subscribe(topic, "ours", FROM_THE_START, schema=ours)
    their_consumer = theirs.subscribe(topic, "theirs", schema=their, initial_position=pulsar.InitialPosition.Earliest)
    blocking.create_producer(topic, schema=ours).send(value)
    theirs.create_producer(topic, schema=their).send(their_value)
    for _ in range(2):
        message = consumer.receive(20_000)
        assert message.value == value
        assert their_consumer.receive(20_000).value() == their_value
        if not isinstance(ours, StringSchema):  # the official client defines text as "null", Java and ours not at all
            assert message.schema_version == b"\x00" * 8
    if not isinstance(ours, StringSchema):
        assert blocking.get_schema_info(topic).definition == ours.info.definition
