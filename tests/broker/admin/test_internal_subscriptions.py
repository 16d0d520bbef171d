"""The broker's own cursors stay where they are, whatever is asked by REST."""

from __future__ import annotations

import pytest
from magnetar.broker.storage.cursors.names import INTERNAL
from magnetar.config.rules import RESERVED_SUBSCRIPTIONS
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from tests.broker.admin.conftest import RunningBroker
from tests.support.eventually import eventually

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
MOVES = (
    ("DELETE", "{S}"),
    ("DELETE", "{S}?force=true"),
    ("POST", "{S}/skip_all"),
    ("POST", "{S}/skip/3"),
    ("POST", "{S}/expireMessages/1"),
    ("POST", "{S}/expireMessages"),
    ("POST", "{S}/resetcursor/1"),
    ("POST", "{S}/resetcursor"),
    ("POST", NAMESPACE + "/clearBacklog/{name}"),
    ("POST", NAMESPACE + "/unsubscribe/{name}"),
    ("POST", NAMESPACE + "/0x00000000_0x40000000/clearBacklog/{name}"),
    ("POST", NAMESPACE + "/0x00000000_0x40000000/unsubscribe/{name}"),
)
SWEEPS = (
    ("POST", f"{TOPIC}/all_subscription/expireMessages/1"),
    ("POST", f"{NAMESPACE}/clearBacklog"),
)


async def cursors(broker: RunningBroker) -> dict[str, str]:
    stats = (await broker.http.get(f"{TOPIC}/internalStats")).json()["cursors"]
    return {name: stats[name]["markDeletePosition"] for name in ("pulsar.dedup", "__compaction")}


async def prepare(broker: RunningBroker) -> None:
    """Make a topic that has both cursors, each with something behind it."""
    await broker.http.put(TOPIC)
    assert (await broker.http.post(f"{TOPIC}/deduplicationEnabled", json=True)).status_code == 204
    assert (await broker.http.put(f"{TOPIC}/compaction")).status_code == 204

    async def is_compacted() -> bool:
        return bool((await broker.http.get(f"{TOPIC}/compaction")).json()["status"] == "SUCCESS")

    await eventually(is_compacted, "the compaction")
    (topic,) = (each for each in broker.service.topics.values() if each.name.local == "t")
    for number in range(5):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        await topic.publish(seal(metadata, b"late"), 1, 1)


async def test_nothing_internal_is_made_moved_or_deleted(broker: RunningBroker) -> None:
    await prepare(broker)
    before = await cursors(broker)
    for name in ("pulsar.dedup", "__compaction"):
        for method, path in MOVES:
            target = path.format(S=f"{TOPIC}/subscription/{name}", name=name)
            answer = await broker.http.request(method, target, json={"ledgerId": 0, "entryId": 0})
            assert answer.status_code == 412, target
            assert answer.json()["reason"].startswith(f"Subscription {name} is internal to the broker: ")
        answer = await broker.http.put(f"{TOPIC}/subscription/{name}")
        assert (answer.status_code, answer.json()["reason"]) == (
            412,
            "Subscription with reserved subscription name attempted",
        )
    for method, path in SWEEPS:
        assert (await broker.http.request(method, path)).status_code == 204
    assert await cursors(broker) == before


@pytest.mark.parametrize("name", ["pulsar.dedup", "pulsar.repl.east", "__compaction", "__compaction2"])
async def test_a_reserved_name_creates_neither_subscription_nor_topic(name: str, broker: RunningBroker) -> None:
    assert (await broker.http.put(f"{TOPIC}/subscription/{name}")).status_code == 412
    assert (await broker.http.get("/admin/v2/persistent/public/default")).json() == []


async def test_new_partitions_do_not_get_what_is_internal(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPIC}/partitions", content="1")
    await broker.http.put(f"{TOPIC}-partition-0/compaction")

    async def has_cursor() -> bool:
        return bool((await broker.http.get(f"{TOPIC}-partition-0/subscriptions")).json() == ["__compaction"])

    await eventually(has_cursor, "cursor of the compaction")
    assert (await broker.http.post(f"{TOPIC}/partitions", content="2")).status_code == 204
    assert (await broker.http.get(f"{TOPIC}-partition-1/subscriptions")).json() == []


def test_functions_are_refused_the_names_that_the_broker_refuses() -> None:
    assert RESERVED_SUBSCRIPTIONS == INTERNAL
