"""Apache Pulsar's functions worker, which is written in Java, on our broker: `make test-clients`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from pulsar.schema import StringSchema

from tests.clients.functions_worker import FunctionsWorker, running_worker
from tests.support.servers import Server, running
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.clients
CLASS = "org.apache.pulsar.functions.api.examples.ExclamationFunction"
FUNCTION = "/admin/v3/functions/public/default/exclaim"
RUNNING_TIMEOUT_S = 120.0
RECEIVE_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        file = tmp_path / "broker.yml"
        file.write_text(f"metadataStoreUrl: zk:{zookeeper.servers}\n")
        with running("broker", tmp_path / "broker", "--config", str(file)) as server:
            yield server


def _deploy(http: httpx.Client, worker: FunctionsWorker) -> None:
    config = {
        "tenant": "public", "namespace": "default", "name": "exclaim", "className": CLASS, "runtime": "JAVA",
        "inputs": ["words"], "output": "exclaimed", "subscriptionPosition": "Earliest",
    }  # fmt: skip
    parts = {
        "url": (None, worker.examples.as_uri()),
        "functionConfig": (None, json.dumps(config), "application/json"),
    }
    answer = http.post(FUNCTION, files=parts)
    assert answer.status_code == 204, f"{answer.status_code} {answer.text}\n{worker.log_tail()}"

    def is_running() -> bool:
        status = http.get(f"{FUNCTION}/status")
        return status.is_success and status.json()["numRunning"] == 1

    try:
        wait_for(is_running, "running function", RUNNING_TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{worker.log_tail()}") from error


def test_a_java_function_runs_on_apache_pulsars_worker(broker: Server, tmp_path: Path) -> None:
    http = httpx.Client(base_url=broker.web_url, timeout=60)  # the broker passes functions requests on
    with running_worker(tmp_path / "worker", broker) as worker, http:
        worker.wait_until_ready()
        _deploy(http, worker)
        client = pulsar.Client(broker.service_url, operation_timeout_seconds=30)
        consumer = client.subscribe("exclaimed", "s", schema=StringSchema())
        client.create_producer("words", schema=StringSchema()).send("hello")
        assert consumer.receive(RECEIVE_MS).value() == "hello!"
        client.close()
        packages = http.get("/admin/v3/packages/function/public/default")
        assert packages.status_code == 503, packages.text
        assert http.delete(FUNCTION).status_code == 204
        assert http.get("/admin/v3/functions/public/default").json() == []


def test_apache_pulsars_worker_ends_with_the_reason_where_metadata_is_in_sqlite(tmp_path: Path) -> None:
    with running("broker", tmp_path / "broker") as broker, running_worker(tmp_path / "worker", broker) as worker:
        assert worker.wait_until_ended() != 0
        assert "Apache Pulsar's functions worker needs ZooKeeper" in worker.log_tail()
