"""One admin request: its path parameters, query and body, and access to the broker."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ...errors import InvalidTopicName, ServiceNotReady
from ...web import call as web_call
from ...web.answers import Refused
from ...web.call import decoded
from ...wire.topic_name import TopicName, parse_topic_name
from ..config import ALL_ADDRESSES
from ..policies.namespaces import Namespaces
from ..policies.policies import Policies
from ..storage.cursors.names import is_internal
from . import bodies

if TYPE_CHECKING:
    from ..service import BrokerService

NAME = re.compile(r"[-=:.\w]+", re.ASCII)
"""Pattern of a tenant, namespace or cluster name."""
LISTENER = "magnetar.listener"
"""Key in a request's scope for the advertised listener of its socket."""
_DOTS = (".", "..")
"""Names that no metadata store accepts."""
_LONG = re.compile(r"-?[0-9]{1,19}")
_INT64 = range(-(1 << 63), 1 << 63)
MAX_NAME_BYTES = 128
"""Maximum length of a tenant, namespace or cluster name, used in directories, process titles and longer names."""
MAX_SUBSCRIPTION_BYTES = 1024


class Call(web_call.Call):
    """A request in progress, created by the router.

    Attributes:
        broker: the broker, with its topics and subscriptions.
        namespaces: tenants, namespaces and policies.
        is_worker_enabled: False if the broker was started without functions.
    """

    def __init__(
        self, request: Request, broker: BrokerService, namespaces: Namespaces, is_worker_enabled: bool
    ) -> None:
        super().__init__(request)
        self.broker = broker
        self.namespaces = namespaces
        self.is_worker_enabled = is_worker_enabled

    @property
    def host(self) -> str:
        """The broker id as host:port: the advertised address, or the host of this request if none is set."""
        return self.broker.broker_id if self.broker.advertised.host else self._own_host

    @property
    def _own_host(self) -> str:
        """The Host header of this request, as host:port."""
        host = self.request.headers.get("host")
        if host:
            return host
        address, port = self.request.scope["server"]
        return f"{address}:{port}"

    @property
    def listener(self) -> str:
        """The advertised listener that the client requested or connected to, or an empty string."""
        asked = self.request.query_params.get("listenerName") or self.request.headers.get("x-pulsar-listenername") or ""
        return asked.strip() or str(self.request.scope.get(LISTENER, ""))

    @property
    def broker_url(self) -> str:
        """Binary protocol URL, with this request's host if the broker listens on all addresses."""
        return self._lookup_urls[0]

    @property
    def broker_tls_url(self) -> str:
        """Binary protocol URL with TLS, or an empty string if TLS is disabled."""
        return self._lookup_urls[1]

    @property
    def _lookup_urls(self) -> tuple[str, str]:
        broker = self.broker
        try:
            url, tls_url = broker.lookup_urls(self.listener)
        except ServiceNotReady as error:
            raise Refused(400, str(error)) from error
        if self.listener or broker.advertised.host:
            return url, tls_url
        tls_url = self._reachable(tls_url, f"pulsar+ssl://{{}}:{broker.tls_port}")
        return self._reachable(url, f"pulsar://{{}}:{broker.port}"), tls_url

    @property
    def web_url(self) -> str:
        """URL of this REST API without TLS, as far as known."""
        return self._advertised_web("http", self.broker.web_port)

    @property
    def web_tls_url(self) -> str:
        """URL of this REST API with TLS, or an empty string if TLS is disabled."""
        return self._advertised_web("https", self.broker.web_tls_port) if self._has_web_tls else ""

    @property
    def _has_web_tls(self) -> bool:
        urls = self.broker.config.advertised_listeners.values()
        return self.broker.web_tls_port is not None or any("https" in one for one in urls)

    def _advertised_web(self, scheme: str, port: int | None) -> str:
        """Return the advertised address for a scheme, preferably the listener's, or else this request's host."""
        advertised = self.broker.advertised
        listener = self.listener if self.listener in self.broker.config.advertised_listeners else ""
        found = (listener and advertised.url(scheme, port, listener)) or advertised.url(scheme, port)
        return found or self._web_url(scheme, port)

    @property
    def state_store_url(self) -> str | None:
        """Address of the broker's state store, or None while the store is starting."""
        assert self.broker.state_store_url is not None
        url = self.broker.state_store_url()
        if url is None or self.broker.config.security.enabled:  # with security, it listens only on loopback
            return url
        return self._reachable(url, f"bk://{{}}:{url.rpartition(':')[2]}")

    def _web_url(self, scheme: str, port: int | None) -> str:
        """Return this request's address, or its host with the port of the other scheme."""
        if self.request.scope["scheme"] == scheme or port is None:
            return f"{scheme}://{self._own_host}"
        return f"{scheme}://{self._host_name}:{port}"

    def _reachable(self, url: str, pattern: str) -> str:
        return pattern.format(self._host_name) if url and self.broker.config.host in ALL_ADDRESSES else url

    @property
    def _host_name(self) -> str:
        """The host of this request without its port."""
        host, _, port = self._own_host.rpartition(":")
        return host if host and port.isdecimal() else self._own_host

    def number(self, name: str) -> int:
        """Return a numeric path parameter. As in Pulsar, any other value is an unknown path (404)."""
        raw = self.raw(name)
        if not _LONG.fullmatch(raw) or int(raw) not in _INT64:
            raise Refused(404, f"no such path: {raw[:80]!r} is not a 64-bit integer")
        return int(raw)

    @property
    def tenant(self) -> str:
        """The tenant in the path, validated."""
        return self._name("tenant", "Tenant name is not valid")

    @property
    def cluster(self) -> str:
        """The cluster in the path, as sent."""
        return self.text("cluster")

    @property
    def new_cluster(self) -> str:
        """The cluster in the path, validated for creation."""
        return _bounded(self._name("cluster", "Cluster name is not valid"), "cluster")

    @property
    def new_resource_group(self) -> str:
        """The resource group in the path, validated for creation."""
        return _bounded(self._name("group", "ResourceGroup name is not valid"), "resource group")

    @property
    def new_tenant(self) -> str:
        """The tenant in the path, validated for creation, including its length."""
        return _bounded(self.tenant, "tenant")

    @property
    def new_namespace(self) -> str:
        """``tenant/namespace`` in the path, validated for creation, including its length."""
        _bounded(self.namespace.partition("/")[2], "namespace")
        return self.namespace

    @property
    def namespace(self) -> str:
        """``tenant/namespace`` in the path, validated."""
        reason = "Namespace name is not valid"
        return f"{self._name('tenant', reason)}/{self._name('namespace', reason)}"

    @property
    def topic(self) -> TopicName:
        """The topic in the path."""
        return self.topic_of(self.raw("domain"))

    def topic_of(self, domain: str) -> TopicName:
        """Return the topic in the path, in the given domain. Local names are form-encoded: a plus sign is a space."""
        local = decoded(self.raw("topic").replace("+", " "))
        try:
            return parse_topic_name(f"{domain}://{self.text('tenant')}/{self.text('namespace')}/{local}")
        except InvalidTopicName as error:
            raise Refused(412, "Topic name is not valid") from error

    @property
    def new_topic(self) -> TopicName:
        """The topic in the path, validated for creation: the name must be valid in every store and log."""
        topic = self.topic
        if topic.local in _DOTS:
            raise Refused(412, f"Topic name is not valid: {topic.local} is not a valid name in the metadata store")
        _check_characters(topic.local, "topic")
        return topic

    @property
    def subscription(self) -> str:
        """The subscription in the path. Clients percent-encode it and then form-encode the result."""
        return decoded(decoded(self.raw("subscription")).replace("+", " "))

    @property
    def own_subscription(self) -> str:
        """The subscription in the path, for a request that resets or deletes it; rejects internal subscriptions.

        `pulsar.dedup` is not a subscription but the cursor that holds the deduplication state, which would be lost if
        the cursor were recreated or deleted by name. `__compaction` retains entries until they are compacted: if it
        were reset, the compacted view would miss the last messages of some keys.
        """
        name = self.subscription
        if is_internal(name):
            raise Refused(412, f"Subscription {name} is internal to the broker: it cannot be reset or deleted")
        return name

    @property
    def new_subscription(self) -> str:
        """The subscription in the path, validated for creation: length, and not reserved."""
        name = self.subscription
        _check_characters(name, "subscription")
        _bounded(name, "subscription", MAX_SUBSCRIPTION_BYTES)
        if is_internal(name):
            raise Refused(412, "Subscription with reserved subscription name attempted")
        if not name.strip():
            raise Refused(412, "Empty subscription name")
        return name

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean query parameter. As in Java, any value other than ``true`` is false."""
        value = self.request.query_params.get(name)
        return default if value is None else value.lower() == "true"

    def option(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return a query parameter with a fixed set of values. As in Pulsar, any other value is a 404."""
        value = self.request.query_params.get(name, default)
        if value not in choices:
            raise Refused(404, f"query parameter {name}={value!r} is not one of {', '.join(choices)}")
        return value

    async def body(self, media_types: tuple[str, ...] = ("application/json",)) -> bytes:
        """Return the raw body after checking its content type, if declared.

        Raises:
            Refused: 415 for another type, 413 above `bodies.MAX_BODY_BYTES`.
        """
        kind = self.request.headers.get("content-type", "").split(";")[0].strip().lower()
        content = await self.body_bytes(bodies.MAX_BODY_BYTES)
        if content and kind and kind not in media_types:
            raise Refused(415, f"unsupported content type {kind[:80]!a}: send {media_types[0]}")
        return content

    async def json(self) -> Any:
        """Return the JSON value of the body, or None for an empty body."""
        return bodies.parse(await self.body())

    def require_namespace(self, reason: str = "Namespace does not exist") -> str:
        """Return ``tenant/namespace`` in the path if the namespace exists; raise a 404 otherwise."""
        namespace = self.namespace
        if not self.namespaces.has_namespace(namespace):
            raise Refused(404, reason)
        return namespace

    @property
    def policies(self) -> Policies:
        """The policies of the namespace in the path, read-only; raises a 404 if the namespace does not exist."""
        return self.namespaces.policies(self.require_namespace())

    def require_topic_namespace(self, *, is_new: bool = False) -> TopicName:
        """Return the topic in the path if its namespace exists; raise a 404 otherwise."""
        topic = self.new_topic if is_new else self.topic
        if not self.namespaces.has_namespace(topic.namespace_name):
            raise Refused(404, "Namespace not found")
        return topic

    def _name(self, parameter: str, reason: str) -> str:
        value = self.text(parameter)
        if not NAME.fullmatch(value) or value in _DOTS:
            raise Refused(412, reason)
        return value


def _bounded(name: str, what: str, longest: int = MAX_NAME_BYTES) -> str:
    if len(name.encode()) > longest:
        raise Refused(412, f"{what} name of {len(name.encode())} bytes exceeds the limit of {longest} bytes")
    return name


def _check_characters(name: str, what: str) -> None:
    if any(unicodedata.category(char) == "Cc" for char in name):
        raise Refused(412, f"{what.title()} name is not valid: {name[:80]!r} contains control characters")
