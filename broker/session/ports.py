"""What a connection and the handlers of its commands need of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..topics.ports import BrokerPort

if TYPE_CHECKING:
    from ...security.authentication.authenticator import Authenticator
    from ...wire.topic_name import TopicName
    from ..policies.authorization import Authorization
    from ..topics.topic import Topic
    from .connection import Connection
    from .frame_memory import FrameMemory
    from .turns import Turns


class ServicePort(BrokerPort, Protocol):
    """The broker, as its connections see it; see `broker.service.BrokerService`."""

    is_started: bool
    turns: Turns
    frame_memory: FrameMemory
    authenticator: Authenticator | None

    lookups_waiting: int
    """Lookups that wait for the metadata store."""

    authorization: Authorization | None
    """Who may do what; None while everybody may do everything."""

    def lookup_urls(self, listener: str) -> tuple[str, str]:
        """Return the addresses that lookups name, without TLS and with it."""

    def connection_made(self, connection: Connection) -> None:
        """Note a connection."""

    def connection_known(self, connection: Connection) -> str:
        """Note that a connection is past CONNECT; returns why it cannot stay, empty if it can."""

    def connection_lost(self, connection: Connection) -> None:
        """Forget a connection."""

    def new_producer_name(self) -> str:
        """Return a name that no producer of this cluster has or had."""

    async def topic(self, name: TopicName, *, create: bool = True) -> Topic:
        """Return a topic, loaded, and created if need be and allowed."""

    def topic_names(self, namespace: str) -> list[str]:
        """Return the persistent topics that exist in ``tenant/namespace``."""

    def non_persistent_names(self, namespace: str) -> list[str]:
        """Return the non-persistent topics that are loaded in ``tenant/namespace``."""
