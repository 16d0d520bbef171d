"""Authorization of commands, checked before their handlers run, and auditing of topics that clients create.

Producers and consumers are authorized only when they are created; their later commands are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import AuthorizationError, TopicNotFound
from ...security.audit import DONE, REFUSED, record
from ...security.authorization.command_rules import COMMAND_RULES, INITIAL_SUBSCRIPTION, CommandRule
from ...security.authorization.decisions import Refusal, Why
from ...security.authorization.denials import prefix_reason
from ...security.authorization.function_locks import DEPLOYS, is_look, namespace_of_lock
from ...security.authorization.rules import Resource, Who
from ...wire.pulsar_api_pb2 import BaseCommand
from ...wire.topic_name import TopicName, parse_topic_name

if TYPE_CHECKING:
    from ..policies.authorization import Authorization
    from .connection import Connection

Run = Callable[["Connection", Any], None]


def guarded(kind: int, run: Run) -> Run:
    """Return a command's handler wrapped in its authorization check, or the handler itself if it needs none."""
    wanted = COMMAND_RULES.get(kind)
    if wanted is None:
        return run
    rule = wanted

    def decide(connection: Connection, command: Any) -> None:
        authorization = connection.broker.authorization
        if authorization is not None:
            _check(connection, authorization, kind, rule, command)
        run(connection, command)

    return decide


def _check(connection: Connection, authorization: Authorization, kind: int, wanted: CommandRule, command: Any) -> None:
    """Raise the error for the response if a command is not authorized.

    Raises:
        AuthorizationError: the command is not allowed.
        TopicNotFound: the tenant does not exist, for commands for which Pulsar returns this error.
        InvalidTopicName: the topic name is invalid.
    """
    resource = _resource_of(wanted, command)
    refusal = authorization.judge(connection.roles, wanted.rule, resource)
    is_of_locks = refusal is not None and str(resource.topic) == authorization.settings.locks_topic
    if is_of_locks and _may_lock(connection, authorization, kind, command):
        return
    initial = command.initial_subscription_name if kind == BaseCommand.PRODUCER else ""
    if refusal is None and initial:
        resource = Resource.of_topic(parse_topic_name(command.topic), initial)
        refusal = authorization.judge(connection.roles, INITIAL_SUBSCRIPTION, resource)
    if refusal is not None:
        _audit(connection, BaseCommand.Type.Name(kind), str(resource.topic or resource.namespace), REFUSED)
        raise _error(wanted, resource, refusal)


def may_still(connection: Connection, kind: int, namespace: str) -> bool:
    """Return whether a previously allowed command on a namespace is still allowed. Audits a denial."""
    authorization = connection.broker.authorization
    if authorization is None:
        return True
    if authorization.judge(connection.roles, COMMAND_RULES[kind].rule, Resource.of_namespace(namespace)) is None:
        return True
    _audit(connection, BaseCommand.Type.Name(kind), namespace, REFUSED)
    return False


def _may_lock(connection: Connection, authorization: Authorization, kind: int, command: Any) -> bool:
    """Return whether a command on the locks topic is allowed without a permission on the topic.

    Every valid role may look up the topic; roles that may deploy in a namespace may hold its locks.
    """
    roles = connection.roles
    if roles is None or roles.role is None or not authorization.settings.is_valid(roles):
        return False
    if is_look(kind):
        return True
    namespace = namespace_of_lock(kind, command)
    return namespace is not None and any(authorization.judge(roles, rule, namespace) is None for rule in DEPLOYS)


def _resource_of(wanted: CommandRule, command: Any) -> Resource:
    if wanted.rule.who is Who.NAMESPACE:
        return Resource.of_namespace(command.namespace)
    subscription = command.subscription if command.DESCRIPTOR.name == "CommandSubscribe" else None
    return Resource.of_topic(parse_topic_name(command.topic), subscription)


def _error(wanted: CommandRule, resource: Resource, refusal: Refusal) -> Exception:
    if refusal.why is Why.WRONG_PREFIX:
        reason = prefix_reason(refusal, resource)
        return AuthorizationError(f"org.apache.pulsar.broker.PulsarServerException: {reason}")
    if refusal.why is Why.NO_TENANT and wanted.missing_tenant:
        text = wanted.missing_tenant.format(namespace=resource.namespace)
        return TopicNotFound(text) if wanted.tells_missing else AuthorizationError(text)
    return AuthorizationError(wanted.message)


def audit_created(connection: Connection, name: TopicName) -> None:
    """Audit the automatic creation of a topic by a client."""
    _audit(connection, "CREATE_TOPIC", str(name), DONE)


def _audit(connection: Connection, operation: str, resource: str, outcome: str) -> None:
    if connection.roles is not None:
        record(connection.roles, connection.address.lstrip("/"), operation, resource, outcome)
