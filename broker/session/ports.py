"""Interfaces of the broker for connections and command handlers."""

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
    """The broker's interface for its connections, implemented by `broker.service.BrokerService`."""

    is_started: bool
    turns: Turns
    frame_memory: FrameMemory
    authenticator: Authenticator | None

    lookups_waiting: int
    """Number of lookups that wait for the metadata store."""

    authorization: Authorization | None
    """Access rules, or None if authorization is disabled."""

    def lookup_urls(self, listener: str) -> tuple[str, str]:
        """Return the URLs for lookup responses, without and with TLS."""

    def connection_made(self, connection: Connection) -> None:
        """Register a connection."""

    def connection_known(self, connection: Connection) -> str:
        """Admit a connection that has sent CONNECT; return an error message if it is rejected, else an empty string."""

    def connection_lost(self, connection: Connection) -> None:
        """Unregister a connection."""

    def new_producer_name(self) -> str:
        """Return a producer name that is unique in the cluster."""

    async def topic(self, name: TopicName, *, create: bool = True) -> Topic:
        """Return a topic, loading it and creating it if needed and allowed."""

    def topic_names(self, namespace: str) -> list[str]:
        """Return the existing persistent topics of ``tenant/namespace``."""

    def non_persistent_names(self, namespace: str) -> list[str]:
        """Return the loaded non-persistent topics of ``tenant/namespace``."""
