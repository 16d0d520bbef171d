"""Blocking connections to brokers, for code that has a thread to itself and no event loop: planners and tasks.

Design: a task is a generator that Spark advances when it wants rows. Between two rows nobody would run an event loop,
so an asyncio client would help nothing there; a socket that is read when more is needed has back-pressure by nature.
While nobody reads, pings stay unanswered and the broker ends the connection after its keep-alive time: whoever reads on
connects anew where it stopped, as after any other loss.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from typing import Any

from ...client.connections.service_url import Address, HostPort, parse_service_url
from ...errors import (
    BrokerError,
    ConnectionLost,
    InvalidConfig,
    MagnetarError,
    OperationTimeout,
    ProtocolError,
    RequestRefused,
    broker_error,
)
from ...web.client import NoAnswer, request
from ...wire import pulsar_api_pb2 as pb
from ...wire.commands import connect_command, wrap
from ...wire.frames import FRAME_PADDING_BYTES, Frame, FrameDecoder, encode_frame
from ...wire.pulsar_api_pb2 import BaseCommand
from ...wire.topic_name import TopicName

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
MAX_REDIRECTS = 20
CLIENT_VERSION = "magnetar-spark"
ANSWER_TIMEOUT_S = 30.0
"""Of the REST interface."""
_READ_BYTES = 1 << 18
_ANSWERS = {
    BaseCommand.SUCCESS: "success",
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    BaseCommand.ACK_RESPONSE: "ackResponse",
}
"""The answers to what is asked here, by the name of their field."""


class BlockingConnection:
    """One connection to a broker; for one thread.

    Attributes:
        address: which broker this is.
    """

    def __init__(self, address: Address):
        """Connect, and exchange CONNECT and CONNECTED.

        Raises:
            ConnectionLost, OperationTimeout: nobody answers there.
            BrokerError: the broker refuses.
        """
        self.address = address
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()
        self._next_request_id = 0
        try:
            self._socket = socket.create_connection(address.physical, CONNECT_TIMEOUT_S)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address.physical}: {error}; is the broker running?") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._handshake()
        except BaseException:
            self.close()
            raise

    def _handshake(self) -> None:
        proxy_to = str(self.address.logical) if self.address.is_proxied else None
        self.send(encode_frame(wrap(connect_command(CLIENT_VERSION, proxy_to))))
        frame = self.next_frame(time.monotonic() + CONNECT_TIMEOUT_S)
        if frame is None:
            raise OperationTimeout(f"{self.address.physical} did not answer CONNECT within {CONNECT_TIMEOUT_S:g} s")
        command = frame.command
        if command.type == BaseCommand.ERROR:
            raise broker_error(command.error.error, f"{self.address.physical} refused us: {command.error.message}")
        if command.type != BaseCommand.CONNECTED:
            raise ProtocolError(f"{self.address.physical} answered CONNECT with a command of type {command.type}")
        if command.connected.max_message_size > 0:
            self._decoder.max_frame_bytes = command.connected.max_message_size + FRAME_PADDING_BYTES

    def close(self) -> None:
        """Close the connection; the broker drops its consumers."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionLost: the connection has ended.
        """
        try:
            self._socket.settimeout(REQUEST_TIMEOUT_S)
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"connection to {self.address.physical} broke: {error}") from error

    def next_frame(self, deadline: float) -> Frame | None:
        """Return the next frame that is no ping, None if there was none until ``deadline`` (monotonic seconds).

        Raises:
            ConnectionLost: the connection has ended.
        """
        while not self._frames:
            if not self._receive(deadline):
                return None
        return self._frames.popleft()

    def _receive(self, deadline: float) -> bool:
        """Wait for bytes and keep their frames; return False if none came until ``deadline``."""
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        try:
            self._socket.settimeout(remaining_s)
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return False
        except OSError as error:
            raise ConnectionLost(f"connection to {self.address.physical} broke: {error}") from error
        if not data:
            raise ConnectionLost(f"{self.address.physical} closed the connection")
        for frame in self._decoder.feed(data):
            if frame.command.type == BaseCommand.PING:
                self.send(encode_frame(wrap(pb.CommandPong())))
            elif frame.command.type != BaseCommand.PONG:
                self._frames.append(frame)
        return True

    def forget_frames(self) -> None:
        """Drop the frames that were received and not read."""
        self._frames.clear()

    def request(self, what: str, command: Any) -> Any:
        """Send a request and return its answer's command; frames that come before it stay for `next_frame`.

        Args:
            what: names the request in errors.
            command: of the protocol; its request id is set here.

        Raises:
            BrokerError: the broker refuses.
            ConnectionLost, OperationTimeout: there is no answer.
        """
        self._next_request_id += 1
        request_id = command.request_id = self._next_request_id
        self.send(encode_frame(wrap(command)))
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        before: deque[Frame] = deque()
        try:
            while (frame := self.next_frame(deadline)) is not None:
                envelope = frame.command
                if envelope.type == BaseCommand.ERROR and envelope.error.request_id == request_id:
                    raise _refusal(envelope.error.error, what, envelope.error.message)
                field = _ANSWERS.get(envelope.type)
                answer = getattr(envelope, field) if field is not None else None
                if answer is not None and answer.request_id == request_id:
                    return answer
                before.append(frame)
        finally:
            self._frames.extendleft(reversed(before))
        raise OperationTimeout(f"{self.address.physical} did not answer within {REQUEST_TIMEOUT_S:g} s: {what}")


class Routes:
    """Finds the brokers of topics through a service URL."""

    def __init__(self, service_url: str):
        """Prepare; nothing is connected yet.

        Raises:
            InvalidConfig: the URL is none.
        """
        service = parse_service_url(service_url)
        if service.is_tls:
            raise InvalidConfig(
                f"service URL {service_url!r}: Spark's source speaks no TLS yet; give pulsar://host:port"
            )
        self._hosts = service.hosts

    def service(self) -> BlockingConnection:
        """Return a connection to the first host of the service URL that answers."""
        error: MagnetarError | None = None
        for host in self._hosts:
            try:
                return BlockingConnection(Address(host, host))
            except (ConnectionLost, OperationTimeout) as failed:
                error = failed
        assert error is not None
        raise error

    def connect_to(self, topic: str) -> BlockingConnection:
        """Return a connection to the broker that owns a topic.

        Raises:
            ConnectionLost, OperationTimeout: a broker does not answer.
            BrokerError: there is no such topic, or it has no owner at the moment.
        """
        connection = self.service()
        try:
            service = connection.address.physical
            authoritative = False
            for _ in range(MAX_REDIRECTS + 1):
                command = pb.CommandLookupTopic(topic=topic, authoritative=authoritative)
                answer = connection.request(f"lookup of {topic}", command)
                if answer.response == pb.CommandLookupTopicResponse.Failed:
                    raise _refusal(answer.error, f"lookup of {topic}", answer.message)
                address = _address(answer, service)
                if address != connection.address:
                    connection.close()
                    connection = BlockingConnection(address)
                if answer.response == pb.CommandLookupTopicResponse.Connect:
                    return connection
                authoritative = answer.authoritative
            raise ConnectionLost(f"lookup of {topic} was redirected more than {MAX_REDIRECTS} times")
        except BaseException:
            connection.close()
            raise

    def partitions(self, topic: TopicName, *, makes: bool = False) -> int:
        """Return the number of partitions, 0 for a topic without.

        Args:
            topic: which.
            makes: one that is missing is created, as the broker's policy says; else nothing is.
        """
        command = pb.CommandPartitionedTopicMetadata(topic=topic.text, metadata_auto_creation_enabled=makes)
        with contextlib.closing(self.service()) as connection:
            answer = connection.request(f"partitions of {topic}", command)
            if answer.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
                raise _refusal(answer.error, f"partitions of {topic}", answer.message)
            return int(answer.partitions)

    def topics_of(self, namespace: str) -> list[str]:
        """Return the full names of the persistent topics of ``tenant/namespace``, partitions by their own names."""
        persistent = pb.CommandGetTopicsOfNamespace.PERSISTENT
        command = pb.CommandGetTopicsOfNamespace(namespace=namespace, mode=persistent)
        with contextlib.closing(self.service()) as connection:
            return list(connection.request(f"topics of {namespace}", command).topics)


def _refusal(code: int, what: str, message: str) -> BrokerError:
    """Return the broker's error, which may come without a text."""
    error = broker_error(code, message)
    kind = (type(error).__doc__ or "").splitlines()[0].rstrip(".")
    return type(error)(f"{what}: {message or kind}")


def _address(answer: pb.CommandLookupTopicResponse, service: HostPort) -> Address:
    """Return where a lookup answer points to; a proxied broker is reached through the service URL."""
    if not answer.brokerServiceUrl:
        raise ProtocolError("a lookup answer names no broker without TLS; TLS is not supported")
    broker = parse_service_url(answer.brokerServiceUrl).hosts[0]
    return Address(broker, service if answer.proxy_through_service_url else broker)


def ask(admin_url: str, method: str, path: str, body: Any = None) -> Any:
    """Return the JSON of the answer, None for an empty one.

    Args:
        admin_url: of the REST interface.
        method: of HTTP.
        path: below the address.
        body: sent as JSON; None sends nothing.

    Raises:
        RequestRefused: the answer is an error.
        ConnectionLost: there is none that can be read.
    """
    url = f"{admin_url.rstrip('/')}{path}"
    try:
        answer = request(method, url, body=body, timeout_s=ANSWER_TIMEOUT_S)
        if not answer.is_success:
            raise RequestRefused(answer.status, f"{method} {url} answered {answer.status}: {answer.reason}")
        return answer.json()
    except NoAnswer as error:
        raise ConnectionLost(f"{method} {url} failed: {error.reason}; correct option admin.url") from error
