"""Interfaces of the broker, as used by topics, and of connections, as used by producers and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ...tasks.supervised import TaskSet
    from ...wire.topic_name import TopicName
    from ..config import BrokerConfig
    from ..dispatch.delivery_memory import DeliveryMemory
    from ..policies.namespaces import Namespaces
    from ..policies.rate_limit import SharedRates
    from ..schemas.registry import SchemaRegistry
    from ..storage.port import LogStore
    from .consumer import Consumer
    from .producer import Producer
    from .registry import ClosedProducers, Registry
    from .topic import Topic
    from .topic_index import TopicIndex
    from .topic_watches import TopicWatches


class BrokerPort(Protocol):
    """A broker, as seen by its topics; see `broker.service.BrokerService`."""

    config: BrokerConfig

    @property
    def broker_id(self) -> str:
        """Name of the broker: ``host:port`` of its REST interface."""

    storage: LogStore
    namespaces: Namespaces
    schemas: SchemaRegistry
    topics: dict[str, Topic]
    topic_index: TopicIndex
    topic_watches: TopicWatches
    shared_rates: SharedRates
    delivery_memory: DeliveryMemory
    tasks: TaskSet
    """Tasks that are cancelled when the broker stops."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds."""

    def check_name(self, name: TopicName) -> None:
        """Raise if a topic with this name cannot exist."""

    def check_room(self, name: TopicName, more: int = 1) -> None:
        """Raise if adding ``more`` topics would exceed the namespace's topic limit."""

    def has_topic(self, name: TopicName) -> bool:
        """Return whether a non-partitioned topic or a partition exists."""


class ConnectionPort(Protocol):
    """A client connection, as seen by its producers and consumers; see `broker.session.connection.Connection`."""

    config: BrokerConfig
    """The broker's settings."""

    address: str
    """Address of the peer."""

    client_version: str | None
    """Client version from CONNECT."""

    protocol_version: int
    """Highest protocol version supported by the client."""

    is_closed: bool
    """Whether the connection is closed for sending."""

    is_writable: bool
    """Whether the peer reads fast enough for further writes."""

    producers: Registry[Producer]
    """Producers that may send; a command for any other id violates the protocol."""

    consumers: Registry[Consumer]
    """Consumers that may receive; commands for any other id are ignored."""

    closed_producers: ClosedProducers
    """Ids of producers that the broker has closed."""

    async def is_alive(self) -> bool:
        """Return whether the peer responds; if not, it is disconnected."""

    def reply(self, command: Message) -> None:
        """Send a command."""

    def fail(self, request_id: int, error: Exception) -> None:
        """Send an error response to a request."""

    def tell_closed(self, command: Message) -> None:
        """Send CLOSE_PRODUCER or CLOSE_CONSUMER in a form that the peer supports."""

    def write_many(self, parts: list[bytes], size: int) -> None:
        """Send the parts of several frames, with a total of ``size`` bytes."""

    def answer_later(self, producer: Producer) -> None:
        """Send a producer's receipts (`Producer.take_receipts`) at the end of the current loop iteration."""

    def throttle(self, wait_s: float) -> None:
        """Stop reading for ``wait_s``, because a publish rate limit is exhausted."""

    def publishes_answered(self, entries: int) -> None:
        """Record that entries were answered with errors; receipts are counted when they are taken."""

    def remove_producer(self, producer: Producer, *, ignores: bool = False) -> None:
        """Remove a producer; with ``ignores``, ignore commands for its id for some time afterwards."""
