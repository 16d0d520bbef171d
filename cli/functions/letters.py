"""Reading the dead letters of a function, and sending them back to the topics that they came from."""

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
"""No letter for so long after another: there are no more."""
FIRST_S = 10.0
"""How long the first letter may take where the broker says that there is one; another consumer may hold it."""
REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID = "REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID"
_NOWHERE = (-1, -1)
_OURS = frozenset(
    (REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, EXCEPTION, TRACEBACK, TRIES, FUNCTION, FUNCTION_VERSION)
)


@dataclass(frozen=True, slots=True)
class Letters:
    """Where the letters of a function are.

    Attributes:
        cluster: where the broker is, and who asks.
        topic: its dead-letter topic, which several functions may share.
        function: ``tenant/namespace/name``.
        private_key: URI of the key of encrypted letters.
    """

    cluster: Settings
    topic: str
    function: str
    private_key: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[AsyncClient, AsyncIterator[Message], Any]]:
        """Give a client, the letters that nobody has replayed, the oldest first, and their consumer.

        What is not acknowledged is given back when it is closed. Those of other functions on the topic are left out;
        they are on subscriptions of their own, and acknowledged on this one.

        Raises:
            Failure: the broker cannot be reached.
            CryptoError: from the letters, at one that the key does not open.
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
        """Yield the letters that are there now: what is replayed may fail again at once, and be a new letter."""
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
    """Return the last position of each topic of a consumer, and whether its subscription surely is at all of them."""
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
    """Return a letter as JSON; a payload that is no text as hexadecimal digits."""
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
    """Return the oldest letters, at most ``limit``; they stay."""
    found: list[dict[str, Any]] = []
    async with letters.opened() as (_, own, _):
        async for letter in own:
            found.append(record_of(letter))
            if len(found) >= limit:
                break
    return found


@dataclass(slots=True)
class Replayed:
    """What became of letters.

    Attributes:
        sent: ids of those that were sent back, and acknowledged.
        without_topic: ids of those that do not say where they came from; they stay.
        missing: ids that were asked for and are not there.
    """

    sent: list[str] = field(default_factory=list)
    without_topic: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


async def replay(letters: Letters, ids: Collection[str], to: str | None, *, is_dry_run: bool) -> Replayed:
    """Send letters to the topics that they came from, as the messages that they were.

    A letter is acknowledged when its message is durable; one whose acknowledgement is lost comes again.

    Args:
        letters: where they are.
        ids: which; empty for all that are there now.
        to: another topic for all of them.
        is_dry_run: send nothing.
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
    """The producers that letters are sent back by."""

    def __init__(self, client: AsyncClient) -> None:
        """Prepare; nothing is opened yet."""
        self._client = client
        self._producers: dict[tuple[str, bool], Any] = {}

    async def send(self, topic: str, letter: Message) -> None:
        """Send a letter as the message that it was; in chunks if it is too large for an entry."""
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
        """Close them."""
        for producer in self._producers.values():
            await producer.close()
