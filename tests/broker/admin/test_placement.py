"""What only clusters act on is kept and returned as Pulsar does it; resource groups limit their namespaces."""

from __future__ import annotations

import json

import pytest

from tests.broker.admin.conftest import RunningBroker

NAMESPACE = "/admin/v2/namespaces/public/default"
GROUP = "/admin/v2/resourcegroups/g"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_an_anti_affinity_group_is_kept_as_plain_text(content_type: str, broker: RunningBroker) -> None:
    path, headers = f"{NAMESPACE}/antiAffinity", {"content-type": content_type}
    assert (await broker.http.get(path)).status_code == 204
    assert (await broker.http.post(path, content=b"group-a", headers=headers)).status_code == 204
    assert (await broker.http.get(path)).text == "group-a"
    for version in ("/v2", ""):  # the Java client takes the path of Apache Pulsar 1
        listed = await broker.http.get(f"/admin{version}/namespaces/standalone/antiAffinity/group-a?property=public")
        assert listed.json() == ["public/default"]
    assert (await broker.http.delete(path)).status_code == 204
    assert (await broker.http.get(path)).status_code == 204


async def test_an_anti_affinity_group_sent_as_json_is_returned_as_sent(broker: RunningBroker) -> None:
    path = f"{NAMESPACE}/antiAffinity"
    assert (await broker.http.post(path, json="group-b")).status_code == 204
    assert (await broker.http.get(path)).content == json.dumps("group-b").encode()
    listed = await broker.http.get("/admin/v2/namespaces/standalone/antiAffinity/group-b")
    assert listed.json() == ["public/default"]


async def test_an_empty_anti_affinity_group_is_refused(broker: RunningBroker) -> None:
    answer = await broker.http.post(f"{NAMESPACE}/antiAffinity")
    assert (answer.status_code, answer.json()["reason"]) == (412, "antiAffinityGroup can't be empty")


async def test_placement_is_forgotten_with_its_namespace(broker: RunningBroker) -> None:
    namespace = "/admin/v2/namespaces/public/gone"
    await broker.http.put(namespace)
    await broker.http.post(f"{namespace}/antiAffinity", content=b"group-a")
    await broker.http.post(f"{namespace}/persistence/bookieAffinity", json={"bookkeeperAffinityGroupPrimary": "p"})
    assert (await broker.http.delete(namespace)).status_code == 204
    await broker.http.put(namespace)
    assert (await broker.http.get(f"{namespace}/antiAffinity")).status_code == 204
    assert (await broker.http.get(f"{namespace}/persistence/bookieAffinity")).status_code == 404


async def test_a_resource_group_in_use_is_not_deleted(broker: RunningBroker) -> None:
    await broker.http.put(GROUP, json={"publishRateInMsgs": 10})
    assert (await broker.http.post(f"{NAMESPACE}/resourcegroup/g")).status_code == 204
    assert (await broker.http.get(f"{NAMESPACE}/resourcegroup")).text == "g"
    assert (await broker.http.get(NAMESPACE)).json()["resource_group_name"] == "g"
    answer = await broker.http.delete(GROUP)
    assert (answer.status_code, answer.json()["reason"]) == (412, "ResourceGroup is in use")
    assert (await broker.http.delete(f"{NAMESPACE}/resourcegroup")).status_code == 204
    assert (await broker.http.delete(GROUP)).status_code == 204


async def test_a_namespace_does_not_join_an_absent_resource_group(broker: RunningBroker) -> None:
    answer = await broker.http.post(f"{NAMESPACE}/resourcegroup/nope")
    assert (answer.status_code, answer.json()["reason"]) == (412, "ResourceGroup does not exist")
    answer = await broker.http.put("/admin/v2/namespaces/public/n", json={"resource_group_name": "nope"})
    assert (answer.status_code, answer.json()["reason"]) == (412, "ResourceGroup does not exist")


async def test_a_limit_that_a_resource_group_does_not_have_is_refused_by_name(broker: RunningBroker) -> None:
    answer = await broker.http.put(GROUP, json={"publishRateInMsgs": 10, "replicationDispatchRateInMsgs": 5})
    assert answer.status_code == 400
    assert "'replicationDispatchRateInMsgs'" in answer.json()["reason"]
    assert (await broker.http.get(GROUP)).status_code == 404


async def test_topics_of_a_resource_group_share_its_rates(broker: RunningBroker) -> None:
    await broker.http.put(GROUP, json={"publishRateInMsgs": 10, "dispatchRateInBytes": 50})
    for namespace in ("public/default", "public/other"):
        await broker.http.put(f"/admin/v2/namespaces/{namespace}")
        await broker.http.post(f"/admin/v2/namespaces/{namespace}/resourcegroup/g")
        await broker.http.put(f"/admin/v2/persistent/{namespace}/t")
    await broker.http.put("/admin/v2/namespaces/public/free")
    await broker.http.put("/admin/v2/persistent/public/free/t")
    names = [f"persistent://public/{namespace}/t" for namespace in ("default", "other", "free")]
    one, other, free = (broker.service.topics[name] for name in names)
    assert one.gate is not None
    assert other.gate is not None
    assert one.gate.shared == other.gate.shared
    assert one.shared_dispatch_limits == other.shared_dispatch_limits
    assert free.gate is None
    assert free.shared_dispatch_limits == ()
    one.gate.take(1000, 1)
    assert other.gate.wait_s() > 0
    # A changed limit holds for loaded topics at once, and a removed one too.
    await broker.http.put(GROUP, json={"publishRateInMsgs": -1, "dispatchRateInBytes": -1})
    assert one.gate is None
    assert other.shared_dispatch_limits == ()


async def test_topics_share_the_rates_of_the_broker(broker: RunningBroker) -> None:
    for name in ("a", "b"):
        await broker.http.put(f"/admin/v2/persistent/public/default/{name}")
    one, other = (broker.service.topics[f"persistent://public/default/{name}"] for name in ("a", "b"))
    setting = "/admin/v2/brokers/configuration"
    assert (await broker.http.post(f"{setting}/brokerPublisherThrottlingMaxMessageRate/5")).status_code == 200
    assert (await broker.http.post(f"{setting}/dispatchThrottlingRateInMsg/7")).status_code == 200
    assert one.gate is not None
    assert other.gate is not None
    one.gate.take(1000, 1)
    assert other.gate.wait_s() > 0
    assert [limit.rate.messages for limit in other.shared_dispatch_limits] == [7]
    await broker.http.delete(f"{setting}/brokerPublisherThrottlingMaxMessageRate")
    assert other.gate is None
