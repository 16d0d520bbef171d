"""Sources by REST: batch sources from their creation to their end, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from magnetar.client.config import ConsumerConfig

from tests.support.eventually import until
from tests.support.pulsar import own_name

from .conftest import Cluster

BATCH = b"""
from magnetar.api.connector import BatchSource, Record, Source

class Tasks(BatchSource):
    def discover(self):
        return [b"a", b"b"]
    def prepare(self, task):
        self.left = [Record(task + b"%d" % number) for number in range(3)]
    def read(self):
        return self.left.pop(0) if self.left else None

class Plain(Source):
    def read(self):
        return None
"""
IMMEDIATE = {"discoveryTriggererClassName": "immediate"}


async def create(cluster: Cluster, name: str, class_name: str, **config: Any) -> httpx.Response:
    full = {"className": class_name, "topicName": cluster.topic("out")} | config
    return await cluster.deploy_connector("POST", "sources", name, full, ("tasks.py", BATCH))


async def exists(cluster: Cluster, topic: str) -> bool:
    path = f"{cluster.broker.web_url}/admin/v2/{topic.replace('://', '/')}/stats"
    async with httpx.AsyncClient(timeout=60) as http:
        return (await http.get(path)).status_code == 200


async def test_batch_source_is_created_read_and_deleted_with_its_tasks(cluster: Cluster) -> None:
    name = own_name("b")
    answer = await create(cluster, name, "tasks.Tasks", batchSourceConfig=IMMEDIATE, parallelism=2)
    assert answer.status_code == 204, answer.text
    config = ConsumerConfig(initial_position="Earliest")
    consumer = await cluster.client.subscribe(cluster.topic("out"), "test", config)
    received = [(await consumer.receive(30)).data for _ in range(6)]
    assert sorted(received) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    shown = (await cluster.http.get(f"/admin/v3/sources/public/default/{name}")).json()
    assert shown["batchSourceConfig"] == IMMEDIATE
    assert shown["configs"] == {}
    answer = await cluster.deploy_connector("PUT", "sources", name, {"parallelism": 1})
    assert answer.status_code in (200, 204), answer.text
    shown = (await cluster.http.get(f"/admin/v3/sources/public/default/{name}")).json()
    assert (shown["parallelism"], shown["batchSourceConfig"]) == (1, IMMEDIATE)
    tasks = f"persistent://public/default/{name}-intermediate"
    assert await exists(cluster, tasks)
    path = f"/admin/v3/sources/public/default/{name}"
    assert (await cluster.http.delete(path)).status_code in (200, 204)

    async def is_gone() -> bool:
        return not await exists(cluster, tasks)

    await until(is_gone)
    await consumer.close()


@pytest.mark.parametrize(
    ("class_name", "config", "error"),
    [
        ("tasks.Tasks", {}, "tasks.Tasks is a BatchSource: set batchSourceConfig"),
        ("tasks.Plain", {"batchSourceConfig": IMMEDIATE}, "tasks.Plain is not a BatchSource: omit batchSourceConfig"),
        ("tasks.Tasks", {"batchSourceConfig": {}}, "BatchSourceConfig does not specify Discovery Trigger ClassName"),
        (
            "tasks.Plain",
            {"processingGuarantees": "EFFECTIVELY_ONCE"},
            "EFFECTIVELY_ONCE requires a state store for the position of a source",
        ),
    ],
)
async def test_what_cannot_work_is_refused(
    cluster: Cluster, class_name: str, config: dict[str, Any], error: str
) -> None:
    answer = await create(cluster, own_name("b"), class_name, **config)
    assert answer.status_code == 400
    assert error in json.loads(answer.text)["reason"]


async def test_installed_source_that_is_no_batch_source_takes_no_batch_config(cluster: Cluster) -> None:
    config = {"topicName": cluster.topic("out"), "sourceType": "generator", "batchSourceConfig": IMMEDIATE}
    answer = await cluster.deploy_connector("POST", "sources", own_name("g"), config)
    assert answer.status_code == 400
    assert "GeneratorSource is not a BatchSource: omit batchSourceConfig" in answer.text
