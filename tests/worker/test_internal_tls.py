"""State store, broker and worker as processes, with TLS between them wherever there is any, tokens, and a function."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.certificates import Authority
from tests.support.servers import Server, running
from tests.support.tokens import SECRET, data_url, token
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = """
def process(input, context):
    context.incr_counter("n", 1)
    return f"{input}{context.get_counter('n')}"
"""
COPY = "def process(input):\n    return input\n"
AUTHENTICATION = (
    "authenticationEnabled: true\nauthenticationProviders: [token]\nauthorizationEnabled: true\n"
    f"superUserRoles: [admin]\ntokenSecretKey: '{data_url(SECRET)}'\n"
)


class WithoutPort(Server):
    """A worker whose ports its file says."""

    def _port_flags(self) -> list[str]:
        return []


@contextmanager
def started_worker(directory: Path, settings: str, worker_id: str = "w") -> Iterator[WithoutPort]:
    """A worker whose file has these settings."""
    directory.mkdir(exist_ok=True)
    file = directory / "worker.yml"
    file.write_text(f"{settings}tlsEnabled: true\nworkerPortTls: 0\nworkerId: {worker_id}\n")
    worker = WithoutPort(("worker", "--data-dir", str(directory / "data"), "--config", str(file)), directory)
    try:
        worker.start()
        yield worker
    finally:
        worker.stop()


@dataclass
class Processes:
    """All of them, seen by the super-user."""

    authority: Authority
    broker: Server
    store: Server
    worker: Server
    settings: str

    @contextmanager
    def follower(self, directory: Path) -> Iterator[Server]:
        """One more worker."""
        with started_worker(directory, self.settings, "follower") as worker:
            yield worker

    def ask(
        self, method: str, path: str, role: str = "admin", *, at: Server | None = None, **given: Any
    ) -> httpx.Response:
        """Ask the broker, or a worker with TLS."""
        url = self.broker.web_url if at is None else at.worker_url
        trusting = ssl.create_default_context(cafile=str(self.authority.file))
        headers = {"Authorization": f"Bearer {token(role)}"}
        return httpx.request(method, url + path, headers=headers, timeout=60, verify=trusting, **given)

    def deploy(
        self,
        method: str,
        name: str,
        code: str,
        role: str = "admin",
        *,
        at: Server | None = None,
        runtime: str = "thread",
    ) -> httpx.Response:
        """Create or change a function of public/default."""
        config = {
            "tenant": "public", "namespace": "default", "name": name, "runtime": "PYTHON", "py": "f.py",
            "className": "f", "inputs": [f"{name}-in"], "output": f"{name}-out", "runtimeEnv": runtime,
        }  # fmt: skip
        files = {
            "functionConfig": (None, json.dumps(config), "application/json"),
            "data": ("f.py", code, "application/octet-stream"),
        }
        return self.ask(method, f"/admin/v3/functions/public/default/{name}", role, at=at, files=files)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    directory = tmp_path_factory.mktemp("internal")
    authority = Authority(directory / "ca")
    certificate = authority.issue("server", ["127.0.0.1"])
    key = directory / "state.key"
    key.write_bytes(bytes(range(32)))
    files = f"tlsCertificateFilePath: {certificate.file}\ntlsKeyFilePath: {certificate.key_file}\n"
    trust = f"brokerClientTrustCertsFilePath: {authority.file}\n"
    with ExitStack() as stack:

        def started(kind: str, text: str) -> Server:
            file = directory / f"{kind}.yml"
            file.write_text(text)
            return stack.enter_context(running(kind, directory / kind, "--config", str(file)))

        store = started("state-store", f"{files}stateStorageTokenSecretKey: {key}\n")
        broker = started(
            "broker",
            f"{AUTHENTICATION}{files}{trust}brokerServicePortTls: 0\nwebServicePortTls: 0\n"
            "brokerClientTlsEnabled: true\n",
        )
        settings = (
            f"{AUTHENTICATION}{files}{trust}"
            f"stateStorageServiceUrl: {store.addresses['stateStorageServiceUrl']}\nstateStorageTokenSecretKey: {key}\n"
            f"pulsarServiceUrl: {broker.addresses['brokerServiceUrlTls']}\n"
            f"pulsarWebServiceUrl: {broker.addresses['webServiceUrlTls']}\n"
        )
        worker = stack.enter_context(started_worker(directory / "worker", settings))
        yield Processes(authority, broker, store, worker, settings)


def test_nothing_of_it_answers_without_tls(processes: Processes) -> None:
    assert str(processes.store.addresses["stateStorageServiceUrl"]).startswith("bk+ssl://")
    assert processes.worker.worker_url == processes.worker.addresses["workerUrlTls"]
    assert processes.worker.worker_url.startswith("https://")
    with pytest.raises(httpx.HTTPError):
        httpx.get(processes.worker.worker_url.replace("https://", "http://"))


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_function_counts_in_a_state_store_with_tls(processes: Processes, runtime: str) -> None:
    name = f"count-{runtime}"
    path = f"/admin/v3/functions/public/default/{name}"
    answer = processes.deploy("POST", name, COUNT, runtime=runtime)
    assert answer.status_code == 204, answer.text
    client = pulsar.Client(
        processes.broker.service_url, authentication=pulsar.AuthenticationToken(token("admin")), logger=None
    )
    try:
        consumer = client.subscribe(f"{name}-out", "test")
        producer = client.create_producer(f"{name}-in")
        for number in (1, 2):
            producer.send(b"a")
            message = consumer.receive(30_000)
            consumer.acknowledge(message)
            assert message.data().decode() == f"a{number}"
    finally:
        client.close()
    wait_for(lambda: processes.ask("GET", f"{path}/state/n").json()["numberValue"] == 2, "the count that is stored")
    assert processes.ask("GET", path, "stranger").status_code == 401
    assert processes.ask("DELETE", path).status_code == 204


def test_who_asks_is_known_behind_broker_and_worker(processes: Processes, tmp_path: Path) -> None:
    grant = "/admin/v2/namespaces/public/default/permissions/alice"
    assert processes.ask("POST", grant, json=["functions", "produce", "consume"]).status_code == 204
    with processes.follower(tmp_path / "follower") as follower:
        # The broker asks the leader; the follower does, too, with what it has made of the request.
        for name, at in (("by-broker", None), ("by-follower", follower)):
            answer = processes.deploy("POST", name, COPY, "bob", at=at)
            assert answer.status_code == 401, answer.text
            answer = processes.deploy("POST", name, COPY, "alice", at=at)
            assert answer.status_code == 204, answer.text
            answer = processes.deploy("PUT", name, COPY + "# 1\n", "admin", at=at)
            assert (answer.status_code, "runs as 'alice'" in answer.text) == (403, True), answer.text
            answer = processes.deploy("PUT", name, COPY + "# 2\n", "alice", at=at)
            assert answer.status_code == 204, answer.text


def test_broker_that_trusts_another_authority_names_the_setting(processes: Processes, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    config = tmp_path / "broker.yml"
    config.write_text(f"brokerClientTrustCertsFilePath: {other.file}\n")
    with running("broker", tmp_path / "broker", "--config", str(config)) as broker:
        certificate = processes.authority.issue("lone", ["127.0.0.1"])
        settings = (
            f"tlsCertificateFilePath: {certificate.file}\ntlsKeyFilePath: {certificate.key_file}\n"
            f"pulsarServiceUrl: {broker.service_url}\npulsarWebServiceUrl: {broker.web_url}\n"
        )
        with started_worker(tmp_path / "worker", settings) as worker:
            answer = httpx.get(f"{broker.web_url}/admin/v3/functions/public/default", timeout=60)
    assert answer.status_code == 503
    reason = answer.json()["reason"]
    refusal = f"the functions worker at {worker.worker_url} did not respond (rejected the certificate of 127.0.0.1:"
    assert refusal in reason
    assert "brokerClientTrustCertsFilePath" in reason


def test_broker_that_asks_by_tls_alone_names_a_worker_without(tmp_path: Path) -> None:
    config = tmp_path / "broker.yml"
    config.write_text("brokerClientTlsEnabled: true\n")
    with running("broker", tmp_path / "broker", "--config", str(config)) as broker:
        urls = ("--service-url", broker.service_url, "--admin-url", broker.web_url)
        with running("worker", tmp_path / "worker", *urls) as worker:
            wait_for(
                lambda: httpx.get(f"{worker.worker_url}/admin/v2/worker/cluster/leader/ready").text == "true",
                "a leader",
            )
            answer = httpx.get(f"{broker.web_url}/admin/v3/functions/public/default", timeout=60)
    assert answer.status_code == 503
    assert answer.json()["reason"] == (
        f"the functions worker at {worker.worker_url} has no TLS, but brokerClientTlsEnabled requires TLS: set"
        " tlsEnabled and workerPortTls on the worker"
    )
