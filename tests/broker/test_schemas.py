"""Schemas on the wire: who is let in, under which version, and what is left after restarts, deletions and races."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.config import SCHEMA_STRATEGIES
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.schemas.model import from_wire, version_bytes
from magnetar.broker.service import BrokerService
from magnetar.wire import pulsar_api_pb2 as pb
from magnetar.wire.pulsar_api_pb2 import BaseCommand, ServerError
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .raw import Raw

NAMESPACE = "public/wire"
NAME = parse_topic_name(f"persistent://{NAMESPACE}/schemas")
TOPIC = str(NAME)
NONE, STRING, AVRO, INT64, AUTO_CONSUME, EXTERNAL = 0, 1, 4, 9, 21, 22
IncompatibleSchema = ServerError.IncompatibleSchema
WITH_A: list[dict[str, Any]] = [{"name": "a", "type": "int"}]
WITH_B = [*WITH_A, {"name": "b", "type": ["null", "int"], "default": None}]
WITH_C = [*WITH_A, {"name": "c", "type": "int"}]


def avro(fields: list[dict[str, Any]]) -> pb.Schema:
    data = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    return pb.Schema(name="R", schema_data=data, type=AVRO)  # type: ignore[arg-type]


def plain(type_: int, data: bytes = b"") -> pb.Schema:
    return pb.Schema(name="", schema_data=data, type=type_)  # type: ignore[arg-type]


class Talk:
    """One connection, whose requests are numbered."""

    def __init__(self, raw: Raw):
        self.raw = raw
        self.last = 0

    async def ask(self, kind: str, **fields: Any) -> BaseCommand:
        self.last += 1
        self.raw.send(kind, request_id=self.last, **fields)
        while True:
            command = (await self.raw.receive()).command
            if command.type not in (BaseCommand.ACTIVE_CONSUMER_CHANGE, BaseCommand.CLOSE_PRODUCER):
                return command

    async def produce(self, schema: pb.Schema | None = None, topic: str = TOPIC) -> bytes | pb.CommandError:
        """The version that the producer was told, or the error."""
        more = {} if schema is None else {"schema": schema}
        answer = await self.ask("PRODUCER", topic=topic, producer_id=self.last + 1, **more)
        return answer.error if answer.type == BaseCommand.ERROR else answer.producer_success.schema_version

    async def subscribe(self, schema: pb.Schema | None = None, topic: str = TOPIC) -> pb.CommandError | None:
        more = {} if schema is None else {"schema": schema}
        answer = await self.ask(
            "SUBSCRIBE", topic=topic, subscription=f"s{self.last}", subType=0, consumer_id=self.last, **more
        )
        return answer.error if answer.type == BaseCommand.ERROR else None

    async def schema(self, topic: str = TOPIC, **fields: Any) -> pb.CommandGetSchemaResponse:
        return (await self.ask("GET_SCHEMA", topic=topic, **fields)).getSchemaResponse

    async def get_or_create(self, schema: pb.Schema, topic: str = TOPIC) -> pb.CommandGetOrCreateSchemaResponse:
        answer = await self.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema)
        return answer.getOrCreateSchemaResponse


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
async def talk(broker: BrokerService) -> AsyncIterator[Talk]:
    raw = await Raw.connected(broker.port)
    yield Talk(raw)
    await raw.close()


def refused(answer: object, text: str) -> bool:
    assert isinstance(answer, pb.CommandError), answer
    assert answer.error == IncompatibleSchema
    assert text in answer.message
    return len(answer.message.splitlines()) == 1


async def set_policy(broker: BrokerService, **fields: Any) -> None:
    await broker.namespaces.change_policies(NAMESPACE, lambda policies: policies | fields)


def test_strategies_of_the_configuration_are_those_of_the_rules() -> None:
    assert set(SCHEMA_STRATEGIES) == {strategy.value for strategy in Strategy} - {"UNDEFINED"}


async def test_incompatible_clients_are_told_the_field(talk: Talk) -> None:
    assert await talk.produce(avro(WITH_A)) == version_bytes(0)
    assert await talk.produce(avro(WITH_B)) == version_bytes(1)
    assert await talk.produce(avro(WITH_A)) == version_bytes(0)

    assert refused(await talk.produce(avro(WITH_C)), "strategy FULL: Unable to read schema: version 1, using the new")
    assert refused(await talk.produce(avro(WITH_C)), "field c has no default value")
    assert refused(await talk.subscribe(avro(WITH_C)), "strategy BACKWARD: Unable to read schema: version 1")
    assert refused(await talk.produce(plain(STRING)), "exists schema type AVRO, new schema type STRING")
    assert refused(await talk.produce(plain(AVRO, b"{")), "Invalid schema definition data for AVRO schema")
    assert refused(await talk.produce(plain(AUTO_CONSUME)), "client-side schema type")
    assert refused(await talk.produce(plain(EXTERNAL)), "EXTERNAL is not supported")
    assert await talk.subscribe(avro(WITH_A)) is None
    assert await talk.subscribe(plain(AUTO_CONSUME)) is None
    assert await talk.produce() == b""


async def test_a_refused_consumer_leaves_no_subscription(talk: Talk, broker: BrokerService) -> None:
    await talk.produce(avro(WITH_A))

    assert refused(await talk.subscribe(plain(STRING)), "exists schema type AVRO")

    assert not broker.topics[TOPIC].subscriptions


async def test_get_schema_says_what_there_is(talk: Talk) -> None:
    await talk.produce(avro(WITH_A))
    await talk.produce(avro(WITH_B))

    latest = await talk.schema()
    assert (latest.schema.name, latest.schema_version) == (f"{NAMESPACE}/schemas", version_bytes(1))
    assert latest.schema.schema_data == avro(WITH_B).schema_data
    assert (await talk.schema(schema_version=version_bytes(0))).schema.schema_data == avro(WITH_A).schema_data
    for number in (2, -1, -(1 << 63)):
        absent = await talk.schema(schema_version=version_bytes(number))
        assert absent.error_code == ServerError.TopicNotFound
    assert (await talk.schema(schema_version=b"")).error_code == IncompatibleSchema


async def test_partitions_share_their_schemas(talk: Talk, broker: BrokerService) -> None:
    await broker.namespaces.create_partitioned_topic(NAME, 2)

    first = await talk.produce(avro(WITH_A), f"{TOPIC}-partition-0")
    second = await talk.produce(avro(WITH_A), f"{TOPIC}-partition-1")

    assert first == second == version_bytes(0)
    assert refused(await talk.produce(plain(STRING), f"{TOPIC}-partition-1"), "exists schema type AVRO")
    assert (await talk.schema(f"{TOPIC}-partition-1")).schema.name == f"{NAMESPACE}/schemas"

    await broker.delete_topic(NAME.partition_name(0), force=True)
    assert (await talk.schema()).schema.type == AVRO


async def test_get_or_create_adds_to_a_topic_that_exists(talk: Talk) -> None:
    absent = await talk.get_or_create(avro(WITH_A))
    assert absent.error_code == ServerError.TopicNotFound
    await talk.produce()

    assert (await talk.get_or_create(avro(WITH_A))).schema_version == version_bytes(0)
    assert (await talk.get_or_create(avro(WITH_B))).schema_version == version_bytes(1)
    assert (await talk.get_or_create(plain(NONE))).schema_version == b""
    wrong = await talk.get_or_create(avro(WITH_C))
    assert (wrong.error_code, "field c" in wrong.error_message) == (IncompatibleSchema, True)


async def test_consumer_gives_its_schema_to_a_topic_that_nobody_uses(talk: Talk) -> None:
    assert await talk.subscribe(plain(AUTO_CONSUME)) is None
    assert await talk.subscribe(avro(WITH_A)) is None

    assert (await talk.schema()).schema_version == version_bytes(0)


@pytest.mark.parametrize("use", ["producer", "consumer", "reader", "data"])
async def test_consumer_with_a_schema_is_refused_where_data_has_none(
    use: str, talk: Talk, broker: BrokerService
) -> None:
    if use == "consumer":
        assert await talk.subscribe() is None
    elif use == "reader":
        await talk.ask("SUBSCRIBE", topic=TOPIC, subscription="r", subType=0, consumer_id=99, durable=False)
    else:
        assert await talk.produce() == b""
    if use == "data":
        talk.raw.send_message(b"x", producer_id=talk.last)
        assert (await talk.raw.receive()).command.type == BaseCommand.SEND_RECEIPT
        await talk.ask("CLOSE_PRODUCER", producer_id=talk.last)

    text = "Failed to add schema to an active topic with empty(BYTES) schema: new schema type AVRO"
    assert refused(await talk.subscribe(avro(WITH_A)), text)
    assert (await talk.schema()).error_code == ServerError.TopicNotFound
    assert await talk.produce(avro(WITH_A)) == version_bytes(0)


async def test_enforced_validation_refuses_producers_without_a_schema(talk: Talk, broker: BrokerService) -> None:
    await set_policy(broker, schema_validation_enforced=True)
    assert await talk.produce() == b""
    assert await talk.produce(plain(STRING)) == version_bytes(0)

    assert refused(await talk.produce(), "Producers cannot connect or send message without a schema")
    assert await talk.subscribe() is None

    await broker.namespaces.change_topic_policies(NAME, lambda _: {"schema_validation_enforced": False})
    assert await talk.produce() == b""


async def test_without_automatic_updates_only_known_schemas_are_taken(talk: Talk, broker: BrokerService) -> None:
    assert await talk.produce(avro(WITH_A)) == version_bytes(0)
    await set_policy(broker, is_allow_auto_update_schema=False)

    assert await talk.produce(avro(WITH_A)) == version_bytes(0)
    assert await talk.subscribe(avro(WITH_A)) is None
    text = "Schema not found and schema auto updating is disabled."
    assert refused(await talk.produce(avro(WITH_B)), text)
    assert refused(await talk.subscribe(plain(STRING), f"{TOPIC}-idle"), text)
    assert (await talk.get_or_create(avro(WITH_B))).error_message == text


async def test_strategy_of_topic_goes_before_those_of_namespace_and_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, schema_strategy="ALWAYS_INCOMPATIBLE") as broker:
        raw = await Raw.connected(broker.port)
        talk = Talk(raw)
        await talk.produce(avro(WITH_A))
        assert refused(await talk.produce(avro(WITH_B)), "strategy ALWAYS_INCOMPATIBLE")

        await set_policy(broker, schema_auto_update_compatibility_strategy="Backward")
        assert refused(await talk.produce(avro(WITH_C)), "strategy BACKWARD:")
        await set_policy(broker, schema_compatibility_strategy="FORWARD")
        assert await talk.produce(avro(WITH_C)) == version_bytes(1)
        await broker.namespaces.change_topic_policies(
            NAME, lambda _: {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"}
        )
        assert await talk.produce(plain(INT64)) == version_bytes(2)
        assert await talk.subscribe(plain(STRING)) is None
        await raw.close()


async def test_versions_survive_a_restart_and_unloading(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        talk = Talk(raw)
        await talk.produce(avro(WITH_A))
        await talk.produce(avro(WITH_B))
        await broker.unload_topic(NAME)
        await raw.close()
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        talk = Talk(raw)
        assert (await talk.schema()).schema_version == version_bytes(1)
        assert await talk.produce(avro(WITH_B)) == version_bytes(1)
        assert refused(await talk.produce(avro(WITH_C)), "field c")
        await raw.close()


async def test_a_new_topic_of_a_deleted_name_begins_without_schemas(talk: Talk, broker: BrokerService) -> None:
    assert await talk.produce(avro(WITH_A)) == version_bytes(0)
    assert await talk.produce(avro(WITH_B)) == version_bytes(1)

    await broker.delete_topic(NAME, force=True)

    assert (await talk.schema()).error_code == ServerError.TopicNotFound
    assert await talk.produce(plain(STRING)) == version_bytes(0)


@pytest.mark.parametrize("deleted", ["persistent", "non-persistent"])
async def test_schemas_stay_as_long_as_one_topic_of_the_name(deleted: str, talk: Talk, broker: BrokerService) -> None:
    names = {domain: parse_topic_name(f"{domain}://{NAMESPACE}/schemas") for domain in ("persistent", "non-persistent")}
    for name in names.values():
        assert await talk.produce(avro(WITH_A), str(name)) == version_bytes(0)

    await broker.delete_topic(names.pop(deleted), force=True)
    assert (await talk.schema()).schema_version == version_bytes(0)

    for name in names.values():
        await broker.delete_topic(name, force=True)
    assert (await talk.schema()).error_code == ServerError.TopicNotFound


async def test_non_persistent_topics_have_schemas(talk: Talk) -> None:
    topic = f"non-persistent://{NAMESPACE}/schemas"
    assert await talk.subscribe(avro(WITH_A), topic) is None
    assert await talk.produce(avro(WITH_B), topic) == version_bytes(1)
    assert refused(await talk.produce(avro(WITH_C), topic), "field c")
    assert await talk.produce(None, f"{topic}-used") == b""
    assert refused(await talk.subscribe(avro(WITH_A), f"{topic}-used"), "Failed to add schema to an active topic")


@pytest.mark.parametrize("local", [".", "..", "%", "\u00e9 \u2028", "x" * 900])
async def test_any_name_may_be_asked_for(local: str, talk: Talk) -> None:
    assert (await talk.schema(f"persistent://{NAMESPACE}/{local}")).error_code == ServerError.TopicNotFound


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 22), st.binary(max_size=60), st.dictionaries(
    st.sampled_from(["key.schema.type", "value.schema.type", "x"]), st.text(max_size=5)
))  # fmt: skip
def test_any_schema_is_answered(type_: int, data: bytes, properties: dict[str, str]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with running_broker(Path(directory)) as broker:
                raw = await Raw.connected(broker.port)
                talk = Talk(raw)
                pairs = [pb.KeyValue(key=key, value=value) for key, value in properties.items()]
                schema = pb.Schema(name="", schema_data=data, type=type_, properties=pairs)  # type: ignore[arg-type]
                answers = [await talk.subscribe(schema), await talk.produce(schema)]
                assert all(not isinstance(one, pb.CommandError) or one.error == IncompatibleSchema for one in answers)
                if isinstance(answers[1], bytes):
                    held = from_wire((await talk.schema()).schema, 0)
                    assert (held.data, int(held.type), held.properties) == (data, type_, properties)
                await raw.close()

    asyncio.run(run())


async def test_producers_at_once_create_one_version(broker: BrokerService) -> None:
    raws = [await Raw.connected(broker.port) for _ in range(8)]

    versions = await asyncio.gather(*(Talk(raw).produce(avro(WITH_A)) for raw in raws))

    assert versions == [version_bytes(0)] * 8
    for raw in raws:
        await raw.close()


async def test_schemas_are_not_added_to_a_topic_that_is_being_deleted(broker: BrokerService) -> None:
    raws = [await Raw.connected(broker.port) for _ in range(12)]
    talks = [Talk(raw) for raw in raws]
    await talks[0].produce(avro(WITH_A))

    deleting = asyncio.create_task(broker.delete_topic(NAME, force=True))
    answers = await asyncio.gather(*(one.produce(plain(STRING)) for one in talks[1:]))
    await deleting

    # Each came to the old topic, which refuses it, or to a new one, which has a schema if any producer has.
    kinds = {answer if isinstance(answer, bytes) else int(answer.error) for answer in answers}
    assert kinds <= {version_bytes(0), int(ServerError.ServiceNotReady), int(IncompatibleSchema)}
    if TOPIC in broker.topics and broker.topics[TOPIC].producers:
        assert (await talks[1].schema()).schema.type == STRING
    for raw in raws:
        await raw.close()
