"""Partitioned topics beyond what is recorded: conflicts, and what updates do to subscriptions."""

from __future__ import annotations

import asyncio

from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

TOPIC = "/admin/v2/persistent/public/default/p"


async def test_four_partitions_are_four_topics_by_name(broker: RunningBroker) -> None:
    assert (await broker.http.put(f"{TOPIC}/partitions", json=4)).status_code == 204
    names = (await broker.http.get("/admin/v2/persistent/public/default")).json()
    assert names == [f"persistent://public/default/p-partition-{index}" for index in range(4)]


async def test_a_plain_topic_with_a_partitions_name_is_in_the_way(broker: RunningBroker) -> None:
    await broker.service.topic(parse_topic_name("public/default/p-partition-2"), create=True)
    answer = await broker.http.put(f"{TOPIC}/partitions", json=3)
    assert answer.status_code == 412
    name = "persistent://public/default/p-partition-2"
    assert answer.json()["reason"] == f"Topic {name} exists and is not a partition: delete it first"
    assert (await broker.http.put(f"{TOPIC}/partitions", json=2)).status_code == 204
    assert (await broker.http.post(f"{TOPIC}/partitions", json=3)).status_code == 412
    assert (await broker.http.get(f"{TOPIC}/partitions")).json()["partitions"] == 2


async def test_new_partitions_get_the_subscriptions_of_the_old_ones(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPIC}/partitions", json=1)
    await broker.http.put(f"{TOPIC}/subscription/s")
    await broker.http.post(f"{TOPIC}/partitions", json=3)
    assert (await broker.http.get(f"{TOPIC}-partition-2/subscriptions")).json() == ["s"]


async def test_of_two_who_create_a_topic_at_once_one_is_refused(broker: RunningBroker) -> None:
    answers = await asyncio.gather(*(broker.http.put(f"{TOPIC}/partitions", json=2) for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) == [204, 409]


async def test_missed_partitions_are_made_again(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPIC}/partitions", json=3)
    await broker.http.delete(f"{TOPIC}-partition-1")
    assert len((await broker.http.get("/admin/v2/persistent/public/default")).json()) == 2
    assert (await broker.http.post(f"{TOPIC}/createMissedPartitions")).status_code == 204
    assert len((await broker.http.get("/admin/v2/persistent/public/default")).json()) == 3


async def test_too_many_partitions_are_refused_with_the_limit(broker: RunningBroker) -> None:
    answer = await broker.http.put(f"{TOPIC}/partitions", json=10_001)
    assert (answer.status_code, answer.json()["reason"]) == (
        406,
        "Number of partitions should be less than or equal to 10000",
    )
