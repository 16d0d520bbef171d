"""Decoding for consumers with a schema. Fetches the writer's schema, if required, before decoding a value.

Design: a message whose writer's schema is not cached is held until the broker responds, and later messages remain
queued. This preserves the order of messages, and `value` never waits.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from ...errors import MagnetarError, SchemaSerializationError, TopicNotFound
from ...tasks import TaskSet
from ..consumers.received import Message, TypedMessage
from ..schemas.schema import Schema, SchemaInfo
from .writers import Key, WriterSchemas, key_of

T = TypeVar("T")


class Decoding(Generic[T]):
    """Converts messages to typed messages."""

    def __init__(self, schema: Schema[T], writers: WriterSchemas, topic: str):
        self.schema = schema
        self._writers = writers
        self._held: TypedMessage[T] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._tasks = TaskSet(f"schemas of {topic}")

    @property
    def is_waiting(self) -> bool:
        """Whether a message is held until the broker responds."""
        return self._held is not None

    def next(self, poll: Callable[[], Message | None]) -> TypedMessage[T] | None:
        """Return the next message that can be decoded; ``poll`` returns undecoded messages."""
        held = self._held
        if held is not None:
            if self._asking is not None and not self._asking.done():
                return None
            self._held = self._asking = None
            return held
        message = poll()
        if message is None:
            return None
        schema = self.schema
        if not schema.needs_writer:
            return TypedMessage(message.entry, message.index, self._decode)
        version = message.schema_version
        if not version and not schema.needs_newest:
            return TypedMessage(message.entry, message.index, self._decode)
        key = key_of(message.topic, version)
        known = self._writers.get(key)
        if known is not None:
            return TypedMessage(message.entry, message.index, self._decode_with(known))
        self._asking = self._tasks.start(self._ask(message, key), f"schema of {message.topic}")
        self._held = TypedMessage(message.entry, message.index, self._decode)
        return None

    async def answered(self) -> None:
        """Wait until the held message can be decoded.

        Cancellation: safe.
        """
        if self._asking is not None:
            await asyncio.wait([self._asking])

    async def _ask(self, message: Message, key: Key) -> None:
        found = await self._writers.ask(key)
        if self._held is not None and self._held.entry is message.entry:
            self._held = TypedMessage(message.entry, message.index, self._decode_with(found))

    def _decode_with(self, writer: SchemaInfo | MagnetarError) -> Callable[[Message], T]:
        def decode(message: Message) -> T:
            return self._decode(message, writer)

        return decode

    def _decode(self, message: Message, writer: SchemaInfo | MagnetarError | None = None) -> T:
        if isinstance(writer, MagnetarError):
            if message.schema_version or not isinstance(writer, TopicNotFound):
                raise writer.with_traceback(None)
            writer = None  # the topic has no schema
        data = message.data if message.has_value else None
        return cast(T, self.schema.decode_message(data, _key_bytes(message), writer))

    def drop(self) -> None:
        """Drop the held message, which will be redelivered or was discarded."""
        self._held = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def close(self) -> None:
        """Cancel pending requests."""
        self.drop()
        await self._tasks.close()


def _key_bytes(message: Message) -> bytes | None:
    """Return a message's key as bytes, or None."""
    key = message.key
    if key is None:
        return None
    if not message.key_is_base64:
        return key.encode()
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise SchemaSerializationError(f"key of message {message.message_id} is not valid base64: {error}") from error
