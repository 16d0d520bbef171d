"""Brokers for all worker tests, ours and Apache Pulsar, and a separate worker for each, in the test's event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.worker.config import WorkerConfig
from magnetar.worker.service import WorkerService

from tests.support.pulsar import BROKERS, Broker, own_name
from tests.support.servers import running


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "pulsar":
        yield request.getfixturevalue("apache_pulsar")
        return
    with running("broker", tmp_path_factory.mktemp("broker")) as server:
        yield server


@dataclass
class Cluster:
    """A worker with its own internal namespace, and clients for broker and worker."""

    service: WorkerService
    broker: Broker
    http: httpx.AsyncClient
    client: AsyncClient
    suffix: str

    def topic(self, name: str) -> str:
        """Return a unique topic name."""
        return f"persistent://public/default/{name}{self.suffix}"

    async def create(self, name: str, source: str, **config: Any) -> httpx.Response:
        """Create a function from the code of a module `<name>.py`; `className` defaults to `<name>.process`."""
        return await self.send("POST", name, {f"{name}.py": source.encode()}, **config)

    async def send(self, method: str, name: str, package: dict[str, bytes], **config: Any) -> httpx.Response:
        files: list[tuple[str, tuple[str | None, bytes, str]]] = []
        full: dict[str, Any] = dict(config)
        for file_name, content in package.items():
            full = {"className": f"{name}.process", "py": file_name, **config}
            files.append(("data", (file_name, content, "application/octet-stream")))
        files.insert(0, ("functionConfig", (None, json.dumps(full).encode(), "application/json")))
        return await self.http.request(method, f"/admin/v3/functions/public/default/{name}", files=files)

    async def deploy_connector(
        self, method: str, kind: str, name: str, config: Mapping[str, Any], package: tuple[str, bytes] | None = None
    ) -> httpx.Response:
        """Create one of the ``sources`` or ``sinks``, with an optional package given by file name and content."""
        files: dict[str, Any] = {f"{kind[:-1]}Config": (None, json.dumps(config).encode(), "application/json")}
        if package is not None:
            files["data"] = (*package, "application/octet-stream")
        return await self.http.request(method, f"/admin/v3/{kind}/public/default/{name}", files=files)

    async def get(self, path: str) -> Any:
        answer = await self.http.get(f"/admin/v3/functions/public/default/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str) -> httpx.Response:
        return await self.http.post(f"/admin/v3/functions/public/default/{path}")


def worker_config(broker: Broker, directory: Path, namespace: str, worker_id: str = "") -> WorkerConfig:
    return WorkerConfig(
        service_url=broker.service_url, admin_url=broker.web_url, data_dir=directory, worker_port=0,
        worker_id=worker_id, functions_namespace=namespace, trigger_timeout_s=30.0,
    )  # fmt: skip


@pytest.fixture
async def cluster(broker: Broker, tmp_path: Path) -> AsyncIterator[Cluster]:
    suffix = own_name("")
    service = WorkerService(worker_config(broker, tmp_path / "worker", f"public/functions{suffix}"))
    await service.start()
    try:
        async with (
            httpx.AsyncClient(base_url=service.worker_url, timeout=60) as http,
            AsyncClient(broker.service_url) as client,
        ):
            yield Cluster(service, broker, http, client, suffix)
    finally:
        await service.stop()
