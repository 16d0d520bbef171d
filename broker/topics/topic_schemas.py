"""Schema checks for the producers and consumers of a topic.

Design: a client with a schema waits for the registry, so checks are repeated in the same loop iteration in which a
version is added. No version is added if the topic was deleted meanwhile, or if it has received data without a schema.

Source: Pulsar 4.0, AbstractTopic.addSchema and PersistentTopic.addSchemaIfIdleOrCheckCompatible, including errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import IncompatibleSchema
from ..schemas.compatibility import Incompatible, check_consumer
from ..schemas.model import InvalidDefinition, Schema, SchemaType, version_bytes
from ..schemas.validity import check_definition

if TYPE_CHECKING:
    from .topic import Topic

_NO_UPDATE = "Schema not found and schema auto updating is disabled."
_NO_SCHEMA = (
    "Producers cannot connect or send message without a schema to topics with a schema when SchemaValidationEnforced"
    " is enabled"
)


async def producer_version(topic: Topic, schema: Schema | None) -> bytes:
    """Return the schema version of a producer in wire format, adding its schema if needed; empty without a schema.

    Raises:
        IncompatibleSchema: the schema is incompatible with the topic, or a schema is required.

    Cancellation: the schema may still be added.
    """
    if schema is not None:
        return version_bytes(await added(topic, schema))
    broker = topic.broker
    if broker.namespaces.schema_policy(topic.name).is_enforced and (await broker.schemas.history(topic.name)).versions:
        raise IncompatibleSchema(_NO_SCHEMA)
    return b""


async def admit_consumer(topic: Topic, schema: Schema | None) -> None:
    """Raise unless a consumer can read the topic's data; its schema is added to an unused topic without a schema.

    Raises:
        IncompatibleSchema: the schema is incompatible with the topic.

    Cancellation: the schema may still be added.
    """
    if schema is None or schema.type is SchemaType.AUTO_CONSUME:
        return
    broker = topic.broker
    versions = (await broker.schemas.history(topic.name)).versions
    if not versions and not _is_in_use(topic):
        await added(topic, schema, lambda: _check_idle(topic, schema))
        return
    policy = broker.namespaces.schema_policy(topic.name)
    with _translated():
        if not versions:
            raise _active(schema)
        await broker.schemas.apart(topic.name, schema, (), lambda: check_definition(schema))
        await broker.schemas.apart(
            topic.name, schema, versions, lambda: check_consumer(schema, versions, policy.strategy)
        )


async def added(topic: Topic, schema: Schema, may_write: Callable[[], None] = lambda: None) -> int:
    """Return the version of a schema, adding it to the topic if it is new.

    Args:
        topic: topic of the schema.
        schema: schema to find or add.
        may_write: called right before the schema is added; may raise an exception to prevent that.

    Raises:
        IncompatibleSchema: the schema is incompatible with the topic, or must not be added.
        ServiceNotReady: the topic was closed meanwhile.

    Cancellation: the schema may still be added.
    """

    def check() -> None:
        topic.check_loaded()
        if not topic.broker.namespaces.schema_policy(topic.name).allows_updates:
            raise Incompatible(_NO_UPDATE)
        may_write()

    policy = topic.broker.namespaces.schema_policy(topic.name)
    with _translated():
        return await topic.broker.schemas.put(topic.name, schema, policy.strategy, may_write=check)


def _is_in_use(topic: Topic) -> bool:
    """Return whether the topic has producers, stored entries, or consumers other than AUTO_CONSUME."""
    return bool(topic.producers or topic.producers.waiting or topic.log.entry_count) or any(
        not consumer.takes_any_schema
        for subscription in topic.subscriptions.values()
        for consumer in subscription.consumers
    )


def _check_idle(topic: Topic, schema: Schema) -> None:
    if _is_in_use(topic):
        raise _active(schema)


def _active(schema: Schema) -> Incompatible:
    return Incompatible(
        f"Failed to add schema to an active topic with empty(BYTES) schema: new schema type {schema.type.name}"
    )


@contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of the schema rules to the protocol error."""
    try:
        yield
    except (InvalidDefinition, Incompatible) as error:
        raise IncompatibleSchema(str(error)) from error
