"""A broker with authentication and authorization, and a worker beside it whose handlers do nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from magnetar.broker.admin.app import AdminApp
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.config import StorageConfig
from magnetar.broker.storage.store import Storage
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.web.authenticated import AuthenticatedRequests
from magnetar.web.serve import serve
from magnetar.worker.functions.components import SINK, SOURCE
from magnetar.worker.rest.app import WorkerCall, make_app
from magnetar.worker.rest.cluster import ClusterRoutes
from magnetar.worker.rest.connectors import ConnectorRoutes
from magnetar.worker.rest.deployments import DeploymentRoutes
from magnetar.worker.rest.functions import FunctionsRoutes
from magnetar.worker.rest.guard import WorkerGuard
from magnetar.worker.rest.packages import PackagesRoutes
from magnetar.worker.rest.state import StateRoutes

from tests.broker.raw import Raw
from tests.support.tokens import PROVIDER_TOKEN, SECRET, data_url, token

STORAGE = StorageConfig(journal_file_bytes=4 * 1024 * 1024, checkpoint_bytes=2 * 1024 * 1024)
SETTINGS = AuthorizationSettings(is_enabled=True, super_user_roles=("superuser",), proxy_roles=("proxy",))
NOTHING: Any = None


@dataclass
class Secured:
    """The running broker and worker, and a client for the web port."""

    service: BrokerService
    namespaces: Namespaces
    web_url: str
    http: httpx.AsyncClient

    async def call(
        self, role: str | None, method: str, path: str, body: Any = NOTHING, original: str | None = None
    ) -> httpx.Response:
        """Send a request as a role, with its token."""
        headers = {"authorization": f"Bearer {token(role)}"}
        if original is not None:
            headers["x-original-principal"] = original
        return await self.send(method, path, headers, body)

    async def send(self, method: str, path: str, headers: dict[str, str], body: Any = NOTHING) -> httpx.Response:
        """Send a request with these headers and an unmodified path."""
        url = httpx.URL(self.web_url).copy_with(raw_path=path.encode())
        more = {} if body is None else {"json": body}
        return await self.http.request(method, url, headers=headers, **more)

    async def superuser(self, method: str, path: str, body: Any = NOTHING) -> None:
        """Send a request that must succeed."""
        answer = await self.call("superuser", method, path, body)
        assert answer.is_success, (method, path, answer.status_code, answer.text)

    async def connect(self, role: str | None, original: str = "") -> Raw:
        """Open a connection as a role."""
        raw = await Raw.open(self.service.port)
        more = {"original_principal": original} if original else {}
        raw.send(
            "CONNECT", client_version="raw", protocol_version=21, auth_method_name="token",
            auth_data=token(role).encode(), **more,
        )  # fmt: skip
        assert (await raw.receive()).command.HasField("connected")
        return raw


def worker_tables() -> Iterator[Any]:
    """The routes of a worker with handlers that do nothing."""
    functions: Any = SimpleNamespace(of=lambda kind: SimpleNamespace(component=kind))
    connectors = [ConnectorRoutes(functions.of(kind), NOTHING, NOTHING, NOTHING) for kind in (SOURCE, SINK)]
    parts: tuple[Any, ...] = (
        StateRoutes(NOTHING, NOTHING),
        FunctionsRoutes(*[NOTHING] * 7),
        DeploymentRoutes(functions, NOTHING, NOTHING, NOTHING),
        ClusterRoutes(*[NOTHING] * 5),
        PackagesRoutes(NOTHING, NOTHING),
        *connectors,
    )
    for routes in parts:
        yield [(method, path, _done) for method, path, _ in routes.routes()]


def _done(_: WorkerCall) -> None:
    """Respond with 204."""


async def _metrics() -> bytes:
    return b""


@contextlib.asynccontextmanager
async def secured(
    directory: Path, authorization: AuthorizationSettings = SETTINGS, **security: Any
) -> AsyncIterator[Secured]:
    """Run a broker, and a worker to which it forwards requests for functions."""
    settings = ServerSecurity(
        enabled=True, providers=(PROVIDER_TOKEN,), token_secret_key=data_url(SECRET),
        proxy_roles=authorization.proxy_roles, **security,
    )  # fmt: skip
    config = BrokerConfig(data_dir=directory, broker_port=0, web_port=0, security=settings, authorization=authorization)
    async with contextlib.AsyncExitStack() as opened:
        store = SqliteStore.open(directory / "metadata.db")
        opened.push_async_callback(store.close)
        namespaces = Namespaces(store, config)
        await namespaces.start()
        storage = Storage.open(directory / "data", STORAGE)
        opened.push_async_callback(storage.close)
        storage.attach(asyncio.get_running_loop())
        service = BrokerService(config, storage, namespaces)
        await service.start()
        opened.push_async_callback(service.stop)
        assert service.authorization is not None
        worker_app = make_app(worker_tables(), _metrics, WorkerGuard(authorization, service.authorization))
        worker, worker_port = await serve(AuthenticatedRequests(worker_app, service.authenticator), "127.0.0.1", 0)
        opened.push_async_callback(worker.stop)
        app = AdminApp(service, namespaces, lambda: f"http://127.0.0.1:{worker_port}")
        opened.push_async_callback(app.close)
        web, port = await serve(AuthenticatedRequests(app, service.authenticator), "127.0.0.1", 0)
        opened.push_async_callback(web.stop)
        http = await opened.enter_async_context(httpx.AsyncClient(timeout=60))
        yield Secured(service, namespaces, f"http://127.0.0.1:{port}", http)


async def make_golden_world(broker: Secured) -> None:
    """Create what the recordings require: tenant sec, namespace sec/ns, its grants and topics."""
    tenant = {"adminRoles": ["tenantadmin"], "allowedClusters": ["standalone"]}
    namespace = "/admin/v2/namespaces/sec/ns"
    await broker.superuser("PUT", "/admin/v2/tenants/sec", tenant)
    await broker.superuser("PUT", namespace)
    for role, action in (
        ("consumer", "consume"), ("producer", "produce"), ("functions", "functions"), ("sources", "sources"),
        ("sinks", "sinks"), ("packages", "packages"),
    ):  # fmt: skip
        await broker.superuser("POST", f"{namespace}/permissions/{role}", [action])
    topics = "/admin/v2/persistent/sec/ns"
    for topic in ("t", "in", "out"):
        await broker.superuser("PUT", f"{topics}/{topic}")
    await broker.superuser("PUT", f"{topics}/p/partitions", 2)
    await broker.superuser("PUT", f"{topics}/t/subscription/s")
    schema = {"type": "STRING", "schema": "", "properties": {}}
    await broker.superuser("POST", "/admin/v2/schemas/sec/ns/t/schema", schema)
