"""Topic lookup: number of partitions, schema, and owner broker."""

from __future__ import annotations

from ...errors import ConnectionLost, MagnetarError, NotAllowed, ProtocolError, ServiceNotReady
from ...wire import pulsar_api_pb2 as pb
from ...wire.topic_name import TopicName
from ..schemas.schema import SchemaInfo
from .connection import Connection
from .pool import ConnectionPool
from .service_url import Address, HostPort, ServiceUrl, parse_service_url


class Lookup:
    """Sends lookups to the service URL, trying its hosts in turn if one does not respond."""

    def __init__(self, service: ServiceUrl, pool: ConnectionPool, max_redirects: int, listener_name: str = ""):
        self._hosts = service.hosts
        self._is_tls = service.is_tls
        self._pool = pool
        self._max_redirects = max_redirects
        self._listener_name = listener_name
        self._current = 0

    async def service(self) -> Connection:
        """Return a connection to the service URL; on failure the next call tries the next host."""
        host = self._hosts[self._current % len(self._hosts)]
        try:
            return await self._pool.connection(Address(host, host))
        except MagnetarError:
            self._current += 1
            raise

    async def partitions(self, topic: TopicName) -> int:
        """Return the number of partitions, or 0 for a non-partitioned topic.

        Cancellation: safe.
        """
        connection = await self.service()
        command = pb.CommandPartitionedTopicMetadata(topic=topic.text)
        answer: pb.CommandPartitionedTopicMetadataResponse = await connection.request(f"partitions of {topic}", command)
        return answer.partitions

    async def topics(self, namespace: str, mode: pb.CommandGetTopicsOfNamespace.Mode, pattern: str) -> list[str]:
        """Return the full names of a namespace's topics; partitions are listed individually.

        Args:
            namespace: ``tenant/namespace``.
            mode: persistent topics, non-persistent topics, or both.
            pattern: filter for the broker, which may ignore it.

        Cancellation: safe.
        """
        connection = await self.service()
        command = pb.CommandGetTopicsOfNamespace(
            namespace=namespace,
            mode=mode,
            topics_pattern=pattern or None,
        )
        answer: pb.CommandGetTopicsOfNamespaceResponse = await connection.request(f"topics of {namespace}", command)
        return list(answer.topics)

    async def schema(self, topic: TopicName, version: bytes | None) -> SchemaInfo:
        """Return a topic's schema in one version; None for the newest.

        Cancellation: safe.

        Raises:
            TopicNotFound: the topic has no schema of that version.
        """
        connection = await self.service()
        what = f"schema of {topic}" if version is None else f"schema of {topic}, version 0x{version.hex()}"
        answer: pb.CommandGetSchemaResponse = await connection.request(
            what, pb.CommandGetSchema(topic=topic.text, schema_version=version)
        )
        return SchemaInfo.from_proto(answer.schema)

    async def broker_of(self, topic: TopicName) -> Address:
        """Return the broker that owns a topic, following redirects.

        Cancellation: safe.

        Raises:
            NotAllowed: the broker has no listener named ``listener_name``.
        """
        connection = await self.service()
        service = connection.address.physical
        authoritative = False
        for _ in range(self._max_redirects + 1):
            command = pb.CommandLookupTopic(
                topic=topic.text,
                authoritative=authoritative,
                advertised_listener_name=self._listener_name or None,
            )
            answer = await self._ask(connection, command)
            address = _address(answer, service, self._is_tls)
            if answer.response == pb.CommandLookupTopicResponse.Connect:
                return address
            authoritative = answer.authoritative
            connection = await self._pool.connection(address)
        raise ConnectionLost(f"lookup of {topic} was redirected more than {self._max_redirects} times")

    async def _ask(self, connection: Connection, command: pb.CommandLookupTopic) -> pb.CommandLookupTopicResponse:
        try:
            answer: pb.CommandLookupTopicResponse = await connection.request(f"lookup of {command.topic}", command)
        except ServiceNotReady as error:
            if f"the broker do not have {self._listener_name} listener" not in str(error):
                raise
            # Brokers report this as a retryable error, although a retry cannot help.
            raise NotAllowed(
                f"listener_name {self._listener_name!r} is not a listener of the broker at"
                f" {connection.address.physical}: use one of its advertisedListeners"
            ) from error
        return answer


def _address(answer: pb.CommandLookupTopicResponse, service: HostPort, is_tls: bool) -> Address:
    """Return the address in a lookup response; a proxied broker is reached through the service URL."""
    url = answer.brokerServiceUrlTls if is_tls else answer.brokerServiceUrl
    if not url:
        found, other = ("with", "pulsar://") if is_tls else ("without", "pulsar+ssl://")
        raise ProtocolError(f"{service} returned no broker address {found} TLS: try a service URL with {other}")
    parsed = parse_service_url(url)
    if parsed.is_tls != is_tls:
        raise ProtocolError(f"{service} returned {url!r} as the address of a broker with{'' if is_tls else 'out'} TLS")
    broker = parsed.hosts[0]
    return Address(broker, service if answer.proxy_through_service_url else broker)
