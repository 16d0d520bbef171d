"""Blocking connections to brokers, for planners and tasks, which have their own thread and no event loop.

Design: a task is a generator that Spark advances when it needs rows. An event loop would not run between rows, so an
asyncio client would not help, while a socket that is read on demand provides natural back-pressure. Between reads,
pings remain unanswered and the broker closes the connection after its keep-alive time; the next read then reconnects
and resumes, as after any other connection loss. The same happens if the broker requests new credentials meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ...client.connections.service_url import Address, HostPort, parse_service_url
from ...errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLost,
    MagnetarError,
    OperationTimeout,
    ProtocolError,
    RequestRefused,
    TopicNotFound,
    broker_error,
)
from ...security.client_credentials import ClientCredentials
from ...security.credentials.client_security import ClientSecurity
from ...security.tls_failure import tls_failure
from ...web.client import NoAnswer, request
from ...wire import pulsar_api_pb2 as pb
from ...wire.commands import PROTOCOL_VERSION, connect_command, wrap
from ...wire.frames import FRAME_PADDING_BYTES, Frame, FrameDecoder, encode_frame
from ...wire.pulsar_api_pb2 import BaseCommand
from ...wire.topic_name import TopicName
from .security_options import told_where

if TYPE_CHECKING:
    from ...client.schemas.schema import SchemaInfo

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
MAX_REDIRECTS = 20
CLIENT_VERSION = "magnetar-spark"
ANSWER_TIMEOUT_S = 30.0
"""Timeout of REST requests."""
_READ_BYTES = 1 << 18
_ANSWERS = {
    BaseCommand.SUCCESS: "success",
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    BaseCommand.ACK_RESPONSE: "ackResponse",
    BaseCommand.GET_SCHEMA_RESPONSE: "getSchemaResponse",
}
"""Field names of the responses to the requests used here."""


class Timeouts(NamedTuple):
    """Timeouts of broker connections.

    Attributes:
        connect_s: timeout for connecting, and separately for the response to CONNECT.
        request_s: timeout for the response to a request.
    """

    connect_s: float
    request_s: float


DEFAULT_TIMEOUTS = Timeouts(CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S)


class BlockingConnection:
    """Connection to a broker. Not thread-safe.

    Attributes:
        address: the broker's address.
    """

    def __init__(
        self,
        address: Address,
        credentials: ClientCredentials,
        *,
        is_tls: bool,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ):
        """Connect and complete the CONNECT handshake.

        Args:
            address: the broker's address.
            credentials: credentials and TLS settings.
            is_tls: whether to use TLS.
            timeouts: timeouts of this and all later requests.

        Raises:
            ConnectionLost, OperationTimeout: the broker does not answer.
            BrokerError: the broker rejects the connection.
            CredentialsUnavailable: the credentials, or the certificates to verify the broker, are missing.
            TlsFailed: one side rejected the other's certificate.
        """
        self.address = address
        self._credentials = credentials
        self._is_tls = is_tls
        self._timeouts = timeouts
        with told_where():
            shown = credentials.data()
            context = credentials.context() if is_tls else None
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()
        self._next_request_id = 0
        self._is_connected = False
        try:
            self._socket: socket.socket = socket.create_connection(address.physical, timeouts.connect_s)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address.physical}: {error}; is the broker running?") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._start_tls(context)
            self._handshake(shown)
        except BaseException:
            self.close()
            raise

    def _start_tls(self, context: ssl.SSLContext) -> None:
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self.address.physical.host)
        except OSError as error:
            raise self._broken("cannot connect to", error) from error

    def _broken(self, what: str, error: OSError) -> MagnetarError:
        """Return the exception to raise for a socket error."""
        if self._is_tls and (failure := tls_failure(str(self.address.physical), error)):
            return failure
        if isinstance(error, ssl.SSLError | ConnectionResetError) and self._is_tls:
            return ConnectionLost(
                f"{what} {self.address.physical}: TLS connection closed: {error}{self._early_end_hint()}"
            )
        return ConnectionLost(f"{what} {self.address.physical}: {error}")

    def _early_end_hint(self) -> str:
        if self._is_connected or not self._is_tls or self._credentials.has_certificate:
            return ""
        # With TLS 1.3, servers check the client's certificate last, and not every server then reports the reason.
        return (
            " before the handshake finished; the broker may require a client certificate (options"
            " tls.certificate.file and tls.key.file)"
        )

    def _handshake(self, shown: bytes) -> None:
        proxy_to = str(self.address.logical) if self.address.is_proxied else None
        connect = connect_command(CLIENT_VERSION, proxy_to, self._credentials.method, shown)
        self.send(encode_frame(wrap(connect)))
        frame = self.next_frame(time.monotonic() + self._timeouts.connect_s)
        if frame is None:
            timeout_s = self._timeouts.connect_s
            raise OperationTimeout(f"{self.address.physical} did not answer CONNECT within {timeout_s:g} s")
        command = frame.command
        if command.type == BaseCommand.ERROR:
            text = f"{self.address.physical} refused the connection: {command.error.message}"
            refusal = broker_error(command.error.error, text)
            raise type(refusal)(text + self._hint()) if isinstance(refusal, AuthenticationError) else refusal
        if command.type != BaseCommand.CONNECTED:
            raise ProtocolError(f"{self.address.physical} answered CONNECT with a command of type {command.type}")
        if command.connected.max_message_size > 0:
            self._decoder.max_frame_bytes = command.connected.max_message_size + FRAME_PADDING_BYTES
        self._is_connected = True

    def _hint(self) -> str:
        """Return a hint for when a broker rejects the credentials."""
        if self._credentials.authentication is None:
            return "; authentication is required: set options auth.plugin and auth.params"
        return f" (method {self._credentials.method}): the credentials may have expired or belong to another cluster"

    def close(self) -> None:
        """Close the connection, which makes the broker drop its consumers."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionLost: the connection is closed.
        """
        try:
            self._socket.settimeout(self._timeouts.request_s)
            self._socket.sendall(data)
        except OSError as error:
            raise self._broken("lost the connection to", error) from error

    def next_frame(self, deadline: float) -> Frame | None:
        """Return the next frame other than a ping, or None if none arrives until ``deadline`` (monotonic seconds).

        Raises:
            ConnectionLost: the connection is closed.
        """
        while not self._frames:
            if not self._receive(deadline):
                return None
        return self._frames.popleft()

    def _receive(self, deadline: float) -> bool:
        """Wait for bytes and store their frames; return False if none arrive until ``deadline``."""
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        try:
            self._socket.settimeout(remaining_s)
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return False
        except OSError as error:
            raise self._broken("lost the connection to", error) from error
        if not data:
            raise ConnectionLost(f"{self.address.physical} closed the connection{self._early_end_hint()}")
        for frame in self._decoder.feed(data):
            if frame.command.type == BaseCommand.PING:
                self.send(encode_frame(wrap(pb.CommandPong())))
            elif frame.command.type == BaseCommand.AUTH_CHALLENGE:
                self._answer_challenge()
            elif frame.command.type != BaseCommand.PONG:
                self._frames.append(frame)
        return True

    def _answer_challenge(self) -> None:
        """Send the current credentials; do nothing if the connection has none."""
        if self._credentials.authentication is None:
            return
        try:
            shown = self._credentials.data()
        except MagnetarError as error:
            raise ConnectionLost(f"{self.address.physical} requested new credentials: {error}") from error
        response = pb.AuthData(auth_method_name=self._credentials.method, auth_data=shown)
        answer = pb.CommandAuthResponse(
            client_version=CLIENT_VERSION, response=response, protocol_version=PROTOCOL_VERSION
        )
        self.send(encode_frame(wrap(answer)))

    def forget_frames(self) -> None:
        """Discard received frames that have not been read."""
        self._frames.clear()

    def request(self, what: str, command: Any) -> Any:
        """Send a request and return the command of its response; frames received earlier remain for `next_frame`.

        Args:
            what: request name for errors.
            command: protocol command; its request id is set here.

        Raises:
            BrokerError: the broker rejected the request.
            ConnectionLost, OperationTimeout: there was no response.
        """
        self._next_request_id += 1
        request_id = command.request_id = self._next_request_id
        self.send(encode_frame(wrap(command)))
        deadline = time.monotonic() + self._timeouts.request_s
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
        timeout_s = self._timeouts.request_s
        raise OperationTimeout(f"{self.address.physical} did not answer within {timeout_s:g} s: {what}")


class Routes:
    """Finds and connects to the brokers of topics through a service URL.

    Attributes:
        credentials: credentials for brokers and for the REST interface.
    """

    def __init__(self, service_url: str, security: ClientSecurity | None = None, timeouts: Timeouts = DEFAULT_TIMEOUTS):
        """Create the routes without connecting or reading files.

        Args:
            service_url: service URL of the cluster.
            security: credentials and TLS settings; None for neither.
            timeouts: timeouts of all connections.

        Raises:
            InvalidConfig: the URL is invalid, or the kind of credentials is unknown.
        """
        service = parse_service_url(service_url)
        self._is_tls = service.is_tls
        self._hosts = service.hosts
        self._timeouts = timeouts
        self.credentials = ClientCredentials(security)

    def _connect(self, address: Address) -> BlockingConnection:
        return BlockingConnection(address, self.credentials, is_tls=self._is_tls, timeouts=self._timeouts)

    def service(self) -> BlockingConnection:
        """Return a connection to the first host of the service URL that answers."""
        error: MagnetarError | None = None
        for host in self._hosts:
            try:
                return self._connect(Address(host, host))
            except (ConnectionLost, OperationTimeout) as failed:
                error = failed
        assert error is not None
        raise error

    def connect_to(self, topic: str) -> BlockingConnection:
        """Return a connection to the broker that owns a topic.

        Raises:
            ConnectionLost, OperationTimeout: a broker did not answer.
            BrokerError: the topic does not exist, or currently has no owner.
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
                address = _address(answer, service, self._is_tls)
                if address != connection.address:
                    connection.close()
                    connection = self._connect(address)
                if answer.response == pb.CommandLookupTopicResponse.Connect:
                    return connection
                authoritative = answer.authoritative
            raise ConnectionLost(f"lookup of {topic} was redirected more than {MAX_REDIRECTS} times")
        except BaseException:
            connection.close()
            raise

    def partitions(self, topic: TopicName, *, makes: bool = False) -> int:
        """Return the number of partitions, 0 for a non-partitioned topic.

        Args:
            topic: the topic.
            makes: whether to create a missing topic, if the broker's policy allows it.
        """
        command = pb.CommandPartitionedTopicMetadata(topic=topic.text, metadata_auto_creation_enabled=makes)
        with contextlib.closing(self.service()) as connection:
            answer = connection.request(f"partitions of {topic}", command)
            if answer.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
                raise _refusal(answer.error, f"partitions of {topic}", answer.message)
            return int(answer.partitions)

    def topics_of(self, namespace: str) -> list[str]:
        """Return the full names of the persistent topics in ``tenant/namespace``, listing partitions separately."""
        persistent = pb.CommandGetTopicsOfNamespace.PERSISTENT
        command = pb.CommandGetTopicsOfNamespace(namespace=namespace, mode=persistent)
        with contextlib.closing(self.service()) as connection:
            return list(connection.request(f"topics of {namespace}", command).topics)

    def schema(self, topic: TopicName, version: bytes | None = None) -> tuple[SchemaInfo, bytes] | None:
        """Return a topic's schema and its version, or None.

        Args:
            topic: the topic; a partition has the schemas of its topic.
            version: schema version; None for the newest.
        """
        from ...client.schemas.schema import SchemaInfo

        what = f"schema of {topic.base}" + ("" if version is None else f", version 0x{version.hex()}")
        command = pb.CommandGetSchema(topic=topic.base.text, schema_version=version)
        with contextlib.closing(self.service()) as connection:
            answer = connection.request(what, command)
        if answer.HasField("error_code"):
            refusal = _refusal(answer.error_code, what, answer.error_message)
            if isinstance(refusal, TopicNotFound):
                return None
            raise refusal
        return SchemaInfo.from_proto(answer.schema), bytes(answer.schema_version)


def _refusal(code: int, what: str, message: str) -> BrokerError:
    """Return the exception for a broker's error, whose message may be empty."""
    error = broker_error(code, message)
    kind = (type(error).__doc__ or "").splitlines()[0].rstrip(".")
    return type(error)(f"{what}: {message or kind}")


def _address(answer: pb.CommandLookupTopicResponse, service: HostPort, is_tls: bool) -> Address:
    """Return the address in a lookup response; a proxied broker is addressed through the service URL."""
    url = answer.brokerServiceUrlTls if is_tls else answer.brokerServiceUrl
    if not url:
        found, other = ("with", "pulsar://") if is_tls else ("without", "pulsar+ssl://")
        raise ProtocolError(f"{service} did not return a broker {found} TLS; should the client connect with {other}?")
    parsed = parse_service_url(url)
    if parsed.is_tls != is_tls:
        raise ProtocolError(f"{service} returned {url} for a broker with{'' if is_tls else 'out'} TLS")
    broker = parsed.hosts[0]
    return Address(broker, service if answer.proxy_through_service_url else broker)


def ask(
    admin_url: str, method: str, path: str, body: Any = None, *, credentials: ClientCredentials | None = None
) -> Any:
    """Return the JSON of the response, or None if the response is empty.

    Args:
        admin_url: URL of the REST interface.
        method: HTTP method.
        path: path below the URL.
        body: sent as JSON; None for no body.
        credentials: credentials and TLS settings; None for neither.

    Raises:
        RequestRefused: the server returned an error.
        ConnectionLost: there was no readable response.
        CredentialsUnavailable: the credentials are missing.
    """
    url = f"{admin_url.rstrip('/')}{path}"
    try:
        with told_where():
            answer = request(method, url, body=body, timeout_s=ANSWER_TIMEOUT_S, credentials=credentials)
        if not answer.is_success:
            raise RequestRefused(answer.status, f"{method} {url} answered {answer.status}: {answer.reason}")
        return answer.json()
    except NoAnswer as error:
        raise ConnectionLost(f"{method} {url} failed: {error.reason}: check option admin.url") from error
