"""An input and an output of an instance that are plain lists, and a home for a function defined by a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from magnetar.api.serde import IdentitySerDe, SerDe
from magnetar.client.config import ConsumerConfig, ProducerConfig
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.client.producers.outgoing import OutgoingEntry, encode_entry, seal_entry
from magnetar.instance.loading.loader import Loading
from magnetar.wire import ack_set
from magnetar.wire.batch import decode_batch
from magnetar.wire.message_id import MessageId
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

LEDGER = 1


def _done(result: Any = None) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


class ListInput:
    """Delivers the entries of a list; an `Input` and an `OrderedInput`.

    Attributes:
        topic: topic name.
        entries: payloads of each entry, whose position is its index.
        key_of: returns the key of a message, or None.
        acknowledged: acknowledged messages as (entry, index), in order of acknowledgement.
        mark_delete: entry up to which all entries are acknowledged.
        is_connected: whether it receives acknowledgements.
    """

    def __init__(
        self, topic: str, entries: Sequence[list[bytes]], key_of: Callable[[bytes], str] | None = None
    ) -> None:
        self.topic = topic
        self.key_of = key_of
        self.entries = list(entries)
        self.acknowledged: list[tuple[int, int]] = []
        self.mark_delete = -1
        self.is_connected = True
        self._due = list(range(len(self.entries)))
        self._arrived = asyncio.Event()

    def begin_again(self) -> ListInput:
        """Return the input as the next instance sees it, with its unacknowledged entries."""
        again = ListInput(self.topic, self.entries, self.key_of)
        again.acknowledged, again.mark_delete = self.acknowledged, self.mark_delete
        again._due = [number for number in again._due if not self.is_done(number)]
        return again

    def is_done(self, number: int) -> bool:
        messages = {(number, index) for index in range(len(self.entries[number]))}
        return number <= self.mark_delete or messages <= set(self.acknowledged)

    def poll_entry(self) -> ReceivedEntry | None:
        if not self._due:
            return None
        number = self._due.pop(0)
        headers = None
        if self.key_of is not None:
            headers = [SingleMessageMetadata(partition_key=self.key_of(message)) for message in self.entries[number]]
        payload = seal_entry(encode_entry(self.entries[number], headers), "list", number, 1)
        metadata, offset = open_payload(payload)
        count = len(self.entries[number])
        entry = ReceivedEntry(MessageId(LEDGER, number), self.topic, metadata, 0, count, (payload, offset, 2**20))
        wanted = [index for index in range(count) if (number, index) not in self.acknowledged]
        if len(wanted) < count:
            entry.ack_set = ack_set.from_wanted(wanted)
        return entry

    async def arrival(self) -> None:
        while not self._due:
            self._arrived.clear()
            await self._arrived.wait()

    async def receive_entry(self) -> ReceivedEntry:
        while (entry := self.poll_entry()) is None:
            await self.arrival()
        return entry

    def ack_entry(self, entry: ReceivedEntry) -> asyncio.Future[None]:
        return self.ack_entries([entry])

    def ack_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[None]:
        for entry in entries:
            self.ack_batch_indexes(entry, ())
        return _done()

    def ack_batch_indexes(self, entry: ReceivedEntry, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        number = entry.message_id.entry_id
        wanted = set(ack_set.wanted(tuple(still_wanted))) if still_wanted else set()
        messages = ((number, index) for index in range(entry.num_messages) if index not in wanted)
        self.acknowledged += [message for message in messages if message not in self.acknowledged]
        return _done()

    def ack(self, message: MessageId) -> asyncio.Future[None]:
        self.acknowledged.append((message.entry_id, message.batch_index))
        return _done()

    def ack_cumulative(self, message: MessageId) -> asyncio.Future[None]:
        self.mark_delete = max(self.mark_delete, message.entry_id)
        return _done()

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        self.ack_entries(entries)
        return _done(list(entries))

    def negative_ack(self, message: ReceivedEntry) -> None:
        asyncio.get_running_loop().call_later(0.01, self._deliver, message.message_id.entry_id)

    def _deliver(self, number: int) -> None:
        self._due.append(number)
        self._arrived.set()

    async def last_and_mark_delete(self) -> tuple[MessageId, MessageId | None]:
        done = MessageId(LEDGER, self.mark_delete) if self.mark_delete >= 0 else None
        return MessageId(LEDGER, len(self.entries) - 1), done

    async def flush_acks(self) -> None:
        pass

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        assert isinstance(target, MessageId)
        first = min(max(target.entry_id + (not inclusive), 0), len(self.entries))
        self._due = list(range(first, len(self.entries)))
        self.acknowledged = [message for message in self.acknowledged if message[0] < first]
        self._arrived.set()

    async def close(self) -> None:
        self.is_connected = False


class ListOutput:
    """Appends entries to a list; an `Output` and a `NumberedOutput`.

    Attributes:
        messages: sent messages.
        numbers: highest sequence id per producer name.
        holds_back: whether sent entries are not durable yet.
    """

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.numbers: dict[str, int] = {}
        self.holds_back = False
        self._name = ""
        self._waiting: list[tuple[asyncio.Future[Any], Callable[[], None]]] = []

    @property
    def last_sequence_id(self) -> int:
        return self.numbers.get(self._name, -1)

    def opened(self, name: str) -> ListOutput:
        self._name = name
        return self

    def send_entry(self, entry: OutgoingEntry) -> asyncio.Future[MessageId]:
        return self._store(seal_entry(entry, "list", 0, 1), lambda: None)

    def send_sealed(self, payload: bytes, sequence_id: int, num_messages: int) -> asyncio.Future[MessageId]:
        if sequence_id <= self.last_sequence_id:
            return _done()
        return self._store(payload, lambda: self.numbers.update({self._name: sequence_id}))

    def _store(self, payload: bytes, then: Callable[[], None]) -> asyncio.Future[MessageId]:
        metadata, offset = open_payload(payload)
        assert not metadata.compression
        payloads, _ = decode_batch(payload[offset:], metadata.num_messages_in_batch)

        def store() -> None:
            self.messages += payloads
            then()

        stored = asyncio.get_running_loop().create_future()
        self._waiting.append((stored, store))
        self.release(self.holds_back)
        return stored

    def release(self, holds_back: bool = False) -> None:
        """Make waiting entries durable, and later ones too, unless they are to be held back."""
        self.holds_back = holds_back
        while self._waiting and not holds_back:
            future, store = self._waiting.pop(0)
            store()
            future.set_result(MessageId(0, 0))

    async def close(self) -> None:
        for future, _ in self._waiting:
            future.cancel()
        self._waiting = []


class Lists:
    """One input and one output, as `Endpoints`."""

    def __init__(self, source: ListInput, sink: ListOutput) -> None:
        self.source = source
        self.sink = sink

    async def partitions(self, topic: str) -> list[str]:
        return [topic]

    async def subscribe(self, topic: str, subscription: str, config: ConsumerConfig) -> ListInput:
        assert topic == self.source.topic
        if config.on_active_change is not None:
            config.on_active_change(True)
        return self.source

    async def create_producer(self, topic: str, config: ProducerConfig) -> ListOutput:
        return self.sink.opened(config.name or "")


class FunctionHome:
    """Home of a function that a test defines."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.loading = Loading()
        self._function = function

    def enter_thread(self) -> None:
        pass

    def leave_thread(self) -> None:
        pass

    def import_module(self, name: str) -> ModuleType:
        module = ModuleType(name)
        vars(module)["process"] = self._function
        return module

    def pickle_serde(self) -> SerDe:
        return IdentitySerDe()
