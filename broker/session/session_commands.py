"""Handlers of CONNECT, PING and PONG.

Source: Pulsar binary protocol, sections Handshake, Authentication and Keep-alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import __version__
from ...errors import AuthenticationError, ServiceNotReady
from ...wire import replies
from ...wire.pulsar_api_pb2 import BaseCommand, CommandAuthResponse, CommandConnect, CommandPing, CommandPong
from ...wire.session import LEGAL, Role

if TYPE_CHECKING:
    from .connection import Connection

SERVER_VERSION = f"Magnetar {__version__}"


def connect(connection: Connection, command: CommandConnect) -> None:
    """Answer CONNECT.

    Authentication is off: as in Pulsar then, whatever credentials come are taken.
    """
    if not connection.broker.is_started:
        connection.fail(replies.NO_REQUEST, ServiceNotReady("the broker is stopping"))
        connection.close()
        return
    connection.enter(LEGAL[Role.CLIENT][connection.state][BaseCommand.CONNECT])
    connection.client_version = command.client_version
    connection.protocol_version = command.protocol_version
    connection.reply(replies.connected(SERVER_VERSION, command.protocol_version, connection.config.max_message_bytes))


def ping(connection: Connection, command: CommandPing) -> None:
    """Answer PING."""
    connection.reply(replies.pong())


def pong(connection: Connection, command: CommandPong) -> None:
    """Take PONG: that anything came is all it says, and the connection has noted that."""


def auth_response(connection: Connection, command: CommandAuthResponse) -> None:
    """Refuse credentials that nobody asked for, as a broker without authentication does."""
    connection.fail(replies.NO_REQUEST, AuthenticationError("Failed to authenticate"))
    connection.close()
