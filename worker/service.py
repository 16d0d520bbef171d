"""Worker service: starts the parts of a worker in order, and stops them in reverse order.

On startup, the worker opens the REST port (and responds that it is not ready), creates missing internal topics, reads
both logs to the end, and starts its instances. Only then does it join the election and serve requests. On shutdown,
instances end while the worker is still a member, so that they are not reassigned as abandoned.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

import httpx

from ..client.client import AsyncClient
from ..client.config import SERVICE_BACKOFF_MAX_MS, ClientConfig
from ..errors import MagnetarError
from ..membership.manager import Member, parse_member
from ..runtime.manager import FetchPackage, RuntimeManager
from ..security.authentication.opening import open_authenticator
from ..security.client_credentials import ClientCredentials
from ..tasks import Backoff, Retry, TaskSet
from ..web.async_client import pool
from ..web.authenticated import AuthenticatedRequests
from ..web.same_site import allowed_names
from ..web.serve import serve
from .admission import check_id, check_namespace, check_tls
from .assembly import Connections, Parts, make_runtime_manager
from .cluster.broker_admin import BrokerAdmin
from .cluster.state_discovery import announced_state_store
from .config import WorkerConfig
from .functions.owners import Owners
from .rest.app import ReadinessGate

SWITCH_INTERVAL_S = 0.0005
"""Thread switch interval in seconds.

Thread instances share this process, and would block the event loop for the default of 5 ms.
"""

MakeRuntime = Callable[[WorkerConfig, str, FetchPackage, Owners], Awaitable[RuntimeManager]]
"""Creates the runtime manager from the worker's settings, its id, the package fetcher and the owners."""

_START_TIMEOUT_S = 60.0
_REACH_TIMEOUT_S = 5.0
_RETRY_S = 1.0
_UNREACHED = (MagnetarError, TimeoutError)
_LEAD_TIMEOUT_S = 5.0
"""Time limit in seconds for a first worker to become the leader before it serves requests anyway."""
_log = logging.getLogger(__name__)


class WorkerService:
    """A worker of the cluster."""

    def __init__(self, config: WorkerConfig, make_runtime: MakeRuntime = make_runtime_manager) -> None:
        """Create a worker; `start` starts it.

        Args:
            config: worker settings.
            make_runtime: creates the runtime manager; replaced in tests.
        """
        self.config = config
        self._make_runtime = make_runtime
        self._stack = AsyncExitStack()
        self._failure: asyncio.Future[None] | None = None
        self._tasks = TaskSet("worker")
        self.worker_id = config.worker_id
        self.worker_url = ""
        self.worker_tls_url = ""

    async def start(self) -> None:
        """Start the worker, and return once it serves requests.

        Cancellation: all started parts are stopped.

        Raises:
            MagnetarError: the port is in use, or the broker did not answer.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._failure = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_START_TIMEOUT_S + self.config.broker_wait_s):
                await self._start()
        except TimeoutError as exc:
            await self.stop()
            raise MagnetarError(
                f"the worker was not ready within {_START_TIMEOUT_S:g} s; is the broker at {self.config.service_url}"
                f" and {self.config.admin_url} running?"
            ) from exc
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        config, stack = self.config, self._stack
        gate = ReadinessGate()
        port, tls_port = await self._serve(gate)
        self.worker_id = config.worker_id or f"{config.reachable_host}-{port or tls_port}"
        me = Member(self.worker_id, config.reachable_host, port or tls_port, tls_port)
        if parse_member(me.consumer_name) != me:
            raise MagnetarError(
                f"worker id {self.worker_id[:80]!r} on host {config.reachable_host[:80]!r} cannot be announced to other"
                " workers: --worker-id must be at most 255 printable characters, and --host letters, digits, dots and"
                " dashes"
            )
        self._tasks.owner = f"worker {self.worker_id}"
        self.worker_url = me.url if me.is_tls_only else me.plain_url
        self.worker_tls_url = me.url if tls_port else ""
        owners, connections = await self._connect()
        admin, http, client, _ = connections
        config = self.config
        await self._reach("--admin-url", config.admin_url, lambda: admin.has_tenant("public"))
        self.config = config = await self._with_state_store()
        await admin.ensure_namespace(config.functions_namespace, config.cluster)
        for local in config.topics:
            await admin.ensure_topic(config.topic(local))
        coordination = config.topic(config.coordination_topic)
        await self._reach("--service-url", config.service_url, lambda: client.partitions(coordination))
        stats = await admin.topic_stats(coordination)
        check_tls(me, stats)
        await check_id(me, stats, http)
        parts = Parts(config, me, connections, owners)
        stack.push_async_callback(parts.tables.close)
        stack.push_async_callback(parts.code_check.close)
        await asyncio.to_thread(parts.packages.prepare)
        self._spawn("metadata log", parts.metadata.log.run)
        self._spawn("assignments log", parts.scheduler.log.run)
        self._spawn("package index", parts.package_index.log.run)
        await parts.metadata.log.catch_up()
        await parts.scheduler.log.catch_up()
        await parts.package_index.log.catch_up()
        check_namespace(config.functions_namespace, stats, parts.metadata.all())
        self._spawn("election", lambda: parts.leadership.run_election(self.worker_id))
        self._keep("schedule", parts.scheduling.run)
        self._keep("version trials", parts.trials.run)
        self._keep("state changes", parts.state_changes.run)
        if parts.owners.is_enabled:
            self._keep("token renewal", parts.keep_tokens)
        self._keep("package cleanup", parts.package_cleanup.run)
        self._keep("log compaction", parts.keep_compacted)
        # A stopping leader keeps responding until it has left the cluster; then others use the next leader.
        stack.callback(gate.close)
        stack.push_async_callback(parts.membership.stop)
        runtime = await self._make_runtime(config, self.worker_id, parts.fetch_package, parts.owners)
        stack.push_async_callback(runtime.close)
        self._spawn("instances", lambda: parts.run_instances(runtime))
        await parts.membership.start()
        await parts.leadership.ready(_LEAD_TIMEOUT_S)
        gate.open(parts.make_app(runtime))
        _log.info("worker %s is serving on %s", self.worker_id, self.worker_url)

    async def _connect(self) -> tuple[Owners, Connections]:
        """Return the owners of functions, and this worker's connections with its own credentials."""
        config, stack = self.config, self._stack
        tokens = config.data_dir / "run" / "tokens"
        owners = Owners(config.security, config.client_security, config.authorization.super_user_roles, tokens)
        own = await asyncio.to_thread(owners.own_security)
        self.config = replace(config, client_security=own)
        credentials = ClientCredentials(own)
        admin = await stack.enter_async_context(aclosing(BrokerAdmin(config.admin_url, credentials)))
        http = await stack.enter_async_context(pool(httpx.Timeout(10.0), credentials=credentials))
        settings = ClientConfig(backoff_max_ms=SERVICE_BACKOFF_MAX_MS, **self.config.broker_security.to_dict())
        client = await stack.enter_async_context(AsyncClient(config.service_url, settings, admin_url=config.admin_url))
        elsewhere = await stack.enter_async_context(pool(httpx.Timeout(10.0)))
        return owners, Connections(admin, http, client, elsewhere)

    async def _with_state_store(self) -> WorkerConfig:
        """Return the settings, with the state store announced by the broker if they contain none.

        With authentication, the state store requires a token from each worker, signed with its key.
        """
        config = self.config
        is_secured = config.security.enabled or bool(config.client_security.auth_plugin)
        if config.state_url or (is_secured and not config.state_key_file):
            return config
        credentials = ClientCredentials(config.client_security)
        found = await asyncio.to_thread(announced_state_store, config.admin_url, credentials)
        if found is None:
            return config
        _log.info("using the state store %s announced by the broker", found.url)
        return replace(config, state_url=found.url)

    async def _serve(self, gate: ReadinessGate) -> tuple[int, int]:
        """Open the REST ports and return their numbers without and with TLS; 0 for none."""
        config, stack = self.config, self._stack
        authenticator = await asyncio.to_thread(open_authenticator, config.security)
        if authenticator is not None:
            stack.callback(authenticator.close)
        app = AuthenticatedRequests(gate, authenticator)
        names = allowed_names(config.host, config.allowed_hosts, config.reachable_host)
        port = tls_port = 0
        if config.worker_tls_port is not None:
            config.tls.check_together("workerPortTls")
            from ..security.server_tls import TlsServerContext  # imports ssl

            tls = await asyncio.to_thread(TlsServerContext, config.tls)
            self._keep("certificates", tls.keep_current)
            server, tls_port = await serve(app, config.host, config.worker_tls_port, names, tls=tls.context)
            stack.push_async_callback(server.stop)
        if config.worker_port is not None:
            server, port = await serve(app, config.host, config.worker_port, names)
            stack.push_async_callback(server.stop)
        return port, tls_port

    async def _reach(self, flag: str, url: str, ask: Callable[[], Awaitable[object]]) -> None:
        """Check an address, and wait as configured for a broker that is not running yet."""
        retry = Retry(
            _UNREACHED, Backoff(_RETRY_S, _RETRY_S), self.config.broker_wait_s, is_final=lambda _: False,
            on_failure=lambda _: _log.info("no broker at %s yet; retrying", url),
        )  # fmt: skip
        try:
            await retry.call(lambda: asyncio.wait_for(ask(), _REACH_TIMEOUT_S))
        except _UNREACHED as exc:
            reason = " ".join(str(exc).split()) or f"no answer within {_REACH_TIMEOUT_S:g} s"
            raise MagnetarError(
                f"no broker answered at {url}: {reason}; start one (magnetar broker) or correct {flag}"
            ) from exc

    def _spawn(self, name: str, make_work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run an essential part until the worker stops; if it fails, the worker fails."""

        async def lasting() -> None:
            await make_work()
            raise MagnetarError(f"the task {name} of worker {self.worker_id} ended")

        self._stack.push_async_callback(_cancelled, self._tasks.start(lasting(), name, self._fail))

    def _keep(self, name: str, make_work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part until the worker stops; log failures and restart the part."""
        self._stack.push_async_callback(_cancelled, self._tasks.keep(make_work, name))

    def _fail(self, failure: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(failure)

    async def wait_failed(self) -> None:
        """Never return; raise if this worker cannot continue and must be restarted. Cancellation: safe."""
        if self._failure is None:
            raise MagnetarError("the worker was not started")
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop instances, leave the cluster and release all resources; does nothing if already stopped."""
        if self._failure is not None and not self._failure.cancel() and not self._failure.cancelled():
            self._failure.exception()
        await self._stack.aclose()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
