"""Keeps a producer or consumer attached to the broker that owns its topic.

Design: each attempt consists of the same steps (lookup, connection, guard, then PRODUCER or SUBSCRIBE), any of which
may fail. The first time, the caller waits for the result: permanent errors are raised immediately, others are retried
until the operation timeout. Later attempts are retried in the background without limit, because keeping the owner's
messages and acknowledgements matters more than failing early; only errors that the owner declares final stop the
retries.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ... import errors
from ...errors import (
    BrokerError,
    ClosedError,
    ConnectionLost,
    CredentialsUnavailable,
    MagnetarError,
    OperationTimeout,
    ProtocolError,
    TlsFailed,
)
from ...tasks import Backoff, Retry, TaskSet
from ...wire.pulsar_api_pb2 import CommandCloseConsumer
from ...wire.topic_name import TopicName
from .connection import Connection

log = logging.getLogger(__name__)

RETRIED: tuple[type[MagnetarError], ...] = (BrokerError, ConnectionLost, OperationTimeout, ProtocolError)

RETRIED_LATER: tuple[type[MagnetarError], ...] = (*RETRIED, CredentialsUnavailable, TlsFailed)
"""Errors that are retried in the background: a token or certificate may be renewed meanwhile."""

Connect = Callable[[TopicName], Awaitable[Connection]]
"""Looks up a topic's broker and returns a connection to it."""


class Attachable(ABC):
    """A producer or consumer, which is attached to one connection at a time."""

    _id: int
    _final: tuple[type[MagnetarError], ...] = (
        errors.TopicNotFound,
        errors.TopicTerminated,
        errors.SubscriptionNotFound,
        errors.AuthorizationError,
        errors.TopicNameRefused,
        errors.IncompatibleSchema,
        errors.ConsumerAssignError,
        errors.NotAllowed,
    )
    """Errors that permanently end an object that was attached before; all others are retried. The default is for
    consumers. ConsumerBusy is not final: the consumer's own half-open connection may be what blocks it."""
    _closed_at_once: str
    """Error message, after the broker's address, for an object that the broker closes before responding."""
    _connection: Connection | None = None
    _is_attached = False
    _setback = ""
    """The last failure, to append to an error."""

    @property
    def is_connected(self) -> bool:
        """Whether the object is currently attached to a broker."""
        return self._is_attached

    def _ports(self, connection: Connection) -> dict[int, Any]:
        """Return a connection's objects of this kind (for example, consumers), by id."""
        return connection.consumers

    def _close_command(self) -> Any:
        """Return the command that closes the object on the broker, without a request id."""
        return CommandCloseConsumer(consumer_id=self._id)

    @abstractmethod
    def _create(self, connection: Connection) -> Awaitable[Any]:
        """Create the object on the broker; return the response."""

    @abstractmethod
    def _on_attached(self, connection: Connection, answer: Any) -> None:
        """Start using a connection."""

    @abstractmethod
    def _on_detached(self, connection: Connection, reason: MagnetarError) -> None:
        """Continue without the connection."""

    @abstractmethod
    def fail(self, error: MagnetarError) -> None:
        """Handle a permanent failure: no further attempts are made."""

    async def attach(self, connection: Connection) -> None:
        """Create the object on a connection.

        Cancellation: safe; if the broker still creates the object, it is closed.
        """
        ports = self._ports(connection)
        self._connection = connection
        ports[self._id] = self
        try:
            answer = await self._create(connection)
            if self._connection is not connection:
                raise ConnectionLost(f"{connection.address.physical} {self._closed_at_once}")
        except BaseException as error:
            ports.pop(self._id, None)
            self._connection = None
            if isinstance(error, (OperationTimeout, asyncio.CancelledError)):
                # The broker may still create the object.
                close = self._close_command()
                close.request_id = connection.next_request_id()
                connection.send_command(close)
            raise
        self._is_attached = True
        self._on_attached(connection, answer)

    def handle_detached(self, connection: Connection, reason: MagnetarError) -> None:
        """Handle the loss of a connection (called by the connection)."""
        if self._connection is not connection:
            return
        self._connection = None
        if self._is_attached:
            self._is_attached = False
            self._on_detached(connection, reason)

    def _leave(self) -> None:
        """Unregister from the connection."""
        if self._connection is not None:
            self._ports(self._connection).pop(self._id, None)
        self._connection = None
        self._is_attached = False


class Attachment:
    """Attaches one producer or consumer to its topic's broker, and reattaches it after each connection loss."""

    def __init__(
        self,
        topic: TopicName,
        connect: Connect,
        backoff: Backoff,
        budget_s: float,
    ):
        """Create an attachment; `open` makes the first attempts.

        Args:
            topic: topic of the producer or consumer.
            connect: returns a connection to the topic's broker, after the guard.
            backoff: waits between attempts.
            budget_s: timeout for the first attempts.
        """
        self._topic = topic
        self._connect = connect
        self._backoff = backoff
        self._budget_s = budget_s
        self._tasks = TaskSet(str(topic))
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self, owner: Attachable) -> None:
        """Attach for the first time.

        Cancellation: safe; the owner closes the object if the broker created it.

        Raises:
            BrokerError: the broker rejected the request, or was not ready by the operation timeout.
            ConnectionLost, OperationTimeout: no broker was reached within the operation timeout.
        """
        await Retry(RETRIED, self._backoff, self._budget_s).call(lambda: self._attach(owner))

    def reopen(self, owner: Attachable, *, at_once: bool = False) -> None:
        """Reattach in the background, after a wait unless ``at_once``; does nothing if already in progress."""
        if self._is_closed or (self._task is not None and not self._task.done()):
            return

        def failed(failure: BaseException) -> None:
            # An error that `_reopen` does not retry; the owner must not remain detached silently.
            if not isinstance(failure, ClosedError):  # the client was closed
                log.error("%s: reattaching failed permanently", self._topic, exc_info=failure)
            owner.fail(failure if isinstance(failure, MagnetarError) else MagnetarError(f"{self._topic}: {failure!r}"))

        self._task = self._tasks.start(self._reopen(owner, at_once), f"reattach {self._topic}", failed)

    async def _reopen(self, owner: Attachable, at_once: bool) -> None:
        failures = 0
        while True:
            if not at_once:
                await asyncio.sleep(self._backoff.next_s())
            at_once = False
            try:
                await self._attach(owner)
            except RETRIED_LATER as error:
                if isinstance(error, owner._final):
                    log.error("%s: broker permanently rejected reattaching: %s", self._topic, error)
                    owner.fail(error)
                    return
                owner._setback = f"; last error: {error}"
                failures += 1
                # Warnings for failures 1, 2, 4, 8, …: an unreachable broker must not flood the log.
                level = logging.WARNING if failures & (failures - 1) == 0 else logging.DEBUG
                log.log(level, "%s: reattaching failed (attempt %d): %s", self._topic, failures, error)
            else:
                return

    async def _attach(self, owner: Attachable) -> None:
        await owner.attach(await self._connect(self._topic))
        self._backoff.reset()

    async def close(self) -> None:
        """Stop reattaching."""
        self._is_closed = True
        await self._tasks.close()
