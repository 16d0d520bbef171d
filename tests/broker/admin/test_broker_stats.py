"""The statistics of the broker as JSON have Pulsar's shapes and this process's numbers."""

from __future__ import annotations

from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

STATS = "/admin/v2/broker-stats"


async def test_metrics_have_values_and_dimensions(broker: RunningBroker) -> None:
    topic = await broker.service.topic(parse_topic_name("persistent://public/default/t"), create=True)
    await topic.create_subscription("s")
    found = (await broker.http.get(f"{STATS}/metrics")).json()
    by_namespace = {row["dimensions"].get("namespace"): row["metrics"] for row in found}
    counts = by_namespace["public/default"]
    assert (counts["brk_no_of_subscriptions"], counts["brk_no_of_producers"], counts["brk_msg_backlog"]) == (1, 0, 0)
    by_metric = {row["dimensions"].get("metric"): row["metrics"] for row in found}
    assert by_metric["broker_health"] == {"brk_health": 1}
    assert by_metric["broker_connection"] == {"brk_active_connections": 0}
    assert by_metric["process_metrics"]["brk_process_memory_bytes"] > 0


async def test_beans_show_the_process(broker: RunningBroker) -> None:
    beans = {row["dimensions"]["MBean"]: row["metrics"] for row in (await broker.http.get(f"{STATS}/mbeans")).json()}
    assert beans["java.lang:type=OperatingSystem"]["AvailableProcessors"] > 0
    assert beans["java.lang:type=Threading"]["ThreadCount"] > 0
    assert beans["java.lang:type=Runtime"]["SpecName"].startswith("Magnetar ")


async def test_allocators_have_the_fields_that_clients_read(broker: RunningBroker) -> None:
    for name in ("default", "ml-cache"):
        found = (await broker.http.get(f"{STATS}/allocator-stats/{name}")).json()
        assert found["directArenas"] == found["heapArenas"] == []
        assert {"usedHeapMemory", "usedDirectMemory", "smallCacheSize", "normalCacheSize"} <= found.keys()
    answer = await broker.http.get(f"{STATS}/allocator-stats/x")
    assert (answer.status_code, answer.json()["reason"]) == (406, "Invalid allocator name : x")
