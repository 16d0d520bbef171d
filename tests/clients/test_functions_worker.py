"""Apache Pulsar's functions worker, with Java functions, on our broker: `make test-clients`.

The worker always needs ZooKeeper, so the broker keeps its metadata there, too. Packages are named by URL: without
bookies, and without a worker of ours that serves the packages API, the worker has no place to store them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from magnetar.client import Client

from tests.clients.programs import GROUP, PULSAR_VERSION
from tests.connectors.servers import maven
from tests.support.ports import Reserved
from tests.support.servers import Server, running
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
STOP_TIMEOUT_S = 30.0
OPENED = (
    "java.base/java.lang", "java.base/sun.net", "java.base/java.util.zip", "java.base/java.io", "java.base/java.nio",
    "java.base/jdk.internal.misc",
)  # fmt: skip
EXAMPLES = "pulsar-functions-api-examples"


@dataclass
class JavaWorker:
    """The worker, and the broker on which it works."""

    url: str
    broker: Server
    jars: Path


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaWorker]:
    maven.require()
    artifacts = tuple(f"{GROUP}:{name}:{PULSAR_VERSION}" for name in ("pulsar-functions-worker", EXAMPLES))
    logging = tuple(f"org.apache.logging.log4j:{name}:2.23.1" for name in ("log4j-slf4j-impl", "log4j-core"))
    jars = maven.jars("pulsar-functions-worker", artifacts + logging, versions_of=f"{GROUP}:pulsar:{PULSAR_VERSION}")
    directory = tmp_path_factory.mktemp("java-worker")
    with contextlib.ExitStack() as opened:
        zookeeper = opened.enter_context(running_zookeeper(directory / "zookeeper"))
        (directory / "broker.yml").write_text(f"metadataStoreUrl: zk:{zookeeper.servers}\n")
        config = ("--config", str(directory / "broker.yml"))
        broker = opened.enter_context(running("broker", directory / "broker", *config))
        url = opened.enter_context(running_worker(directory, broker, jars))
        yield JavaWorker(url, broker, jars)


@contextlib.contextmanager
def running_worker(directory: Path, broker: Server, jars: Path) -> Iterator[str]:
    ports = Reserved(1)
    url = f"http://127.0.0.1:{ports.numbers[0]}"
    settings = {
        "workerId": "java", "workerHostname": "127.0.0.1", "workerPort": ports.numbers[0],
        "pulsarServiceUrl": broker.service_url, "pulsarWebServiceUrl": broker.web_url,
        "pulsarFunctionsNamespace": "public/functions", "pulsarFunctionsCluster": "standalone",
        "functionMetadataTopicName": "metadata", "clusterCoordinationTopicName": "coordinate",
        "functionAssignmentTopicName": "assignments", "numFunctionPackageReplicas": 1,
        "schedulerClassName": "org.apache.pulsar.functions.worker.scheduler.RoundRobinScheduler",
        "functionRuntimeFactoryClassName": "org.apache.pulsar.functions.runtime.thread.ThreadRuntimeFactory",
        "functionRuntimeFactoryConfigs": {"threadGroupName": "functions"},
        "downloadDirectory": str(directory / "download"), "failureCheckFreqMs": 30_000,
        "rescheduleTimeoutMs": 60_000, "instanceLivenessCheckFreqMs": 30_000,
        "functionsWorkerEnablePackageManagement": True, "additionalEnabledFunctionsUrlPatterns": ["file:.*"],
    }  # fmt: skip
    (directory / "functions_worker.yml").write_text(json.dumps(settings))  # JSON is YAML
    command = [
        "java", "-Xmx512m", *(word for one in OPENED for word in ("--add-opens", f"{one}=ALL-UNNAMED")),
        f"-Dpulsar.functions.instance.classpath={jars}/*", "-cp", f"{jars}/*",
        "org.apache.pulsar.functions.worker.FunctionWorkerStarter", "-c", str(directory / "functions_worker.yml"),
    ]  # fmt: skip
    if setpriv := shutil.which("setpriv"):  # however this process ends, the worker ends with it
        command = [setpriv, "--pdeathsig", "KILL", *command]
    log = directory / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory)

    def is_up() -> bool:
        if process.poll() is not None:
            return True
        members = httpx.get(f"{url}/admin/v2/worker/cluster", timeout=10)
        leader = httpx.get(f"{url}/admin/v2/worker/cluster/leader", timeout=10)
        return len(members.json()) == 1 and leader.json()["workerId"] == "java"

    try:
        wait_for(is_up, "a worker that leads", 120)
        assert process.poll() is None, log.read_text()[-3000:]
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def test_java_function_works_on_our_broker(worker: JavaWorker) -> None:
    path = f"{worker.url}/admin/v3/functions/public/default/exclaims"
    (jar,) = worker.jars.glob(f"{EXAMPLES}-*.jar")
    config = {
        "tenant": "public", "namespace": "default", "name": "exclaims", "runtime": "JAVA",
        "className": "org.apache.pulsar.functions.api.examples.ExclamationFunction", "inputs": ["java-in"],
        "output": "java-out", "jar": str(jar),
    }  # fmt: skip
    parts = {
        "functionConfig": (None, json.dumps(config), "application/json"),
        "url": (None, jar.as_uri(), "text/plain"),
    }
    answers: list[httpx.Response] = []

    def is_created() -> bool:
        answers.append(httpx.post(path, files=parts, timeout=60))
        return answers[-1].status_code != 503  # "Leader not yet ready. Please retry again"

    wait_for(is_created, "a leader that is ready", 60)
    assert answers[-1].status_code == 204, answers[-1].text
    try:
        status = f"{path}/status"
        # "Running" comes before the function subscribes. A producer of bytes that is faster would rule out its schema.
        subscriptions = f"{worker.broker.web_url}/admin/v2/persistent/public/default/java-in/subscriptions"
        wait_for(lambda: httpx.get(subscriptions, timeout=30).json() == ["public/default/exclaims"], "its subscription")
        with Client(worker.broker.service_url) as client:
            consumer = client.subscribe("java-out", "test")
            client.create_producer("java-in").send(b"hello")
            message = consumer.receive(timeout_millis=60_000)
            assert message.data == b"hello!"
            consumer.acknowledge(message)
        (counted,) = httpx.get(status, timeout=30).json()["instances"]
        assert counted["status"]["numSuccessfullyProcessed"] == 1
    finally:
        assert httpx.delete(path, timeout=60).status_code == 204


def test_packages_of_the_broker_answer_clearly_without_a_worker_of_ours(worker: JavaWorker) -> None:
    answer = httpx.get(f"{worker.broker.web_url}/admin/v3/packages/function/public/default", timeout=30)
    assert answer.status_code == 503
    assert "worker" in answer.json()["reason"]
