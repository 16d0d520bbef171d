"""The admin REST application of the broker.

It deliberately uses plain Starlette. Pulsar's admin API is lenient where a framework such as FastAPI validates, has its
own error format, and needs undecoded paths. FastAPI with pydantic would add 16 MB and 0.16 s to every process, and each
of these features would have to be disabled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ... import __version__
from ...web.openapi import pages
from ...web.router import raw_path
from ...wire.topic_name import DOMAINS
from ..policies.namespaces import Namespaces
from . import absent, broker_stats, brokers, clusters, permissions, resource_groups, resource_quotas, schemas, tenants
from .call import Call
from .forward import PACKAGES, Forwarder, WorkerTls, forwards
from .forwarded_identity import Vouch
from .guard import guard_of
from .namespaces import encryption_policy, namespaces, placement, refused_policies, schema_policies
from .namespaces import policies as namespace_policies
from .routing import make_router
from .topics import messages, partitions, subscriptions, topics
from .topics import policies as topic_policies

if TYPE_CHECKING:
    from ..service import BrokerService


async def _metrics(call: Call) -> Response:
    from .metrics import metrics  # imported here to load prometheus_client only on request

    return await metrics(call)


ROUTES = (
    *absent.ROUTES,  # first, as it has literal parts where other paths have parameters
    *placement.ROUTES,  # for the same reason
    *permissions.ROUTES,
    *resource_groups.ROUTES,
    *resource_quotas.ROUTES,
    *clusters.ROUTES,
    *tenants.ROUTES,
    *namespace_policies.ROUTES,
    *schema_policies.ROUTES,
    *encryption_policy.ROUTES,
    *refused_policies.ROUTES,
    *namespaces.ROUTES,
    *brokers.ROUTES,
    *broker_stats.ROUTES,
    *schemas.ROUTES,
    ("GET", "/metrics", _metrics),
    # `{domain}` matches any word, so topics come last.
    *partitions.ROUTES,
    *subscriptions.ROUTES,
    *messages.ROUTES,
    *topics.ROUTES,
    *topic_policies.ROUTES,
)


class AdminApp:
    """The broker's admin REST API as an ASGI application. Call `close` after stopping the server that runs it."""

    def __init__(
        self,
        broker: BrokerService,
        namespaces: Namespaces,
        worker_url: Callable[[], str | None],
        is_worker_enabled: bool = True,
        vouch: Vouch | None = None,
    ) -> None:
        """Create the application for one broker.

        Args:
            broker: the broker whose topics are served.
            namespaces: the broker's tenants, namespaces and policies.
            worker_url: called for each functions request; returns the URL of a live worker (``http://host:port`` or
                ``https://…``), or None.
            is_worker_enabled: False if the broker runs without functions.
            vouch: asserts to the worker the role of callers authenticated by certificate.
        """
        self._worker_url = worker_url
        to_workers = WorkerTls(broker.config.client_security.tls_trust_certs_file, broker.config.asks_by_tls_only)
        self._forwarder = Forwarder(worker_url, is_worker_enabled, vouch, to_workers)
        shown = pages("Magnetar broker", __version__, ROUTES, {"domain": DOMAINS})
        self._router = make_router(
            lambda request: Call(request, broker, namespaces, is_worker_enabled),
            (*shown, *ROUTES),
            guard_of(broker.authorization),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = raw_path(scope)
        # Packages are stored by workers; without a worker, these paths return an error.
        is_forwarded = forwards(path) or (path.startswith(PACKAGES) and self._worker_url() is not None)
        app = self._forwarder if is_forwarded else self._router
        await app(scope, receive, send)

    async def close(self) -> None:
        """Close the connections to workers."""
        await self._forwarder.close()
