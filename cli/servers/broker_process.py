"""Assembly of a broker in one process: storage, metadata, dispatch, admin REST."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from ...broker.admin.app import AdminApp
from ...broker.admin.call import LISTENER
from ...broker.admin.forwarded_identity import Vouch
from ...broker.config import BrokerConfig
from ...broker.policies.namespaces import Namespaces
from ...broker.service import BrokerService
from ...broker.storage.config import StorageConfig
from ...broker.storage.store import Storage
from ...membership.manager import parse_member
from ...metadata.store.url import open_store, parse_store_url
from ...security.open_files import raise_limit
from ...web.authenticated import AuthenticatedRequests
from ...web.same_site import allowed_names
from ...web.serve import serve
from .data_directory import METADATA_FILE, STORAGE_FOLDER, DataDirectory
from .lifetime import port_failure

GC_THRESHOLDS = (50_000, 20, 50)
"""Allocations between cyclic garbage collections. Every entry in flight consists of a few tuples without cycles: with
Python's default of 700, scanning them took a quarter of the event loop's time when publishing without batching.
"""

WorkerUrl = Callable[[], str | None]
StateStoreUrl = Callable[[], str | None]
log = logging.getLogger(__name__)


def reachable(host: str) -> str:
    """Return the address at which a listener on ``host`` is reachable from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 (only compared, not bound)


def of_listener(app: ASGIApp, listener: str) -> ASGIApp:
    """Return an application for an advertised listener's socket that adds the listener's name to requests."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, LISTENER: listener}, receive, send)

    return marked


class BrokerProcess:
    """A broker that runs in this process.

    Attributes:
        broker_url: address of the binary protocol.
        worker_broker_url: broker address for standalone's own worker, independent of advertised addresses.
        web_url: address of the REST interface.
        broker_tls_url: like `broker_url` with TLS; empty without a TLS listener.
        web_tls_url: like `web_url` with TLS; empty without a TLS listener.
    """

    def __init__(
        self, config: BrokerConfig, storage_config: StorageConfig, directory: DataDirectory, forward_key: str = ""
    ) -> None:
        """Create a broker that `start` starts.

        Args:
            config: broker configuration.
            storage_config: storage configuration.
            directory: data directory.
            forward_key: key shared with the supervised worker; see `ServerSecurity`.
        """
        self.broker_url = ""
        self.worker_broker_url = ""
        self.web_url = ""
        self.broker_tls_url = ""
        self.web_tls_url = ""
        self._config = config
        self._storage_config = storage_config
        self._directory = directory
        self._forward_key = forward_key
        self._opened = AsyncExitStack()

    def __repr__(self) -> str:
        return f"BrokerProcess(data={str(self._directory.path)!r}, broker_url={self.broker_url!r})"

    @property
    def addresses(self) -> dict[str, str | int]:
        """Addresses to announce, by the names of Pulsar's client settings."""
        found: dict[str, str | int] = {"brokerServiceUrl": self.broker_url, "webServiceUrl": self.web_url}
        if self.broker_tls_url:
            found["brokerServiceUrlTls"] = self.broker_tls_url
        if self.web_tls_url:
            found["webServiceUrlTls"] = self.web_tls_url
        return found

    async def start(self, supervised_worker: WorkerUrl | None, state_store_url: StateStoreUrl | None = None) -> None:
        """Recover the data, then listen: first on the binary protocol's port, then on the web port.

        Args:
            supervised_worker: returns the worker that receives functions requests while no worker takes part in the
                election; None for a broker without functions.
            state_store_url: returns the URL of this broker's state store, to announce it; None without a state store.

        Raises:
            StorageError: the data cannot be read, or the metadata store does not respond.
            Failure: a port cannot be opened.
        """
        opened, config = self._opened, self._config
        raise_limit()
        opened.callback(self._directory.close)
        metadata_file = self._directory.path / METADATA_FILE
        if parse_store_url(config.metadata_store_url) != parse_store_url("") and metadata_file.exists():
            log.warning("ignoring existing %s because metadataStoreUrl is %s", metadata_file, config.metadata_store_url)
        store = await open_store(config.metadata_store_url, metadata_file, config.metadata_timeout_s)
        opened.push_async_callback(store.close)
        storage = await asyncio.to_thread(Storage.open, self._directory.path / STORAGE_FOLDER, self._storage_config)
        opened.push_async_callback(storage.close)
        storage.attach(asyncio.get_running_loop())
        namespaces = Namespaces(store, config)
        await namespaces.start()
        service = BrokerService(config, storage, namespaces, time.time)
        service.state_store_url = state_store_url

        by_tls = config.asks_by_tls_only or bool(config.client_security.tls_trust_certs_file)

        def worker_url() -> str | None:
            named = (parse_member(name, properties) for name, properties in service.election_participants())
            live = next((member for member in named if member is not None), None)
            if live is not None:
                return live.url_for(by_tls=by_tls)
            return supervised_worker() if supervised_worker is not None else None

        try:
            await service.start()
        except OSError as exc:
            raise port_failure(exc, config.host, config.broker_port, "--broker-port") from exc
        opened.push_async_callback(service.stop)
        is_enabled = supervised_worker is not None
        app = AdminApp(service, namespaces, worker_url, is_enabled, self._voucher())
        opened.push_async_callback(app.close)
        await self._serve_web(service, AuthenticatedRequests(app, service.authenticator))
        self.broker_url, self.broker_tls_url = service.broker_url, service.broker_tls_url
        self.worker_broker_url = service.advertised.own_url or service.broker_url
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    def _voucher(self) -> Vouch | None:
        if not self._forward_key:
            return None
        from ...security.authentication.forwarded import forwarded_token

        key = bytes.fromhex(self._forward_key)
        return lambda role: forwarded_token(role, key, time.time())

    async def _serve_web(self, service: BrokerService, app: AuthenticatedRequests) -> None:
        config = self._config
        names = allowed_names(config.host, config.allowed_hosts, *service.advertised.hosts)
        web, port = await serve(app, config.host, config.web_port, names)
        self._opened.push_async_callback(web.stop)
        service.web_port = port
        self.web_url = f"http://{reachable(config.host)}:{port}"
        if config.web_tls_port is not None and service.tls is not None:
            tls = service.tls.context
            web, port = await serve(app, config.host, config.web_tls_port, names, tls=tls)
            self._opened.push_async_callback(web.stop)
            service.web_tls_port = port
            self.web_tls_url = f"https://{reachable(config.host)}:{port}"
        for one in config.bind_addresses:
            if one.scheme in ("http", "https"):
                context = service.tls.context if one.has_tls and service.tls is not None else None
                web, _ = await serve(of_listener(app, one.listener), one.host, one.port, names, tls=context)
                self._opened.push_async_callback(web.stop)

    async def stop(self) -> None:
        """Stop all parts in reverse order: first requests, then connections, then storage."""
        await self._opened.aclose()
