"""Function locks: permissions of an instance, which has its owner's role, on the locks topic.

A lock prevents two workers from running the same instance. It is a subscription on a topic of the workers, on which the
function's owner has no permissions. Roles that may deploy in a namespace may therefore hold the locks of its functions,
which they could delete anyway, but no others: a lock name begins with tenant and namespace. The subscription must be
Exclusive and non-durable, so that it stores nothing and ends with its connection.
"""

from __future__ import annotations

from typing import Any

from ...wire.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from .operations import NamespaceOperation
from .rules import Resource, Rule, Who

DEPLOYS = tuple(
    Rule(Who.COMPONENT, operation)
    for operation in (NamespaceOperation.FUNCTIONS, NamespaceOperation.SOURCES, NamespaceOperation.SINKS)
)
"""At least one of these rules must allow the lock."""
_LOOKS = (BaseCommand.LOOKUP, BaseCommand.PARTITIONED_METADATA)


def is_look(kind: int) -> bool:
    """Return whether a command only looks up the topic, which every role may do."""
    return kind in _LOOKS


def namespace_of_lock(kind: int, command: Any) -> Resource | None:
    """Return the namespace of the function whose lock a command acquires, or None for any other command."""
    if kind != BaseCommand.SUBSCRIBE or command.durable or command.subType != CommandSubscribe.Exclusive:
        return None
    tenant, slash, rest = command.subscription.partition("/")
    namespace, second, name = rest.partition("/")
    return Resource.of_namespace(f"{tenant}/{namespace}") if slash and second and name else None
