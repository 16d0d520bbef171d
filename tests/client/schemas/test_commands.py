"""What producers and consumers with schemas say to a broker, byte for byte where that is not the same everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.client import (
    AsyncClient,
    AutoConsumeSchema,
    BytesSchema,
    ConsumerConfig,
    Int32Schema,
    ProducerConfig,
    Schema,
    StringSchema,
)
from magnetar.wire.frames import encode_frame
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandConnected, CommandProducerSuccess
from magnetar.wire.pulsar_api_pb2 import Schema as SchemaData

from tests.client.scripted import ScriptedBroker

TOPIC = "persistent://public/default/t"
VERSION = b"\x00" * 7 + b"\x05"


def created(command: BaseCommand, _: bytes) -> list[bytes]:
    answer = CommandProducerSuccess(
        request_id=command.producer.request_id,
        producer_name="p",
        last_sequence_id=-1,
        schema_version=VERSION,
        producer_ready=True,
    )
    return [encode_frame(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=answer))]


CONFIGS = [
    ProducerConfig(),
    ProducerConfig(compression="ZSTD"),
    ProducerConfig(batching=False),
    ProducerConfig(batching=False, empty_deletes=False),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
@pytest.mark.parametrize("schema", [StringSchema(), BytesSchema(), None], ids=str)
async def test_every_entry_has_the_version_that_the_broker_gave(
    config: ProducerConfig, schema: Schema[Any] | None
) -> None:
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url) as client:
        broker.answers[BaseCommand.PRODUCER] = created
        value = "x" if isinstance(schema, StringSchema) else b"x"
        if schema is None:
            plain = await client.create_producer(TOPIC, config)
            await plain.send(b"x")
            await plain.send(b"x", key="k")
            await plain.send_entry([b"x", b"x"])
        else:
            typed = await client.create_producer(TOPIC, config, schema=schema)
            await typed.send(value)
            await typed.send(value, key="k")
            await typed.producer.send_entry([b"x", b"x"])
        [asked] = broker.commands(BaseCommand.PRODUCER)
        is_told = isinstance(schema, StringSchema)
        assert asked.producer.HasField("schema") == is_told
        if is_told:
            expected = SchemaData(name="STRING", schema_data=b"", type=SchemaData.String)
            assert asked.producer.schema == expected
        sent = [payload for command, payload in broker.received if command.type == BaseCommand.SEND]
        metadata = [open_payload(payload)[0] for payload in sent]
        assert [one.schema_version for one in metadata] == [VERSION if is_told else b""] * 3


async def test_chunks_have_the_version_too() -> None:
    config = ProducerConfig(batching=False, chunking_enabled=True)
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url) as client:
        broker.answers[BaseCommand.PRODUCER] = created
        producer = await client.create_producer(TOPIC, config, schema=StringSchema())
        await producer.send("x" * 6_000_000)
        sent = [open_payload(payload)[0] for command, payload in broker.received if command.type == BaseCommand.SEND]
        assert [one.schema_version for one in sent] == [VERSION, VERSION]


@pytest.mark.parametrize(
    ("schema", "protocol", "said"),
    [
        (Int32Schema(), 20, SchemaData.Int32),
        (AutoConsumeSchema(), 21, SchemaData.AutoConsume),
        (AutoConsumeSchema(), 20, None),
        (BytesSchema(), 21, None),
    ],
)
async def test_broker_is_told_the_type_that_it_knows(schema: Schema[Any], protocol: int, said: int | None) -> None:
    connected = CommandConnected(server_version="scripted", protocol_version=protocol, max_message_size=5_000_000)
    greeting = encode_frame(BaseCommand(type=BaseCommand.CONNECTED, connected=connected))
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url) as client:
        broker.answers[BaseCommand.CONNECT] = lambda _c, _p: [greeting]
        await client.subscribe(TOPIC, "s", ConsumerConfig(initial_position="Earliest"), schema=schema)
        [asked] = broker.commands(BaseCommand.SUBSCRIBE)
        assert (asked.subscribe.schema.type if asked.subscribe.HasField("schema") else None) == said
