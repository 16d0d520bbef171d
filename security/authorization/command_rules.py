"""Authorization rules of the binary protocol: one row for each client command, with Pulsar's denial messages.

Producers and consumers are authorized once, when they are created: SEND, FLOW, ACK and their other commands carry an id
that is valid only on the same connection. Like Pulsar, schema commands are not authorized.

Source: Pulsar 4.0, ServerCnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...wire.pulsar_api_pb2 import BaseCommand
from .operations import NamespaceOperation, TopicOperation
from .rules import Rule, Who


@dataclass(frozen=True, slots=True)
class CommandRule:
    """The authorization rule of a command.

    Attributes:
        rule: the rule for the topic or namespace that the command names.
        message: error message of the denial.
        missing_tenant: error message if the tenant does not exist; empty to use ``message``.
        tells_missing: whether a missing tenant is reported as TopicNotFound.
    """

    rule: Rule
    message: str
    missing_tenant: str = ""
    tells_missing: bool = False


_LOOKUP = Rule(Who.TOPIC, TopicOperation.LOOKUP)
_LIST = Rule(Who.NAMESPACE, NamespaceOperation.GET_TOPICS)
COMMAND_RULES: Mapping[int, CommandRule] = {
    BaseCommand.LOOKUP: CommandRule(
        _LOOKUP, "Client is not authorized to Lookup", "Exception occurred while trying to authorize lookup"
    ),
    BaseCommand.PARTITIONED_METADATA: CommandRule(
        _LOOKUP,
        "Client is not authorized to Get Partition Metadata",
        "Tenant or namespace or topic does not exist: {namespace}",
        tells_missing=True,
    ),
    BaseCommand.PRODUCER: CommandRule(Rule(Who.TOPIC, TopicOperation.PRODUCE), "Client is not authorized to Produce"),
    BaseCommand.SUBSCRIBE: CommandRule(
        Rule(Who.TOPIC, TopicOperation.CONSUME), "Client is not authorized to subscribe"
    ),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: CommandRule(_LIST, "Client is not authorized to GetTopicsOfNamespace"),
    BaseCommand.WATCH_TOPIC_LIST: CommandRule(_LIST, "Proxy Client is not authorized to watchTopicList"),
}
"""The commands that require authorization."""
INITIAL_SUBSCRIPTION = Rule(Who.TOPIC, TopicOperation.SUBSCRIBE)
"""Additional rule for a PRODUCER that names an initial subscription."""

NOT_DECIDED: Mapping[int, str] = {
    **dict.fromkeys(
        (BaseCommand.CONNECT, BaseCommand.AUTH_RESPONSE, BaseCommand.PING, BaseCommand.PONG), "concerns the session"
    ),
    **dict.fromkeys((BaseCommand.SEND, BaseCommand.CLOSE_PRODUCER), "concerns a producer of the same connection"),
    **dict.fromkeys(
        (
            BaseCommand.FLOW,
            BaseCommand.ACK,
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            BaseCommand.UNSUBSCRIBE,
            BaseCommand.CLOSE_CONSUMER,
            BaseCommand.SEEK,
            BaseCommand.GET_LAST_MESSAGE_ID,
            BaseCommand.CONSUMER_STATS,
        ),
        "concerns a consumer of the same connection",
    ),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: "concerns a topic watch of the same connection",
    **dict.fromkeys((BaseCommand.GET_SCHEMA, BaseCommand.GET_OR_CREATE_SCHEMA), "not authorized by Pulsar either"),
    **dict.fromkeys(
        (
            BaseCommand.TC_CLIENT_CONNECT_REQUEST,
            BaseCommand.NEW_TXN,
            BaseCommand.ADD_PARTITION_TO_TXN,
            BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
            BaseCommand.END_TXN,
            BaseCommand.END_TXN_ON_PARTITION,
            BaseCommand.END_TXN_ON_SUBSCRIPTION,
        ),
        "always rejected, as transactions are not supported",
    ),
}
"""The commands without an authorization check, and the reason."""
