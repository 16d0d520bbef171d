"""Reading a function's dead letters, and replaying them to their original topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import MessageTooLarge, OperationTimeout
from ...wire.function_letters import EXCEPTION, FUNCTION, FUNCTION_VERSION, LETTERS_SUFFIX, TRACEBACK, TRIES
from ...wire.topic_name import parse_topic_name
from ..messages.connecting import connected
from ..messages.encryption import decrypting
from ..settings import Settings

if TYPE_CHECKING:
    from ...client.client import AsyncClient
    from ...client.consumers.consumer import Consumer
    from ...client.consumers.merged import MergedConsumer
    from ...client.consumers.received import Message

QUIET_S = 1.0
"""Time without further letters after which the backlog is considered read, in seconds."""
FIRST_S = 10.0
"""How long to wait for the first letter if the broker reports a backlog, in seconds; another consumer may hold it."""
REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID = "REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID"
_NOWHERE = (-1, -1)
_OURS = frozenset(
    (REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, EXCEPTION, TRACEBACK, TRIES, FUNCTION, FUNCTION_VERSION)
)


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters of a function on one topic.

    Attributes:
        cluster: address and credentials.
        topic: dead-letter topic, which several functions may share.
        function: ``tenant/namespace/name``.
        private_key: URI of the key of encrypted letters.
    """

    cluster: Settings
    topic: str
    function: str
    private_key: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[AsyncClient, AsyncIterator[Message], Any]]:
        """Provide a client, the letters that were not replayed, oldest first, and their consumer.

        Closing the consumer releases unacknowledged letters. Letters of other functions on the topic are acknowledged
        and skipped, as those functions have their own subscriptions.

        Raises:
            Failure: the broker cannot be reached.
            CryptoError: while iterating, if the key does not decrypt a letter.
        """
        from ...client.config import ConsumerConfig

        config = ConsumerConfig(
            type="Shared", initial_position="Earliest", ack_receipts=True, **decrypting(self.private_key)
        )
        async with connected(self.cluster) as client:
            consumer = await client.subscribe(self.topic, self.function + LETTERS_SUFFIX, config)
            try:
                yield client, self._own(consumer), consumer
            finally:
                await consumer.close()

    async def _own(self, consumer: Consumer | MergedConsumer) -> AsyncIterator[Message]:
        """Yield the letters present at the start, as a replayed message may fail again and become a new letter."""
        ends, has_none = await _ends(consumer)
        if has_none:
            return
        loop = asyncio.get_running_loop()
        quiet_s = loop.time() + FIRST_S
        while (left_s := quiet_s - loop.time()) > 0:
            try:
                message = await consumer.receive(left_s)
            except OperationTimeout:
                return
            if message.entry.position > ends.get(message.topic, _NOWHERE):
                continue
            if message.properties.get(FUNCTION, self.function) == self.function:
                yield message
            else:
                consumer.ack(message)
            quiet_s = loop.time() + QUIET_S


async def _ends(consumer: Consumer | MergedConsumer) -> tuple[dict[str, tuple[int, int]], bool]:
    """Return the last position of each topic of a consumer, and whether its subscription certainly has no backlog."""
    from ...client.consumers.merged import MergedConsumer

    if isinstance(consumer, MergedConsumer):
        found = await consumer.last_message_ids()
        has_none = all(last.entry_id < 0 for last in found.values())
    else:
        last, mark = await consumer.last_and_mark_delete()
        found = {consumer.topic: last}
        has_none = last.entry_id < 0 or (mark is not None and mark[:2] >= last[:2])
    return {topic: (last.ledger_id, last.entry_id) for topic, last in found.items()}, has_none


def record_of(letter: Message) -> dict[str, Any]:
    """Return a letter as JSON, with a binary payload in hexadecimal."""
    properties = letter.properties
    return {
        "id": str(letter.message_id),
        "topic": properties.get(REAL_TOPIC),
        "messageId": properties.get(ORIGIN_MESSAGE_ID),
        "tries": int(properties[TRIES]) if properties.get(TRIES, "").isdigit() else None,
        "functionVersion": properties.get(FUNCTION_VERSION),
        "exception": properties.get(EXCEPTION),
        "traceback": properties.get(TRACEBACK),
        "key": letter.key,
        "eventTime": letter.event_time_ms or None,
        "publishTime": letter.publish_time_ms,
        "properties": {name: value for name, value in properties.items() if name not in _OURS},
        **_content(letter),
    }


def _content(letter: Message) -> dict[str, Any]:
    if not letter.has_value:
        return {"content": None}
    try:
        return {"content": letter.data.decode()}
    except UnicodeDecodeError:
        return {"contentHex": letter.data.hex()}


async def read(letters: Letters, limit: int) -> list[dict[str, Any]]:
    """Return the oldest letters, at most ``limit``, without removing them."""
    found: list[dict[str, Any]] = []
    async with letters.opened() as (_, own, _):
        async for letter in own:
            found.append(record_of(letter))
            if len(found) >= limit:
                break
    return found


@dataclass(slots=True)
class Replayed:
    """Result of a replay.

    Attributes:
        sent: ids of letters that were replayed and acknowledged.
        without_topic: ids of letters without an original topic; they remain.
        missing: requested ids that were not found.
    """

    sent: list[str] = field(default_factory=list)
    without_topic: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


async def replay(letters: Letters, ids: Collection[str], to: str | None, *, is_dry_run: bool) -> Replayed:
    """Send letters to their original topics as the original messages.

    A letter is acknowledged once its message is durable; if the acknowledgement is lost, the letter remains.

    Args:
        letters: the letters.
        ids: ids to replay; empty for all current letters.
        to: topic for all letters; None for their original topics.
        is_dry_run: only return the result, without sending.
    """
    done, wanted = Replayed(), set(ids)
    async with letters.opened() as (client, own, consumer):
        way_back = _WayBack(client)
        async for letter in own:
            letter_id = str(letter.message_id)
            if ids and letter_id not in wanted:
                continue
            wanted.discard(letter_id)
            origin = letter.properties.get(REAL_TOPIC)
            target = to or (parse_topic_name(origin).base.text if origin else None)
            if target is None:
                done.without_topic.append(letter_id)
                continue
            if not is_dry_run:
                await way_back.send(target, letter)
                await consumer.ack(letter)
            done.sent.append(letter_id)
            if ids and not wanted:
                break
        await way_back.close()
    done.missing = sorted(wanted)
    return done


class _WayBack:
    """The producers for replayed letters."""

    def __init__(self, client: AsyncClient) -> None:
        """Create an empty set of producers; `send` opens them."""
        self._client = client
        self._producers: dict[tuple[str, bool], Any] = {}

    async def send(self, topic: str, letter: Message) -> None:
        """Send a letter as the original message, in chunks if it is too large for an entry."""
        try:
            await self._send(topic, letter, in_chunks=False)
        except MessageTooLarge:
            await self._send(topic, letter, in_chunks=True)

    async def _send(self, topic: str, letter: Message, *, in_chunks: bool) -> None:
        from ...client.config import ProducerConfig
        from ...client.outgoing_message import NO_VALUE, Base64Key

        producer = self._producers.get((topic, in_chunks))
        if producer is None:
            config = ProducerConfig(batching=False, chunking_enabled=True) if in_chunks else ProducerConfig()
            producer = self._producers[topic, in_chunks] = await self._client.create_producer(topic, config)
        key = letter.key
        await producer.send(
            letter.data if letter.has_value else NO_VALUE,
            key=Base64Key(key) if key is not None and letter.key_is_base64 else key,
            ordering_key=letter.ordering_key,
            event_time_ms=letter.event_time_ms,
            properties={name: value for name, value in letter.properties.items() if name not in _OURS},
        )

    async def close(self) -> None:
        """Close the producers."""
        for producer in self._producers.values():
            await producer.close()
