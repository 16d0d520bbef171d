"""The registry of schemas: one version of each schema, durable, shared by partitions and by brokers on one store."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.schemas import registry as registry_module
from magnetar.broker.schemas.compatibility import Incompatible, Strategy
from magnetar.broker.schemas.model import Schema, SchemaType
from magnetar.broker.schemas.records import schema_path
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.errors import StorageError
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.wire.topic_name import parse_topic_name

from tests.support.eventually import until

TOPIC = parse_topic_name("persistent://public/default/t")
PARTITION = TOPIC.partition_name(3)
OTHER = parse_topic_name("persistent://public/default/other")
FULL = Strategy.FULL


def schema(*optional: str, **properties: str) -> Schema:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in optional]
    return Schema(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}).encode(), properties)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "metadata.db")
    yield store
    await store.close()


def started(store: SqliteStore) -> SchemaRegistry:
    registry = SchemaRegistry(store)
    registry.start()
    return registry


async def held(registry: SchemaRegistry) -> dict[int, Schema]:
    return {one.number: one.schema for one in (await registry.history(TOPIC)).versions}


async def is_fresh(registry: SchemaRegistry, expected: dict[int, Schema] | None = None) -> bool:
    """Whether nothing is remembered of the topic, or what is expected."""
    return schema_path(TOPIC) not in registry._cache or await held(registry) == expected


async def test_versions_count_from_0_and_a_schema_has_one(store: SqliteStore) -> None:
    registry = started(store)

    assert [await registry.put(TOPIC, schema(*names), FULL) for names in ("a", "ab", "a", "ab")] == [0, 1, 0, 1]
    assert await registry.put(PARTITION, schema("a", k="v"), FULL) == 0
    assert await registry.put(OTHER, schema("b"), FULL) == 0
    assert await held(registry) == {0: schema("a"), 1: schema("a", "b")}


async def test_a_schema_that_does_not_fit_is_not_kept(store: SqliteStore) -> None:
    registry = started(store)
    await registry.put(TOPIC, schema("a"), FULL)

    with pytest.raises(Incompatible):
        await registry.put(TOPIC, Schema(SchemaType.STRING), FULL)

    assert await held(registry) == {0: schema("a")}


@pytest.mark.parametrize("brokers", [1, 2])
async def test_two_producers_at_once_create_one_version(store: SqliteStore, brokers: int) -> None:
    registries = [started(store) for _ in range(brokers)]

    numbers = await asyncio.gather(
        *(registries[index % brokers].put(TOPIC, schema("a" if index < 4 else "b"), FULL) for index in range(8))
    )

    assert sorted(set(numbers)) == [0, 1]
    assert len(set(numbers[:4])) == len(set(numbers[4:])) == 1
    assert await held(started(store)) == await held(registries[-1])


async def test_versions_survive_a_restart(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "metadata.db")
    strange = Schema(SchemaType.NONE, bytes(range(256)), {"ключ": "\n\"'\0"}, 7)
    await started(store).put(TOPIC, strange, FULL)
    await started(store).put(OTHER, Schema(SchemaType.NONE, 'é\n"'.encode()), FULL)
    await store.close()

    store = SqliteStore.open(tmp_path / "metadata.db")
    try:
        registry = started(store)
        assert await held(registry) == {0: strange}
        last = (await registry.history(OTHER)).last
        assert last is not None
        assert last.schema.data == 'é\n"'.encode()
    finally:
        await store.close()


async def test_deleting_ends_the_versions_and_uses_up_a_number(store: SqliteStore) -> None:
    registry = started(store)
    await registry.put(TOPIC, schema("a"), FULL)
    await registry.put(TOPIC, schema("b"), FULL)

    assert await registry.delete(TOPIC, 5) == 2
    assert await held(registry) == {}
    assert await registry.delete(TOPIC, 6) == 3
    assert await registry.put(TOPIC, Schema(SchemaType.STRING), FULL) == 4
    assert await held(started(store)) == {4: Schema(SchemaType.STRING)}


async def test_forgetting_begins_anew(store: SqliteStore) -> None:
    registry = started(store)
    for name in (TOPIC, OTHER):
        await registry.put(name, schema("a"), FULL)
        await registry.put(name, schema("b"), FULL)

    await registry.forget(PARTITION)

    assert await held(registry) == {}
    assert await registry.put(TOPIC, schema("c"), FULL) == 0
    assert len((await registry.history(OTHER)).versions) == 2

    await registry.forget_namespace("public/default")

    assert await store.children("/schemas/public/default") == []
    assert (await registry.history(OTHER)).numbers == (await registry.history(TOPIC)).numbers == ()


async def test_what_another_broker_changes_is_seen(store: SqliteStore) -> None:
    mine, theirs = started(store), started(store)
    await mine.put(TOPIC, schema("a"), FULL)
    assert await held(theirs) == {0: schema("a")}

    await theirs.put(TOPIC, schema("b"), FULL)
    await until(lambda: is_fresh(mine))
    assert await held(mine) == {0: schema("a"), 1: schema("b")}

    await theirs.forget(TOPIC)
    await until(lambda: is_fresh(mine))
    assert await held(mine) == {}


async def test_a_change_while_reading_is_not_missed(store: SqliteStore) -> None:
    registry = started(store)
    reading = asyncio.ensure_future(registry.history(TOPIC))
    await started(store).put(TOPIC, schema("a"), FULL)
    await reading
    await until(lambda: is_fresh(registry, {0: schema("a")}))

    assert await held(registry) == {0: schema("a")}


async def test_memory_is_bounded_and_nothing_is_lost(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_CACHED_BYTES", 5_000)
    registry = started(store)
    names = [parse_topic_name(f"persistent://public/default/t{index}") for index in range(20)]
    for name in names:
        await registry.put(name, Schema(SchemaType.NONE, b"x" * 1_000), FULL)

    assert registry._cached_bytes == sum(history.bytes_ for history in registry._cache.values()) <= 5_000
    assert [len((await registry.history(name)).versions) for name in names] == [1] * 20


async def test_a_refusal_right_before_adding_leaves_nothing(store: SqliteStore) -> None:
    registry = started(store)

    def refuse() -> None:
        raise Incompatible("no")

    with pytest.raises(Incompatible, match="no"):
        await registry.put(TOPIC, schema("a"), FULL, may_write=refuse)
    await registry.put(TOPIC, schema("a"), FULL)

    assert await registry.put(TOPIC, schema("a"), FULL, may_write=refuse) == 0


async def test_failure_of_the_store_is_the_answer_and_the_next_try_goes_on(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = started(store)
    put = store.put

    async def failing(path: str, value: bytes, expected_version: int | None = None) -> int:
        await put(path, value, expected_version)  # the worst: it was written, and nobody knows
        raise StorageError("the store is away")

    monkeypatch.setattr(store, "put", failing)
    with pytest.raises(StorageError):
        await registry.put(TOPIC, schema("a"), FULL)
    monkeypatch.setattr(store, "put", put)

    assert await registry.put(TOPIC, schema("a"), FULL) == 0


async def test_record_that_is_no_schema_is_named(store: SqliteStore) -> None:
    await store.put(f"{schema_path(TOPIC)}/0", b'{"type":"NOPE"}')

    with pytest.raises(StorageError, match=r"/schemas/public/default/t/0 is not a valid schema"):
        await started(store).history(TOPIC)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "delete", "forget", "restart"]), max_size=12))
def test_any_order_of_changes_is_as_counted_by_hand(steps: list[str]) -> None:
    async def run() -> None:
        store = SqliteStore.open(Path(directory) / "metadata.db")
        registry = started(store)
        live: dict[int, str] = {}
        following = 0
        for step in steps:
            if step == "restart":
                registry = started(store)
            elif step == "forget":
                await registry.forget(TOPIC)
                live, following = {}, 0
            elif step == "delete":
                assert await registry.delete(TOPIC, 0) == following
                live, following = {}, following + 1
            else:
                number = await registry.put(TOPIC, schema(step), FULL)
                if step not in live.values():
                    live[following] = step
                    following += 1
                assert live[number] == step
            assert await held(registry) == {number: schema(step) for number, step in live.items()}
        await store.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run())


async def test_large_schemas_are_judged_aside_one_after_the_other(store: SqliteStore) -> None:
    registry = started(store)
    names = [f"field{index}" for index in range(400)]
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    beating = asyncio.create_task(beat())
    numbers = await asyncio.gather(*(registry.put(TOPIC, schema(*names, f"x{index % 3}"), FULL) for index in range(6)))
    beating.cancel()

    assert len(schema(*names).data) > registry_module.MAX_BYTES_AT_ONCE
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2]
    assert beats > 50  # the loop went on meanwhile
