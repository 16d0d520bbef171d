"""A distributed lock that the broker grants to a connection, and that is lost with the connection.

Design: the lock is a consumer on a dedicated, Exclusive, non-durable subscription of a topic without messages. The
broker grants it to one connection at a time and revokes it when that connection ends for any reason: it is closed, the
process dies, or a frozen process misses its keep-alive messages. No clock is involved.

Everything that requires the lock uses the same connection. Producers and consumers with `Lock.cover` as their guard
attach to a connection only while the lock is held on it; anything left unsent by a broken connection is sent after that
or never. The next lock holder can therefore rely on its predecessors sending nothing more: the broker drops a
connection as a whole, and accepts nothing from it afterwards.

Topics on several brokers require a connection to each. Each broker detects a frozen client independently, so one may
detect it later than another by the phase difference of their keep-alive intervals.

Rejected alternative: a lease in the client. A process can freeze indefinitely between reading a clock and writing to a
socket.
"""

from __future__ import annotations

import asyncio
import logging

from ..errors import ClosedError, ConnectionLost, ConsumerBusy, MagnetarError
from ..tasks import Backoff, TaskSet
from ..wire.message_id import LATEST
from ..wire.pulsar_api_pb2 import CommandMessage
from ..wire.runs import MessageRow
from ..wire.topic_name import TopicName
from .config import ConsumerConfig
from .connections.attachment import RETRIED_LATER, Attachable, Connect
from .connections.connection import Connection
from .consumers.command import subscribe_command
from .consumers.waiters import Waiters

log = logging.getLogger(__name__)

WAIT_FIRST_S = 0.02
WAIT_MAX_S = 0.5
"""Maximum wait between two attempts to acquire a lock that is held elsewhere."""


class Lock(Attachable):
    """A distributed lock; created by `AsyncClient.create_lock` and used on its event loop.

    Attributes:
        name: the lock's name.
        waits_for: the reason why the lock has not been granted; empty while it is held.
    """

    def __init__(
        self,
        topic: TopicName,
        name: str,
        owner: str,
        consumer_id: int,
        connect: Connect,
        backoff: Backoff,
    ):
        """Create a lock; `acquire` requests it.

        Args:
            topic: the dedicated lock topic.
            name: the lock's name.
            owner: shown in the topic's statistics.
            consumer_id: unique in the client.
            connect: returns a connection to the topic's broker.
            backoff: waits between attempts.
        """
        self.name = name
        self.waits_for = ""
        self._topic = topic
        self._id = consumer_id
        self._connect = connect
        self._backoff = backoff
        config = ConsumerConfig(name=owner, receiver_queue_size=0)
        self._command = subscribe_command(config, topic.text, name, LATEST)
        self._command.consumer_id = consumer_id
        self._closed_at_once = f"revoked the lock {name} immediately"
        self._error: MagnetarError | None = None
        self._changed = Waiters()
        self._tasks = TaskSet("locks")
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Lock({self.name!r}, is_held={self.is_held}, waits_for={self.waits_for!r})"

    @property
    def is_held(self) -> bool:
        """Whether the broker has granted the lock, as far as the client knows."""
        return self._is_attached

    async def acquire(self) -> None:
        """Wait, without a timeout, until the lock is granted. A lost lock is then reacquired automatically.

        Cancellation: the lock remains requested until `close`.

        Raises:
            MagnetarError: the broker permanently rejected the lock.
        """
        if self._task is None:
            self._task = self._tasks.start(self._keep(), f"lock {self.name}", self._broke)
        while not self.is_held:
            self._check()
            await self._changed.wait()

    async def wait_failed(self) -> None:
        """Never return; raise when the lock is permanently rejected or closed. Cancellation: safe."""
        while True:
            self._check()
            await self._changed.wait()

    async def cover(self, connection: Connection) -> None:
        """Wait until the lock is held on this connection, or on a connection to another broker.

        Cancellation: safe.

        Raises:
            ConnectionLost: the connection was closed meanwhile: open another one.
            ClosedError: the lock was closed.
            MagnetarError: the broker permanently rejected the lock.
        """
        while True:
            self._check()
            if not connection.is_open:
                raise ConnectionLost(
                    f"lost the connection to {connection.address.physical} before acquiring lock {self.name}"
                )
            held = self._connection if self.is_held else None
            if held is not None and (held is connection or held.address != connection.address):
                return
            await self._changed.wait()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _keep(self) -> None:
        """Acquire the lock whenever it is not held, until it is permanently rejected."""
        while True:
            try:
                await self.attach(await self._connect(self._topic))
            except self._final as error:
                self.fail(error)
                return
            except RETRIED_LATER as error:
                is_busy = isinstance(error, ConsumerBusy)
                other = f"lock {self.name} of {self._topic} is held by another client; the topic statistics show which"
                self.waits_for = other if is_busy else str(error)
                await asyncio.sleep(self._backoff.next_s())
                continue
            self._backoff.reset()
            while self.is_held:
                await self._changed.wait()

    def _create(self, connection: Connection) -> asyncio.Future[object]:
        return connection.request(f"lock {self.name}", self._command)

    def _on_attached(self, connection: Connection, answer: object) -> None:
        self.waits_for = ""
        self._changed.wake()

    def _broke(self, failure: BaseException) -> None:
        """Fail all waiting callers after an unexpected error."""
        log.error("cannot keep the lock %s: %r", self.name, failure, exc_info=failure)
        self.fail(ClosedError(f"cannot keep the lock {self.name}: {type(failure).__name__}: {failure}"))

    def fail(self, error: MagnetarError) -> None:
        """Stop requesting the lock, and raise ``error`` from all later calls."""
        self._error = error
        self.waits_for = ""
        self._changed.wake()

    # -- called by the connection ---------------------------------------------------------------------------------

    def handle_message(self, message: CommandMessage, payload: bytes) -> None:
        """Ignore an entry: none was requested."""

    def handle_messages(self, rows: list[MessageRow]) -> None:
        """Ignore entries: none were requested."""

    def handle_active_change(self, is_active: bool) -> None:
        """Do nothing: an exclusive consumer is always active."""

    def handle_end_of_topic(self) -> None:
        """Do nothing: the lock does not require a writable topic."""

    def _on_detached(self, connection: Connection, reason: MagnetarError) -> None:
        log.info("lost the lock %s: %s", self.name, reason)
        self.waits_for = str(reason)
        # The broker revoked only the lock, for example because its topic moves. Closing the connection makes the
        # covered producers and consumers wait for the lock again.
        connection.close(ConnectionLost(f"the lock {self.name} was lost: {reason}"))
        self._changed.wake()

    async def close(self) -> None:
        """Release the lock; close the producers and consumers that it covers first.

        Cancellation: the lock is released nevertheless.
        """
        self.fail(ClosedError(f"the lock {self.name} was closed"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        connection = self._connection
        if connection is None:
            return
        self._is_attached = False
        try:
            await connection.request(f"unlock {self.name}", self._close_command())
        except MagnetarError as error:
            log.debug("error while releasing the lock %s: %s", self.name, error)
        finally:
            self._leave()
