"""Interfaces that topics need from their broker, and producers and consumers from their client's connection."""

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
    """The broker as seen by its topics; see `broker.service.BrokerService`."""

    config: BrokerConfig

    @property
    def broker_id(self) -> str:
        """Name of this broker, ``host:port`` of its REST interface."""

    storage: LogStore
    namespaces: Namespaces
    schemas: SchemaRegistry
    topics: dict[str, Topic]
    topic_index: TopicIndex
    topic_watches: TopicWatches
    shared_rates: SharedRates
    delivery_memory: DeliveryMemory
    tasks: TaskSet
    """Tasks that end with the broker."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""

    def check_name(self, name: TopicName) -> None:
        """Raise if a topic of that name cannot exist."""

    def check_room(self, name: TopicName, more: int = 1) -> None:
        """Raise if a namespace has reached its topic limit."""

    def has_topic(self, name: TopicName) -> bool:
        """Return whether a non-partitioned topic or a partition exists."""


class ConnectionPort(Protocol):
    """A client's connection as seen by its producers and consumers; see `broker.session.connection.Connection`."""

    config: BrokerConfig
    """The broker's settings."""

    address: str
    """The peer's address."""

    client_version: str | None
    """Version of the client, from CONNECT."""

    protocol_version: int
    """The highest protocol version that the client supports."""

    is_closed: bool
    """Whether the connection is closed for sending."""

    is_writable: bool
    """Whether the peer keeps up with writes."""

    producers: Registry[Producer]
    """The producers that may send; commands for another id violate the protocol."""

    consumers: Registry[Consumer]
    """The consumers that may receive; commands for another id are ignored."""

    closed_producers: ClosedProducers
    """The ids that the broker closed."""

    async def is_alive(self) -> bool:
        """Return whether the peer answers; if not, it is disconnected."""

    def reply(self, command: Message) -> None:
        """Send one command."""

    def fail(self, request_id: int, error: Exception) -> None:
        """Send an error response to a request."""

    def tell_closed(self, command: Message) -> None:
        """Send CLOSE_PRODUCER or CLOSE_CONSUMER, in the form that the peer understands."""

    def write_many(self, parts: list[bytes], size: int) -> None:
        """Send the parts of many frames, ``size`` bytes in all."""

    def answer_later(self, producer: Producer) -> None:
        """Send a producer's receipts (`Producer.take_receipts`) at the end of this turn of the loop."""

    def throttle(self, wait_s: float) -> None:
        """Stop reading for that time, as a topic's publish rate is used up."""

    def publishes_answered(self, entries: int) -> None:
        """Note that entries were answered other than by receipts, which count when they are taken."""

    def remove_producer(self, producer: Producer, *, ignores: bool = False) -> None:
        """Remove a producer; with ``ignores``, later commands for its id are ignored for a while."""
