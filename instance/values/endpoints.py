"""Open inputs and outputs with their schemas, which the broker checks, and fetch writers' schemas.

An instance whose config names schemas uses these endpoints instead of the client itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...client.client import AsyncClient
from ...client.config import ConsumerConfig, ProducerConfig
from ...client.schemas.schema import TYPE_NAMES, Schema, SchemaInfo
from ...client.typed.writers import key_of
from ...errors import FunctionLoadError, InvalidTopicName, MagnetarError, TopicNotFound
from ...wire.functions_pb2 import FunctionDetails
from ...wire.topic_name import parse_topic_name
from ..loop_calls import LoopCalls
from .writers import Found

if TYPE_CHECKING:
    from .topic_schemas import TopicSchema


def has_schemas(details: FunctionDetails) -> bool:
    """Return whether a function's config names a schema."""
    return bool(details.sink.schemaType) or any(given.schemaType for given in details.source.inputSpecs.values())


class SchemaEndpoints:
    """A `ports.Endpoints` that opens a client's topics with a function's schemas."""

    def __init__(self, client: AsyncClient) -> None:
        """Create the endpoints on the client's event loop."""
        self._client = client
        self._calls = LoopCalls()
        self._inputs: dict[str, TopicSchema] = {}
        self._output_topic = ""
        self._output: TopicSchema | None = None
        self._registered = b""
        self._producer: Any = (
            None  # last producer of the output, which has the schema version even if the topic is recreated
        )

    def use(self, inputs: dict[str, TopicSchema], output_topic: str, output: TopicSchema | None) -> None:
        """Set the schemas of topics, before a topic is opened."""
        self._inputs = {_base(topic): schema for topic, schema in inputs.items()}
        self._output_topic, self._output = _base(output_topic), output

    # -- ports.Endpoints ------------------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions, or its own full name. Cancellation: safe."""
        return await self._client.partitions(topic)

    async def subscribe(self, topic: Any, subscription: str, config: ConsumerConfig) -> Any:
        """Open an input, whose schema the broker checks. Cancellation: safe."""
        name = topic if isinstance(topic, str) else getattr(topic, "pattern", "")
        found = self._inputs.get(_base(name))
        if found is None:
            return await self._client.subscribe(topic, subscription, config)
        if found.topics_kind is not None and isinstance(topic, str):
            newest = await self._newest(topic)
            if newest is not None:
                _check_kind(topic, newest, found.topics_kind)
        return (await self._client.subscribe(topic, subscription, config, schema=found.schema)).consumer

    async def create_producer(self, topic: str, config: ProducerConfig) -> Any:
        """Open an output, whose schema is registered. Cancellation: safe."""
        if self._output is None or _base(topic) != self._output_topic:
            return await self._client.create_producer(topic, config)
        schema = await self._bound(topic, self._output)
        self._producer = (await self._client.create_producer(topic, config, schema=schema)).producer
        return self._producer

    # -- beside ---------------------------------------------------------------------------------------------------

    async def register_output(self, topic: str) -> None:
        """Register the function's schema for the output topic, if any. Cancellation: safe.

        Raises:
            MagnetarError: the broker rejects the schema, for example because the topic has another one.
        """
        if self._output is None or _base(topic) != self._output_topic:
            return
        schema = await self._bound(topic, self._output)
        try:
            self._registered = await self._client.register_schema(topic, schema)
        except TopicNotFound:  # its first producer will create it
            await (await self._client.create_producer(topic, schema=schema)).close()
            self._registered = await self._client.register_schema(topic, schema)

    def output_version(self) -> bytes:
        """Return the broker's version of the output schema, or b"" (from any thread)."""
        return getattr(self._producer, "schema_version", b"") or self._registered

    async def _bound(self, topic: str, output: TopicSchema) -> Schema[Any]:
        from .topic_schemas import BoundSchema  # already imported when `output` was created

        schema = output.schema
        if isinstance(schema, BoundSchema):
            newest = await self._newest(topic)
            kind = TYPE_NAMES[schema.kind]
            if newest is None:
                raise FunctionLoadError(
                    f"outputSchemaType {kind} without a class requires a schema on topic {topic}: annotate"
                    " the return type with a dataclass, or upload a schema (schemas upload)"
                )
            _check_kind(topic, newest, schema.kind)
            schema.bind(newest)
        return schema

    async def _newest(self, topic: str) -> SchemaInfo | None:
        try:
            return await self._client.topic_schema(topic)
        except TopicNotFound:
            return None

    def writer(self, schema: Schema[Any], topic: str, version: bytes) -> Found:
        """Return the schema that messages were written with; called on the function's thread, may block.

        Raises:
            InstanceStopping: the instance is stopping.
        """
        if not version and not schema.needs_newest:
            return None
        writers, key = self._client.writer_schemas, key_of(topic, version)
        found = writers.get(key)
        if found is None:
            answer: SchemaInfo | MagnetarError = self._calls.wait(writers.ask(key))
            return None if isinstance(answer, TopicNotFound) and not version else answer
        return None if isinstance(found, TopicNotFound) and not version else found

    def stop(self) -> None:
        """End all waits (from any thread)."""
        self._calls.stop()


def _check_kind(topic: str, newest: SchemaInfo, kind: int) -> None:
    if newest.kind != kind:
        raise FunctionLoadError(
            f"topic {topic} has schema {newest.type_name}, but the config says {TYPE_NAMES[kind]}: set schemaType"
            f" {newest.type_name}"
        )


def _base(topic: str) -> str:
    """Return a topic's full name without its partition; invalid names, such as patterns, are returned unchanged."""
    try:
        return parse_topic_name(topic).base.text if topic else ""
    except InvalidTopicName:
        return topic
