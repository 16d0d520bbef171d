"""Who may send which command of the binary protocol: one row for each command of a client, and Pulsar's refusals.

What is decided when a producer or consumer is created is not decided again: SEND, FLOW, ACK and the other commands of
one name its id, which is known on its own connection only. Pulsar asks nobody who may read or add a schema.

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
    """Who may send one command.

    Attributes:
        rule: about the topic or namespace that the command names.
        message: of the refusal.
        missing_tenant: of the refusal where the tenant does not exist; empty where it is the same.
        tells_missing: whether that is told as TopicNotFound.
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
"""The commands that are decided."""
INITIAL_SUBSCRIPTION = Rule(Who.TOPIC, TopicOperation.SUBSCRIBE)
"""Needed besides by a PRODUCER that names an initial subscription."""

NOT_DECIDED: Mapping[int, str] = {
    **dict.fromkeys(
        (BaseCommand.CONNECT, BaseCommand.AUTH_RESPONSE, BaseCommand.PING, BaseCommand.PONG), "of the session itself"
    ),
    **dict.fromkeys((BaseCommand.SEND, BaseCommand.CLOSE_PRODUCER), "of a producer of the same connection"),
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
        "of a consumer of the same connection",
    ),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: "of a watch of the same connection",
    **dict.fromkeys((BaseCommand.GET_SCHEMA, BaseCommand.GET_OR_CREATE_SCHEMA), "not decided by Pulsar either"),
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
        "refused to everybody: there are no transactions",
    ),
}
"""The other commands, and why nothing is decided."""
