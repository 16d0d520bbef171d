"""Locks of functions: what an instance, which shows the role of its owner, may do to the topic that keeps them.

No two workers run the same instance: each holds a lock, a subscription of its own on a topic of the workers, which the
owner of a function has no right to. So whoever may deploy in a namespace may hold the locks of its functions, which he
could delete as well, and those of no other: the name of a lock begins with tenant and namespace. Such a subscription is
Exclusive and not durable, so it keeps nothing and ends with its connection.
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
"""One of these must allow it."""
_LOOKS = (BaseCommand.LOOKUP, BaseCommand.PARTITIONED_METADATA)


def is_look(kind: int) -> bool:
    """Return whether a command only finds out where the topic is, which every role may."""
    return kind in _LOOKS


def namespace_of_lock(kind: int, command: Any) -> Resource | None:
    """Return the namespace of the function whose lock a command takes, None if it does anything else."""
    if kind != BaseCommand.SUBSCRIBE or command.durable or command.subType != CommandSubscribe.Exclusive:
        return None
    tenant, slash, rest = command.subscription.partition("/")
    namespace, second, name = rest.partition("/")
    return Resource.of_namespace(f"{tenant}/{namespace}") if slash and second and name else None
