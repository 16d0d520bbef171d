"""The handler for each client command. `wire.session` defines when a client may send it.

SEND is frequent, and the connection handles it itself. CONNECT, PING and PONG are handled here.

Source: Pulsar binary protocol, sections Handshake, Authentication and Keep-alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import __version__
from ...errors import AuthenticationError, NotAllowed, ServiceNotReady
from ...wire import pulsar_api_pb2 as pb
from ...wire.commands import NO_REQUEST, PROTOCOL_VERSION
from ...wire.pulsar_api_pb2 import BaseCommand
from ...wire.session import LEGAL, Role
from ...wire.strings import has_strings
from . import ack_commands, consumer_commands, lookup_commands, producer_commands, schema_commands, topic_watches
from .authorization import guarded

if TYPE_CHECKING:
    from .connection import Connection

SERVER_VERSION = f"Magnetar {__version__}"


class Handler(NamedTuple):
    """Handler of one command.

    Attributes:
        field: field of BaseCommand with the command's message; a command without it violates the protocol.
        run: receives the connection and the message, and returns immediately, starting a task for slow work. Its
            exceptions become error responses.
        has_strings: whether the message may contain strings, which must be UTF-8. False for ACK, which is frequent and
            whose strings, the keys of `properties`, are never read.
    """

    field: str
    run: Callable[[Connection, Any], None]
    has_strings: bool


def _connect(connection: Connection, command: pb.CommandConnect) -> None:
    """Handle CONNECT. If authentication is disabled, any credentials are accepted."""
    if not connection.broker.is_started:
        connection.fail(NO_REQUEST, ServiceNotReady("the broker is stopping"))
        connection.close()
    elif connection.broker.authenticator is None:
        _welcome(connection, command)
    else:
        # Imported here, as it is not needed without authentication.
        from .authentication import ConnectionAuthentication

        authentication = ConnectionAuthentication(connection, connection.broker.authenticator)
        connection.authentication = authentication
        authentication.connect(command, lambda: _welcome(connection, command))


def _welcome(connection: Connection, command: pb.CommandConnect) -> None:
    """Send CONNECTED. Both sides use the lower of their protocol versions."""
    connection.enter(LEGAL[Role.CLIENT][connection.state][BaseCommand.CONNECT])
    if refusal := connection.is_known():
        connection.fail(NO_REQUEST, NotAllowed(refusal))
        connection.close()
        return
    connection.client_version = command.client_version
    connection.protocol_version = command.protocol_version
    connected = pb.CommandConnected(
        server_version=SERVER_VERSION,
        protocol_version=min(command.protocol_version, PROTOCOL_VERSION),
        max_message_size=connection.config.max_message_bytes,
        feature_flags=pb.FeatureFlags(
            supports_topic_watchers=True, supports_get_partitioned_metadata_without_auto_creation=True
        ),
    )
    connection.reply(connected)


def _ping(connection: Connection, command: pb.CommandPing) -> None:
    connection.reply(pb.CommandPong())


def _pong(connection: Connection, command: pb.CommandPong) -> None:
    """Do nothing: the connection has already recorded the activity."""


def _auth_response(connection: Connection, command: pb.CommandAuthResponse) -> None:
    """Handle renewed credentials. A broker without authentication rejects them, as it never requests any."""
    if connection.authentication is not None:
        connection.authentication.respond(command)
    else:
        connection.fail(NO_REQUEST, AuthenticationError("Failed to authenticate"))
        connection.close()


def _refuse(text: str) -> Callable[[Connection, Any], None]:
    def run(connection: Connection, command: Any) -> None:
        raise NotAllowed(text)

    return run


_transactions = _refuse("transactions are not supported by this broker")

_HANDLERS: dict[int, Callable[[Connection, Any], None]] = {
    BaseCommand.CONNECT: _connect,
    BaseCommand.PING: _ping,
    BaseCommand.PONG: _pong,
    BaseCommand.AUTH_RESPONSE: _auth_response,
    BaseCommand.PARTITIONED_METADATA: lookup_commands.partitioned_metadata,
    BaseCommand.LOOKUP: lookup_commands.lookup,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: lookup_commands.topics_of_namespace,
    BaseCommand.GET_SCHEMA: schema_commands.get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: schema_commands.get_or_create_schema,
    BaseCommand.PRODUCER: producer_commands.producer,
    BaseCommand.CLOSE_PRODUCER: producer_commands.close_producer,
    BaseCommand.SUBSCRIBE: consumer_commands.subscribe,
    BaseCommand.FLOW: consumer_commands.flow,
    BaseCommand.ACK: ack_commands.ack,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: ack_commands.redeliver,
    BaseCommand.UNSUBSCRIBE: consumer_commands.unsubscribe,
    BaseCommand.CLOSE_CONSUMER: consumer_commands.close_consumer,
    BaseCommand.SEEK: consumer_commands.seek,
    BaseCommand.GET_LAST_MESSAGE_ID: consumer_commands.last_message_id,
    BaseCommand.CONSUMER_STATS: consumer_commands.consumer_stats,
    BaseCommand.WATCH_TOPIC_LIST: topic_watches.watch_topic_list,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: topic_watches.close_watch,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _transactions,
    BaseCommand.NEW_TXN: _transactions,
    BaseCommand.ADD_PARTITION_TO_TXN: _transactions,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _transactions,
    BaseCommand.END_TXN: _transactions,
    BaseCommand.END_TXN_ON_PARTITION: _transactions,
    BaseCommand.END_TXN_ON_SUBSCRIPTION: _transactions,
}


def _handler(kind: int, run: Callable[[Connection, Any], None]) -> Handler:
    field = BaseCommand.DESCRIPTOR.fields_by_number[kind].name
    run = guarded(kind, run)
    return Handler(field, run, kind != BaseCommand.ACK and has_strings(getattr(BaseCommand(), field).DESCRIPTOR))


HANDLERS: dict[int, Handler] = {kind: _handler(kind, run) for kind, run in _HANDLERS.items()}
