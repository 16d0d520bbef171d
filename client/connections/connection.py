"""A connection to a broker: frames, requests and responses, keep-alive.

Design: a connection is independent of topics. It routes each command by id to a producer, consumer or pending request.
All frames of one event loop iteration are sent in a single write, because a system call per frame would cost more than
encoding it.

Invariant: when the connection ends, every open request fails with `ConnectionLost`, and every registered producer and
consumer is detached once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from google.protobuf.message import Message

from ...errors import AuthenticationError, ConnectionLost, MagnetarError, OperationTimeout, ProtocolError, broker_error
from ...security.tls_failure import tls_failure
from ...tasks import settle
from ...wire import pulsar_api_pb2 as pb
from ...wire.commands import NO_REQUEST, connect_command, wrap
from ...wire.frames import DEFAULT_MAX_MESSAGE_BYTES, FRAME_PADDING_BYTES, Frame, FrameDecoder, Run, encode_frame
from ...wire.pulsar_api_pb2 import BaseCommand
from ...wire.runs import MESSAGE_HEAD, MessageRow, read_messages
from ...wire.session import LEGAL, Role, State
from .config import ClientConfig
from .foreign import foreign
from .introduction import Introduction
from .service_url import Address

log = logging.getLogger(__name__)

AUTO_CONSUME_VERSION = 21
"""Protocol version to announce; older brokers close the connection on an unknown schema type."""

_ANSWERS = {
    BaseCommand.SUCCESS: "success",
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
}
"""Responses that complete a request, by field name."""
_WITH_RESPONSE = (BaseCommand.LOOKUP_RESPONSE, BaseCommand.PARTITIONED_METADATA_RESPONSE)
"""Responses whose field ``response`` indicates whether the request failed."""


class ProducerPort(Protocol):
    """The interface through which a connection notifies a producer."""

    def handle_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        """Handle a send receipt: the broker has stored an entry."""

    def handle_send_error(self, error: pb.CommandSendError) -> None:
        """Handle a send error: the broker rejected an entry."""

    def handle_detached(self, connection: Connection, reason: MagnetarError) -> None:
        """Detach the producer from this connection."""


class ConsumerPort(Protocol):
    """The interface through which a connection notifies a consumer."""

    def handle_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        """Handle an entry."""

    def handle_messages(self, rows: list[MessageRow]) -> None:
        """Handle entries that arrived together, in order."""

    def handle_active_change(self, is_active: bool) -> None:
        """Handle a change of the active consumer."""

    def handle_end_of_topic(self) -> None:
        """Handle the end of a terminated topic: all messages were delivered."""

    def handle_detached(self, connection: Connection, reason: MagnetarError) -> None:
        """Detach the consumer from this connection."""


class TopicWatchPort(Protocol):
    """The interface through which a connection notifies a topic watch."""

    def handle_list(self, answer: pb.CommandWatchTopicListSuccess) -> None:
        """Handle the initial list of topics."""

    def handle_update(self, update: pb.CommandWatchTopicUpdate) -> None:
        """Handle created or deleted topics."""

    def handle_detached(self, connection: Connection, reason: MagnetarError) -> None:
        """Detach the watch from this connection."""


class _Request(NamedTuple):
    """A pending request."""

    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle


Rename: TypeAlias = Callable[[str], str]
"""Maps a topic name to its name on the broker."""


class Connection(asyncio.Protocol):
    """A connection to one broker; created by `ConnectionPool`.

    Attributes:
        address: the broker's address.
        server_version: the broker's version string.
        max_message_bytes: the broker's message size limit.
        producers: producers by id; commands for unknown ids are dropped.
        consumers: consumers by id; commands for unknown ids are dropped.
        topic_watches: topic watches by id; commands for unknown ids are dropped.
        takes_auto_consume: whether the broker supports consumers that accept any schema.
        offers_topic_watches: whether the broker supports topic watches.
    """

    def __init__(
        self,
        address: Address,
        introduction: Introduction,
        config: ClientConfig,
        on_closed: Callable[[Connection], None],
        rename: Rename | None = None,
    ):
        """Create a connection; the event loop connects it.

        Args:
            address: the broker's address.
            introduction: the client's version and credentials.
            config: settings.
            on_closed: called once when the connection has ended.
            rename: maps a topic name to its name on the broker; None if they are the same.
        """
        self._rename = rename
        self.address = address
        self.server_version = ""
        self.max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self._introduction = introduction
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._outgoing: list[bytes] = []
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._next_request_id = 0
        self._requests: dict[int, _Request] = {}
        self.producers: dict[int, ProducerPort] = {}
        self.consumers: dict[int, ConsumerPort] = {}
        self.topic_watches: dict[int, TopicWatchPort] = {}
        self.offers_topic_watches = False
        self.takes_auto_consume = False
        self._keep_alive: asyncio.TimerHandle | None = None
        self._heard_since_tick = True
        self._error: MagnetarError | None = None
        self._on_closed = on_closed
        self._state = State.CONNECTING
        self._handlers: dict[int, Callable[[BaseCommand], None]] = {}
        self._use_handlers()

    # -- opening and closing ---------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._error is None

    async def handshake(self, auth_data: bytes) -> None:
        """Send CONNECT and wait until the broker accepts the client.

        Args:
            auth_data: the client's credentials.

        Cancellation: the handshake stays incomplete; close the connection.
        """
        proxy_to = str(self.address.logical) if self.address.is_proxied else None
        us = self._introduction
        self.send_command(connect_command(us.client_version, proxy_to, us.method, auth_data))
        await self._connected
        self._keep_alive = self._loop.call_later(self._config.keep_alive_s, self._tick)

    def close(self, reason: MagnetarError | None = None) -> None:
        """Close the connection; buffered data is still sent unless a ``reason`` is passed."""
        if self._error is None:
            self._error = reason or ConnectionLost(f"connection to {self.address.physical} was closed")
        transport = self._transport
        if transport is None:
            return
        if reason is None:
            self._flush()
            transport.close()
        else:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the transport (called by the event loop)."""
        # A stream transport, although uvloop's class does not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail requests, and detach producers and consumers (called by the event loop)."""
        self._transport = None
        self._outgoing.clear()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        if self._error is None and exc is not None and not self._connected.done():
            # With TLS 1.3 the server rejects our certificate after its side of the handshake.
            self._error = tls_failure(str(self.address.physical), exc)
        if self._error is None:
            cause = f": {exc}" if exc else ": the broker closed it"
            if not self._connected.done():
                cause += self._introduction.early_end_hint()
            self._error = ConnectionLost(f"connection to {self.address.physical} was lost{cause}")
        error = self._error
        lost = error if isinstance(error, ConnectionLost) else ConnectionLost(str(error))
        if not self._connected.done():
            self._connected.set_exception(error)
            self._connected.exception()  # handshake() may have been cancelled and not retrieve it
        for request in self._requests.values():
            request.timer.cancel()
            settle(request.future, lost)
        self._requests.clear()
        ports: list[ProducerPort | ConsumerPort | TopicWatchPort] = [
            *self.producers.values(), *self.consumers.values(), *self.topic_watches.values()
        ]  # fmt: skip
        self.producers.clear()
        self.consumers.clear()
        self.topic_watches.clear()
        calls: list[Callable[[], None]] = [partial(port.handle_detached, self, lost) for port in ports]
        calls.append(partial(self._on_closed, self))
        for call in calls:
            try:
                call()
            except Exception:  # a failure of one must not prevent detaching the others
                log.exception("handler for the closed connection to %s raised", self.address.physical)

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, *parts: bytes) -> None:
        """Send bytes, in one write per event loop iteration; dropped if the connection has ended."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += parts

    def send_command(self, command: Message) -> None:
        """Send a command without waiting for a response."""
        self.send(encode_frame(wrap(command)))

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def next_request_id(self) -> int:
        """Return an id for the next request on this connection."""
        self._next_request_id += 1
        return self._next_request_id

    def request(self, what: str, command: Any) -> asyncio.Future[Any]:
        """Send a request and return the future of its response.

        Args:
            what: description of the request for errors, for example ``subscribe to persistent://…``.
            command: the command; its ``request_id`` is set here.

        The future returns the response command, or raises `BrokerError`, `OperationTimeout` or `ConnectionLost`.
        """
        command.request_id = self.next_request_id()
        if self._rename is not None and "topic" in command.DESCRIPTOR.fields_by_name:
            command.topic = self._rename(command.topic)
        return self.request_by_frame(what, command.request_id, encode_frame(wrap(command)))

    def request_by_frame(self, what: str, request_id: int, frame: bytes) -> asyncio.Future[Any]:
        """Send an encoded request with an id from `next_request_id`; see `request` for the result."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.is_open:
            future.set_exception(
                self._error or ConnectionLost(f"connection to {self.address.physical} is not open yet")
            )
            return future
        timer = self._loop.call_later(self._config.operation_timeout_s, self._time_out, request_id, what)
        self._requests[request_id] = _Request(future, timer)
        self.send(frame)
        return future

    def _time_out(self, request_id: int, what: str) -> None:
        timeout_s = self._config.operation_timeout_s
        self._settle(
            request_id, OperationTimeout(f"{self.address.physical} did not answer within {timeout_s} s: {what}")
        )

    # -- receiving ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle received bytes (called by the event loop)."""
        self._heard_since_tick = True
        try:
            frames = self._decoder.feed_runs(data, read_messages, MESSAGE_HEAD)
        except ProtocolError as error:
            if not self._connected.done():  # a broker's first command is CONNECTED, ERROR or AUTH_CHALLENGE
                self.close(foreign(self.address.physical, data, is_tls=self._introduction.is_tls))
                return
            log.error("closing the connection to %s: %s", self.address.physical, error)
            self.close(error)
            return
        consumers = self.consumers
        handlers = self._handlers
        for frame in frames:
            if type(frame) is Run:
                consumer = consumers.get(frame.owner_id)
                if consumer is not None:
                    consumer.handle_messages(frame.rows)
                continue
            command, payload = cast(Frame, frame)
            kind = command.type
            if kind == BaseCommand.MESSAGE:
                message = command.message
                consumer = consumers.get(message.consumer_id)
                if consumer is not None:
                    consumer.handle_message(message, payload)
            else:
                handler = handlers.get(kind)
                # Like the Java client, skip invalid or unknown commands: newer brokers may send more.
                if handler is not None:
                    handler(command)

    def _use_handlers(self) -> None:
        """Switch to the handlers of the current state, starting with the next frame."""
        legal = LEGAL[Role.BROKER][self._state]
        self._handlers.clear()
        self._handlers.update((kind, handler) for kind, handler in self._all_handlers().items() if kind in legal)

    def _all_handlers(self) -> dict[int, Callable[[BaseCommand], None]]:
        kinds = BaseCommand
        return {
            kinds.SEND_RECEIPT: self._on_receipt,
            kinds.SEND_ERROR: self._on_send_error,
            kinds.PING: self._on_ping,
            kinds.CONNECTED: self._on_connected,
            kinds.ERROR: self._on_error,
            kinds.PRODUCER_SUCCESS: self._on_producer_success,
            **dict.fromkeys(_ANSWERS, self._on_answer),
            kinds.GET_SCHEMA_RESPONSE: self._on_schema,
            kinds.GET_OR_CREATE_SCHEMA_RESPONSE: self._on_schema,
            kinds.ACK_RESPONSE: self._on_ack_response,
            kinds.CLOSE_PRODUCER: self._on_close_producer,
            kinds.CLOSE_CONSUMER: self._on_close_consumer,
            kinds.ACTIVE_CONSUMER_CHANGE: self._on_active_change,
            kinds.REACHED_END_OF_TOPIC: self._on_end_of_topic,
            kinds.WATCH_TOPIC_LIST_SUCCESS: self._on_topic_list,
            kinds.WATCH_TOPIC_UPDATE: self._on_topic_update,
            kinds.AUTH_CHALLENGE: self._on_challenge,
        }

    def _on_receipt(self, command: BaseCommand) -> None:
        receipt = command.send_receipt
        producer = self.producers.get(receipt.producer_id)
        if producer is not None:
            producer.handle_receipt(receipt)

    def _on_send_error(self, command: BaseCommand) -> None:
        producer = self.producers.get(command.send_error.producer_id)
        if producer is not None:
            producer.handle_send_error(command.send_error)

    def _on_ping(self, _: BaseCommand) -> None:
        self.send_command(pb.CommandPong())

    def _on_connected(self, command: BaseCommand) -> None:
        connected = command.connected
        self._state = LEGAL[Role.BROKER][self._state][BaseCommand.CONNECTED]
        self._use_handlers()
        self.server_version = connected.server_version
        if connected.max_message_size > 0:
            self.max_message_bytes = connected.max_message_size
        self.takes_auto_consume = connected.protocol_version >= AUTO_CONSUME_VERSION
        self.offers_topic_watches = connected.feature_flags.supports_topic_watchers
        self._decoder.max_frame_bytes = self.max_message_bytes + FRAME_PADDING_BYTES
        if not self._connected.done():
            self._connected.set_result(None)

    def _on_error(self, command: BaseCommand) -> None:
        error = command.error
        if error.request_id == NO_REQUEST:
            refusal = broker_error(error.error, f"{self.address.physical} refused the connection: {error.message}")
            if isinstance(refusal, AuthenticationError):
                refusal = AuthenticationError(f"{refusal}{self._introduction.hint()}")
            self.close(refusal)
        else:
            self._settle(error.request_id, broker_error(error.error, error.message))

    def _on_challenge(self, _: BaseCommand) -> None:
        # The broker continues to serve meanwhile; it closes the connection if it rejects the answer.
        self._introduction.answer(self.send_command, self.close)

    def _on_producer_success(self, command: BaseCommand) -> None:
        success = command.producer_success
        if success.producer_ready:
            self._settle(success.request_id, success)
        elif (request := self._requests.get(success.request_id)) is not None:
            # The producer waits to become exclusive: the same request is answered again at some later time.
            request.timer.cancel()

    def _on_answer(self, command: BaseCommand) -> None:
        kind = command.type
        answer = getattr(command, _ANSWERS[kind])
        is_refused = kind in _WITH_RESPONSE and answer.response == answer.Failed
        self._settle(answer.request_id, broker_error(answer.error, answer.message) if is_refused else answer)

    def _on_schema(self, command: BaseCommand) -> None:
        is_asked = command.type == BaseCommand.GET_SCHEMA_RESPONSE
        answer = command.getSchemaResponse if is_asked else command.getOrCreateSchemaResponse
        is_refused = answer.HasField("error_code")
        self._settle(answer.request_id, broker_error(answer.error_code, answer.error_message) if is_refused else answer)

    def _on_ack_response(self, command: BaseCommand) -> None:
        answer = command.ackResponse
        is_refused = answer.HasField("error")
        self._settle(answer.request_id, broker_error(answer.error, answer.message) if is_refused else answer)

    def _on_close_producer(self, command: BaseCommand) -> None:
        self._end(self.producers.pop(command.close_producer.producer_id, None), "producer")

    def _on_close_consumer(self, command: BaseCommand) -> None:
        self._end(self.consumers.pop(command.close_consumer.consumer_id, None), "consumer")

    def _end(self, port: ProducerPort | ConsumerPort | None, what: str) -> None:
        if port is not None:
            port.handle_detached(self, ConnectionLost(f"{self.address.physical} closed the {what}"))

    def _on_active_change(self, command: BaseCommand) -> None:
        consumer = self.consumers.get(command.active_consumer_change.consumer_id)
        if consumer is not None:
            consumer.handle_active_change(command.active_consumer_change.is_active)

    def _on_end_of_topic(self, command: BaseCommand) -> None:
        consumer = self.consumers.get(command.reachedEndOfTopic.consumer_id)
        if consumer is not None:
            consumer.handle_end_of_topic()

    def _on_topic_list(self, command: BaseCommand) -> None:
        answer = command.watchTopicListSuccess
        watch = self.topic_watches.get(answer.watcher_id)
        if watch is not None and answer.request_id in self._requests:
            watch.handle_list(answer)
        self._settle(answer.request_id, answer)

    def _on_topic_update(self, command: BaseCommand) -> None:
        watch = self.topic_watches.get(command.watchTopicUpdate.watcher_id)
        if watch is not None:
            watch.handle_update(command.watchTopicUpdate)

    def _settle(self, request_id: int, answer: object) -> None:
        """Complete a request with its response or error."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            request.timer.cancel()
            settle(request.future, answer)

    # -- keep-alive -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._heard_since_tick:
            self.close(
                ConnectionLost(f"{self.address.physical} did not answer a PING within {self._config.keep_alive_s} s")
            )
            return
        self._heard_since_tick = False
        self.send_command(pb.CommandPing())
        self._keep_alive = self._loop.call_later(self._config.keep_alive_s, self._tick)
