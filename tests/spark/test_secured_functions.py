"""Spark functions on servers that ask who connects: driver and tasks show what their function's owner may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.spark.spark_cluster import ON_BOTH_MASTERS, Master
from tests.spark.topics import numbered
from tests.support.servers import Server
from tests.support.tokens import SECRET, data_url, token
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.matrix, pytest.mark.timeout(400), ON_BOTH_MASTERS]

EACH = "def process(input):\n    return str(input) + '!'\n"
FRAME = """
def process(df):
    return df.selectExpr("concat(cast(value AS string), '!') AS value")
"""


class Secured:
    """Standalone with authentication and authorization, seen by its roles."""

    def __init__(self, server: Server) -> None:
        self.server = server
        for method, path, body in (
            ("PUT", "/admin/v2/tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}),
            ("PUT", "/admin/v2/namespaces/acme/x", None),
            # Owners may not set it themselves, and an exactly-once function on Spark needs it on its output topic.
            ("POST", "/admin/v2/namespaces/acme/x/deduplication", True),
            ("POST", "/admin/v2/namespaces/acme/x/permissions/alice", ["functions", "produce", "consume"]),
            ("POST", "/admin/v2/namespaces/acme/x/permissions/bob", ["functions"]),
        ):
            answer = self.call(method, path, json=body)
            assert answer.status_code == 204, answer.text

    def call(self, method: str, path: str, role: str = "admin", **given: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token(role)}"}
        return httpx.request(method, self.server.web_url + path, headers=headers, timeout=300, **given)

    def deploy(self, name: str, role: str, source: str) -> httpx.Response:
        config = {
            "tenant": "acme", "namespace": "x", "name": name, "runtime": "PYTHON", "py": "f.py",
            "className": "f.process", "runtimeEnv": "spark", "subscriptionPosition": "Earliest",
            "inputs": [f"persistent://acme/x/{name}-in"], "output": f"persistent://acme/x/{name}-out",
        }  # fmt: skip
        files = {
            "functionConfig": (None, json.dumps(config), "application/json"),
            "data": ("f.py", source, "application/octet-stream"),
        }
        return self.call("POST", f"/admin/v3/functions/acme/x/{name}", role, files=files)

    def run(self, name: str) -> dict[str, Any]:
        path = f"/admin/v3/functions/acme/x/{name}"
        wait_for(
            lambda: self.call("GET", f"{path}/status").json()["instances"][0]["status"]["running"], "the function", 90
        )
        return dict(self.call("POST", f"{path}/trigger", "alice").json())

    def exchange(self, name: str, payloads: list[bytes], run: Callable[[], dict[str, Any]]) -> list[bytes]:
        """What a function puts out for these payloads."""
        import pulsar

        client = pulsar.Client(
            self.server.service_url,
            authentication=pulsar.AuthenticationToken(token("alice")),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        consumer = client.subscribe(f"persistent://acme/x/{name}-out", "test")
        producer = client.create_producer(f"persistent://acme/x/{name}-in")
        for payload in payloads:
            producer.send(payload)
        end = run()
        assert end.get("stage") == "done", end
        found = [consumer.receive(30_000).data() for _ in payloads]
        client.close()
        return sorted(found)


@pytest.fixture(scope="module")
def secured(master: Master, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    config = directory / "standalone.yml"
    settings = "".join(f"\n  {name}: {value}" for name, value in master.settings.items()) or " {}"
    config.write_text(
        "authenticationEnabled: true\nauthenticationProviders: [token]\nauthorizationEnabled: true\n"
        f"superUserRoles: [admin]\ntokenSecretKey: '{data_url(SECRET)}'\n"
        f"sparkMaster: '{master.url}'\nsparkDriverMemory: 512m\nsparkClassArchive: false\nsparkStartAhead: false\n"
        f"sparkSettings:{settings}\n"
    )
    server = Server(("standalone", "--data-dir", str(directory / "data"), "--config", str(config)), directory)
    server.environment = dict(master.environment)
    try:
        server.start()
        yield Secured(server)
    finally:
        server.stop()


@pytest.mark.parametrize("source", [EACH, FRAME], ids=["messages", "frame"])
def test_a_run_reads_and_writes_as_who_deployed_it(secured: Secured, source: str) -> None:
    name = "each" if source == EACH else "frame"
    answer = secured.deploy(name, "alice", source)
    assert answer.status_code == 204, answer.text
    payloads = numbered(20)
    outputs = secured.exchange(name, payloads, lambda: secured.run(name))
    assert outputs == sorted(payload + b"!" for payload in payloads)
    status = secured.call("GET", f"/admin/v3/functions/acme/x/{name}/status", "alice").json()
    assert status["instances"][0]["status"]["run"]["lag"] == 0


def test_a_function_whose_owner_may_not_is_refused(secured: Secured) -> None:
    answer = secured.deploy("bobs", "bob", EACH)
    assert answer.status_code in (401, 403), answer.text


def test_outputs_go_to_a_topic_with_partitions_too(secured: Secured) -> None:
    answer = secured.call("PUT", "/admin/v2/persistent/acme/x/parted-out/partitions", json=2)
    assert answer.status_code == 204, answer.text
    answer = secured.deploy("parted", "alice", EACH)
    assert answer.status_code == 204, answer.text
    assert secured.exchange("parted", [b"a", b"b"], lambda: secured.run("parted")) == [b"a!", b"b!"]
