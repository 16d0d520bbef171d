"""What topics need of the broker that has them, and producers and consumers of their client's connection."""

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
    from ..storage.store import Storage
    from .consumer import Consumer
    from .producer import Producer
    from .registry import ClosedProducers, Registry
    from .topic import Topic
    from .topic_index import TopicIndex
    from .topic_watches import TopicWatches


class BrokerPort(Protocol):
    """The broker, as its topics see it; see `broker.service.BrokerService`."""

    config: BrokerConfig

    @property
    def broker_id(self) -> str:
        """Name of this broker, ``host:port`` of its REST interface."""

    storage: Storage
    namespaces: Namespaces
    schemas: SchemaRegistry
    topics: dict[str, Topic]
    topic_index: TopicIndex
    topic_watches: TopicWatches
    shared_rates: SharedRates
    delivery_memory: DeliveryMemory
    tasks: TaskSet
    """What ends with the broker."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""

    def check_name(self, name: TopicName) -> None:
        """Raise if a topic of that name cannot exist."""

    def check_room(self, name: TopicName, more: int = 1) -> None:
        """Raise if a namespace takes no more topics."""

    def has_topic(self, name: TopicName) -> bool:
        """Return whether a topic that is not partitioned, or a partition, exists."""


class ConnectionPort(Protocol):
    """The connection of a client, as its producers and consumers see it; see `broker.session.connection.Connection`."""

    config: BrokerConfig
    """The broker's settings."""

    address: str
    """The peer's address."""

    client_version: str | None
    """What CONNECT said of the client."""

    protocol_version: int
    """The highest version of the protocol that the client knows."""

    is_closed: bool
    """Whether nothing can be sent any more."""

    is_writable: bool
    """Whether the peer takes what is written."""

    producers: Registry[Producer]
    """Those that may send; what comes for another id breaks the protocol."""

    consumers: Registry[Consumer]
    """Those that may receive; what comes for another id is ignored."""

    closed_producers: ClosedProducers
    """The ids that the broker closed."""

    async def is_alive(self) -> bool:
        """Return whether the peer answers; if not, it is cut off."""

    def reply(self, command: Message) -> None:
        """Send one command."""

    def fail(self, request_id: int, error: Exception) -> None:
        """Answer a request with the error that it met."""

    def tell_closed(self, command: Message) -> None:
        """Send CLOSE_PRODUCER or CLOSE_CONSUMER, in whichever way the peer understands it."""

    def write_many(self, parts: list[bytes], size: int) -> None:
        """Send the parts of many frames, ``size`` bytes in all."""

    def answer_later(self, producer: Producer) -> None:
        """Send a producer's receipts (`Producer.take_receipts`) at the end of this turn of the loop."""

    def throttle(self, wait_s: float) -> None:
        """Take nothing more for so long, as a topic's publish rate is used up."""

    def publishes_answered(self, entries: int) -> None:
        """Note that entries got another answer than a receipt; receipts count when they are taken."""

    def remove_producer(self, producer: Producer, *, ignores: bool = False) -> None:
        """Forget a producer; ``ignores`` what still comes for its id for a while, else that ends the connection."""
