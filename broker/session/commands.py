"""Which function handles which command of a client; when a client may send it says `wire.session`.

SEND is handled by the connection itself, because it comes by the thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import NotAllowed
from ...wire import replies
from ...wire.pulsar_api_pb2 import BaseCommand
from ...wire.strings import has_strings
from .consumer_commands import (
    ack,
    close_consumer,
    consumer_stats,
    flow,
    last_message_id,
    redeliver,
    seek,
    subscribe,
    unsubscribe,
)
from .lookup_commands import get_or_create_schema, get_schema, lookup, partitioned_metadata, topics_of_namespace
from .producer_commands import close_producer, producer
from .session_commands import auth_response, connect, ping, pong

if TYPE_CHECKING:
    from .connection import Connection


class Handler(NamedTuple):
    """Handler of one kind of command.

    Attributes:
        field: name of its message in BaseCommand; a command without it breaks the protocol.
        run: takes the connection and the message; returns at once, starting a task where it needs time.
        has_strings: whether its message may hold strings, which must be UTF-8. ACK comes by the thousand, and nobody
            reads its strings, the keys of `properties`: it counts as having none.
    """

    field: str
    run: Callable[[Connection, Any], None]
    has_strings: bool = True


def _refuse(what: str) -> Callable[[Connection, Any], None]:
    def run(connection: Connection, command: Any) -> None:
        connection.fail(command.request_id, NotAllowed(f"{what} are not supported by this broker"))

    return run


def _refuse_topic_watch(connection: Connection, command: Any) -> None:
    connection.fail(command.request_id, NotAllowed("watching topics is not supported by this broker; poll them"))


def _end_of_watch(connection: Connection, command: Any) -> None:
    connection.reply(replies.success(command.request_id))


_transactions = _refuse("transactions")

_HANDLERS: dict[int, Handler] = {
    BaseCommand.CONNECT: Handler("connect", connect),
    BaseCommand.PING: Handler("ping", ping),
    BaseCommand.PONG: Handler("pong", pong),
    BaseCommand.AUTH_RESPONSE: Handler("authResponse", auth_response),
    BaseCommand.PARTITIONED_METADATA: Handler("partitionMetadata", partitioned_metadata),
    BaseCommand.LOOKUP: Handler("lookupTopic", lookup),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: Handler("getTopicsOfNamespace", topics_of_namespace),
    BaseCommand.GET_SCHEMA: Handler("getSchema", get_schema),
    BaseCommand.GET_OR_CREATE_SCHEMA: Handler("getOrCreateSchema", get_or_create_schema),
    BaseCommand.PRODUCER: Handler("producer", producer),
    BaseCommand.CLOSE_PRODUCER: Handler("close_producer", close_producer),
    BaseCommand.SUBSCRIBE: Handler("subscribe", subscribe),
    BaseCommand.FLOW: Handler("flow", flow),
    BaseCommand.ACK: Handler("ack", ack),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: Handler("redeliverUnacknowledgedMessages", redeliver),
    BaseCommand.UNSUBSCRIBE: Handler("unsubscribe", unsubscribe),
    BaseCommand.CLOSE_CONSUMER: Handler("close_consumer", close_consumer),
    BaseCommand.SEEK: Handler("seek", seek),
    BaseCommand.GET_LAST_MESSAGE_ID: Handler("getLastMessageId", last_message_id),
    BaseCommand.CONSUMER_STATS: Handler("consumerStats", consumer_stats),
    BaseCommand.WATCH_TOPIC_LIST: Handler("watchTopicList", _refuse_topic_watch),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: Handler("watchTopicListClose", _end_of_watch),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: Handler("tcClientConnectRequest", _transactions),
    BaseCommand.NEW_TXN: Handler("newTxn", _transactions),
    BaseCommand.ADD_PARTITION_TO_TXN: Handler("addPartitionToTxn", _transactions),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: Handler("addSubscriptionToTxn", _transactions),
    BaseCommand.END_TXN: Handler("endTxn", _transactions),
    BaseCommand.END_TXN_ON_PARTITION: Handler("endTxnOnPartition", _transactions),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: Handler("endTxnOnSubscription", _transactions),
}

HANDLERS: dict[int, Handler] = {
    kind: handler._replace(
        has_strings=kind != BaseCommand.ACK and has_strings(getattr(BaseCommand(), handler.field).DESCRIPTOR)
    )
    for kind, handler in _HANDLERS.items()
}
