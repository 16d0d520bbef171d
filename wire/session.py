"""The commands that each side of a connection may send in each state, as a table.

Design: a connection is CONNECTING until the handshake is complete, and then CONNECTED. A closed connection is not read,
so it needs no state. Each side has the state of its receiving direction: the broker is CONNECTED after the client's
CONNECT, and the client after the broker's CONNECTED. `LEGAL` maps a role, state and legal command to the next state; a
missing key is a violation. The owners of producer, consumer and request ids check whether the ids in a command exist.

A broker closes the connection of a client that violates the table, without sending an ERROR. A client ignores unknown
commands, like the Java client, because newer brokers may send more.

Source: Pulsar binary protocol, sections Handshake, and Unknown commands and violations.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from .pulsar_api_pb2 import BaseCommand


class Role(Enum):
    """Role of the sender."""

    CLIENT = "client"
    BROKER = "broker"


class State(Enum):
    """State of the handshake from the receiver's point of view."""

    CONNECTING = "before CONNECT"
    CONNECTED = "after CONNECT"


_CLIENT = (
    BaseCommand.SUBSCRIBE, BaseCommand.PRODUCER, BaseCommand.SEND, BaseCommand.ACK, BaseCommand.FLOW,
    BaseCommand.UNSUBSCRIBE, BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER, BaseCommand.PING, BaseCommand.PONG,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, BaseCommand.PARTITIONED_METADATA, BaseCommand.LOOKUP,
    BaseCommand.CONSUMER_STATS, BaseCommand.SEEK, BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_TOPICS_OF_NAMESPACE,
    BaseCommand.GET_SCHEMA, BaseCommand.GET_OR_CREATE_SCHEMA, BaseCommand.AUTH_RESPONSE, BaseCommand.WATCH_TOPIC_LIST,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE, BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.NEW_TXN,
    BaseCommand.ADD_PARTITION_TO_TXN, BaseCommand.ADD_SUBSCRIPTION_TO_TXN, BaseCommand.END_TXN,
    BaseCommand.END_TXN_ON_PARTITION, BaseCommand.END_TXN_ON_SUBSCRIPTION,
)  # fmt: skip
_BROKER = (
    BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR, BaseCommand.MESSAGE, BaseCommand.SUCCESS, BaseCommand.ERROR,
    BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER, BaseCommand.PRODUCER_SUCCESS, BaseCommand.PING,
    BaseCommand.PONG, BaseCommand.PARTITIONED_METADATA_RESPONSE, BaseCommand.LOOKUP_RESPONSE,
    BaseCommand.CONSUMER_STATS_RESPONSE, BaseCommand.REACHED_END_OF_TOPIC, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
    BaseCommand.ACTIVE_CONSUMER_CHANGE, BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, BaseCommand.GET_SCHEMA_RESPONSE,
    BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, BaseCommand.AUTH_CHALLENGE, BaseCommand.ACK_RESPONSE,
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS, BaseCommand.WATCH_TOPIC_UPDATE, BaseCommand.TOPIC_MIGRATED,
    BaseCommand.TC_CLIENT_CONNECT_RESPONSE, BaseCommand.NEW_TXN_RESPONSE, BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, BaseCommand.END_TXN_RESPONSE,
    BaseCommand.END_TXN_ON_PARTITION_RESPONSE, BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
)  # fmt: skip

LEGAL: Mapping[Role, Mapping[State, Mapping[int, State]]] = {
    Role.CLIENT: {
        State.CONNECTING: {
            BaseCommand.CONNECT: State.CONNECTED,
            BaseCommand.PING: State.CONNECTING,  # as a health check
        },
        State.CONNECTED: dict.fromkeys(_CLIENT, State.CONNECTED),
    },
    Role.BROKER: {
        State.CONNECTING: {
            BaseCommand.CONNECTED: State.CONNECTED,
            BaseCommand.AUTH_CHALLENGE: State.CONNECTING,
            BaseCommand.ERROR: State.CONNECTING,  # instead of CONNECTED, followed by a close
            BaseCommand.PING: State.CONNECTING,
            BaseCommand.PONG: State.CONNECTING,
        },
        # A client also accepts a second CONNECTED, whose limits replace those of the first.
        State.CONNECTED: {BaseCommand.CONNECTED: State.CONNECTED, **dict.fromkeys(_BROKER, State.CONNECTED)},
    },
}
"""Role -> state -> command that the role may send in this state -> next state."""


def commands_of(role: Role) -> frozenset[int]:
    """Return all commands that a role may send in any state."""
    return frozenset(command for commands in LEGAL[role].values() for command in commands)


def violation(role: Role, state: State, command: int) -> str:
    """Return the error message for a command that is not in `LEGAL`."""
    if command not in commands_of(role):
        return f"command type {command} must not be sent by a {role.value}"
    if state is State.CONNECTED:
        return f"duplicate {BaseCommand.Type.Name(command)} on one connection"
    return f"command type {command} {state.value}"
