"""Who may not join: a second worker of one id, and anybody in the namespace of Apache Pulsar's own workers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from magnetar.client.config import ConsumerConfig
from magnetar.errors import MagnetarError
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData, PackageLocationMetaData
from magnetar.worker.admission import check_namespace
from magnetar.worker.config import WorkerConfig
from magnetar.worker.service import WorkerService

from tests.support.pulsar import ApachePulsar, Broker

from .conftest import Cluster, worker_config


async def refusal(config: WorkerConfig) -> str:
    service = WorkerService(config)
    with pytest.raises(MagnetarError) as caught:
        await service.start()
    await service.stop()
    return str(caught.value)


@pytest.mark.slow
async def test_id_of_a_living_worker_is_refused(cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    living = cluster.service
    config = worker_config(broker, tmp_path / "twin", living.config.functions_namespace, living.worker_id)
    assert await refusal(config) == (
        f"worker id {living.worker_id} is already used by the worker on {living.worker_url}: choose another"
        " --worker-id, or stop that worker first"
    )
    assert len((await cluster.http.get("/admin/v2/worker/cluster")).json()) == 1


@pytest.mark.slow
async def test_namespace_of_pulsars_own_workers_is_refused(cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    namespace = f"public/pulsars{cluster.suffix}"
    await cluster.http.put(f"{broker.web_url}/admin/v2/namespaces/{namespace}")
    name = "c-standalone-fw-localhost-8080:localhost:8080"
    consumer = await cluster.client.subscribe(
        f"persistent://{namespace}/coordinate",
        "participants",
        ConsumerConfig(type="Failover", name=name, properties={"id": name}),
    )
    assert await refusal(worker_config(broker, tmp_path / "ours", namespace)) == (
        f"{namespace} is used by Apache Pulsar's own function workers (worker c-standalone-fw-localhost-8080 is"
        " registered): set a separate namespace for this cluster, such as `pulsarFunctionsNamespace: public/magnetar`,"
        " in --config"
    )
    await consumer.close()


@pytest.mark.pulsar
async def test_namespace_of_a_living_worker_of_pulsar_is_refused(apache_pulsar: ApachePulsar, tmp_path: Path) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        members = await http.get(f"{apache_pulsar.web_url}/admin/v2/worker/cluster")
    if not members.is_success:
        pytest.skip(f"the Apache Pulsar at {apache_pulsar.web_url} runs no functions worker")
    (member,) = members.json()
    assert await refusal(worker_config(apache_pulsar, tmp_path, "public/functions")) == (
        f"public/functions is used by Apache Pulsar's own function workers (worker {member['workerId']} is"
        " registered): set a separate namespace for this cluster, such as `pulsarFunctionsNamespace: public/magnetar`,"
        " in --config"
    )


def test_functions_of_pulsars_workers_are_seen_when_these_are_away() -> None:
    theirs = FunctionMetaData(
        functionDetails=FunctionDetails(name="theirs"),
        packageLocation=PackageLocationMetaData(packagePath="public/default/theirs/1234-fn.jar"),
    )
    with pytest.raises(MagnetarError, match=r"it contains the function theirs"):
        check_namespace("public/functions", {}, [theirs])
    theirs.packageLocation.packagePath = "package-" + "0" * 64
    check_namespace("public/functions", {}, [theirs])


@pytest.mark.slow
@pytest.mark.parametrize("which", ["service_url", "admin_url"])
async def test_broker_that_is_not_there_is_named_with_the_remedy(broker: Broker, tmp_path: Path, which: str) -> None:
    urls = {"service_url": broker.service_url, "admin_url": broker.web_url}
    urls[which] = urls[which].rsplit(":", 1)[0] + ":1"
    config = WorkerConfig(data_dir=tmp_path, worker_port=0, **urls)  # type: ignore[arg-type]
    text = await refusal(config)
    assert text.startswith(f"no broker answered at {urls[which]}: ")
    assert text.endswith(f"; start one (magnetar broker) or correct --{which.replace('_', '-')}")
    assert "\n" not in text


def test_installed_connectors_are_no_strangers() -> None:
    ours = FunctionMetaData(packageLocation=PackageLocationMetaData(packagePath="builtin://file"))
    ours.functionDetails.name = "archive"
    check_namespace("public/functions", {}, [ours])
