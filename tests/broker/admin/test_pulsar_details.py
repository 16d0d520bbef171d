"""Details of Pulsar's admin API that official clients rely on."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from tests.broker.admin.conftest import RunningBroker

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"


@pytest.mark.parametrize(
    "override",
    [
        {"allowAutoTopicCreation": False, "topicType": ""},
        {"allowAutoTopicCreation": False, "topicType": "non-partitioned", "defaultNumPartitions": 3},
    ],
)
async def test_the_rest_of_an_override_does_not_count_while_creation_is_off(
    override: dict[str, Any], broker: RunningBroker
) -> None:
    path = f"{NAMESPACE}/autoTopicCreation"
    assert (await broker.http.post(path, json=override)).status_code == 204
    assert (await broker.http.get(path)).json() == override
    on = override | {"allowAutoTopicCreation": True, "topicType": ""}
    answer = await broker.http.post(path, json=on)
    assert answer.status_code == 412
    assert answer.json()["reason"].endswith("Unknown topic type []")


@pytest.mark.parametrize("partitions", [10_001, 2_147_483_647])
async def test_topics_are_not_created_with_an_absurd_number_of_partitions(
    partitions: int, broker: RunningBroker
) -> None:
    override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": partitions}
    answer = await broker.http.post(f"{NAMESPACE}/autoTopicCreation", json=override)
    reason = "Number of partitions should be less than or equal to 10000"
    assert (answer.status_code, answer.json()["reason"]) == (406, reason)
    answer = await broker.http.put("/admin/v2/namespaces/public/n", json={"autoTopicCreationOverride": override})
    assert (answer.status_code, answer.json()["reason"]) == (406, reason)
    # A policy that an earlier version stored creates nothing, either.
    await broker.namespaces.change_policies(
        "public/default", lambda policies: policies | {"autoTopicCreationOverride": override}
    )
    answer = await broker.http.get(f"{TOPICS}/t/partitions?checkAllowAutoCreation=true")
    assert (answer.status_code, answer.json()["reason"]) == (406, reason)


async def test_the_limit_of_partitions_can_be_changed_while_the_broker_runs(broker: RunningBroker) -> None:
    setting = "/admin/v2/brokers/configuration/maxNumPartitionsPerPartitionedTopic"
    assert (await broker.http.post(f"{setting}/4")).status_code == 200
    answer = await broker.http.put(f"{TOPICS}/p/partitions", json=5)
    reason = "Number of partitions should be less than or equal to 4"
    assert (answer.status_code, answer.json()["reason"]) == (406, reason)
    assert (await broker.http.put(f"{TOPICS}/p/partitions", json=4)).status_code == 204


async def test_message_ids_name_their_partition(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPICS}/p/partitions", json=3)
    await broker.http.put(f"{TOPICS}/plain")
    for call in ("messageid/0", "lastMessageId"):
        of_partition = await broker.http.get(f"{TOPICS}/p-partition-2/{call}")
        assert of_partition.json()["partitionIndex"] == 2
        assert (await broker.http.get(f"{TOPICS}/plain/{call}")).json()["partitionIndex"] == -1


async def test_cluster_urls_may_end_with_a_slash(broker: RunningBroker) -> None:
    data = {"serviceUrl": "http://c.example:8080/", "brokerServiceUrl": "pulsar://c.example:6650/"}
    assert (await broker.http.put("/admin/v2/clusters/c", json=data)).status_code == 200
    found = (await broker.http.get("/admin/v2/clusters/c")).json()
    assert {field: found[field] for field in data} == data
    empty = dict.fromkeys(("serviceUrl", "serviceUrlTls", "brokerServiceUrlTls"), "")  # as the Go client sends them
    assert (await broker.http.put("/admin/v2/clusters/d", json=empty | {"brokerServiceUrl": ""})).status_code == 200
    for wrong in ("http://", "http:///x", "ftp://c.example:8080/", "http://c.example/a b"):
        answer = await broker.http.post("/admin/v2/clusters/c", json={"serviceUrl": wrong})
        assert answer.status_code == 400, wrong


async def test_subscription_properties_are_replaced_on_all_partitions(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPICS}/p/partitions", json=2)
    path = f"{TOPICS}/p/subscription/s"
    await broker.http.put(path, json={"ledgerId": -1, "entryId": -1, "properties": {"a": "b"}})
    assert (await broker.http.put(f"{path}/properties", json={"c": "d"})).status_code == 204
    for topic in ("p", "p-partition-0", "p-partition-1"):
        found = await broker.http.get(f"{TOPICS}/{topic}/subscription/s/properties")
        assert found.json() == {"c": "d"}
    await broker.http.put(f"{TOPICS}/p/unload")
    assert (await broker.http.get(f"{path}/properties")).json() == {"c": "d"}
    assert (await broker.http.put(f"{path}/properties", json={})).status_code == 204
    assert (await broker.http.get(f"{path}/properties")).json() == {}


async def test_replicator_rates_are_kept_though_nothing_is_replicated(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPICS}/t")
    rate = {
        "dispatchThrottlingRateInMsg": 12,
        "dispatchThrottlingRateInByte": 22,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }
    await broker.http.post(f"{NAMESPACE}/replicatorDispatchRate", json=rate)
    assert (await broker.http.get(f"{NAMESPACE}/replicatorDispatchRate")).json() == rate
    assert (await broker.http.get(f"{TOPICS}/t/replicatorDispatchRate?applied=true")).json() == rate
    await broker.http.post(f"{TOPICS}/t/replicatorDispatchRate", json=rate | {"dispatchThrottlingRateInMsg": 1})
    assert (await broker.http.get(f"{TOPICS}/t/replicatorDispatchRate")).json()["dispatchThrottlingRateInMsg"] == 1


async def test_peeking_on_an_absent_subscription_starts_at_the_first_message(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPICS}/t")
    path = f"{TOPICS}/t/subscription/absent/position"
    answer = await broker.http.get(f"{path}/1")
    assert (answer.status_code, answer.json()["reason"]) == (404, "Message not found")
    topic = broker.service.topics["persistent://public/default/t"]
    for payload in (b"m0", b"m1"):
        await topic.publish(seal(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), payload), 1, 1)
    assert [(await broker.http.get(f"{path}/{place}")).content for place in (1, 2)] == [b"m0", b"m1"]
    assert (await broker.http.get(f"{path}/3")).json()["reason"] == "Message not found"
    assert (await broker.http.get(f"{TOPICS}/t/subscriptions")).json() == []


async def test_the_type_of_created_topics_is_read_whatever_its_case(broker: RunningBroker) -> None:
    override = {"allowAutoTopicCreation": True, "topicType": "PARTITIONED", "defaultNumPartitions": 2}
    assert (await broker.http.post(f"{NAMESPACE}/autoTopicCreation", json=override)).status_code == 204
    answer = await broker.http.get(f"{TOPICS}/t/partitions?checkAllowAutoCreation=true")
    assert answer.json()["partitions"] == 2
