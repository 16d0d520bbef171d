"""Crashes at random operations of the disk under producers that send again whatever has no receipt.

The broker's own connections, topics and producers run on the simulated disk, without sockets and threads. Each client
does what clients do: after a broken connection it creates its producer again and sends everything unconfirmed once
more. However often the machine stops, unloads and fails, each entry must be in the topic exactly once, in order.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.service import BrokerService
from magnetar.broker.session.connection import Connection
from magnetar.broker.storage import DiskFailure, Position, Storage
from magnetar.metadata.store.store import Record
from magnetar.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from magnetar.wire.frames import FrameDecoder, encode_frame
from magnetar.wire.payload import open_payload, seal
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandConnect, CommandProducer, CommandSend, MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from tests.crash.test_simulated_disk import crash, start
from tests.support.stepper import Stepper, load_now

NAME = parse_topic_name("persistent://public/default/t")
TOPIC = str(NAME)
CONFIG = BrokerConfig(deduplication=True, deduplication_snapshot_entries=5, deduplication_snapshot_age_s=0)
SEEDS = int(os.environ.get("MAGNETAR_CRASH_SEEDS", "60"))
ROUNDS = 5
ACTIONS = 120

Stored = list[tuple[Position, str, int]]


class Memory:
    """A metadata store that nothing happens to: it is not what crashes here."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    async def get(self, path: str) -> Record | None:
        return self.records.get(path)

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        held = self.records.get(path)
        self.records[path] = Record(value, 0 if held is None else held.version + 1)
        return self.records[path].version

    async def delete(self, path: str, expected_version: int | None = None) -> bool:
        return self.records.pop(path, None) is not None

    async def children(self, path: str) -> list[str]:
        below = path.rstrip("/") + "/"
        return sorted({one[len(below) :].split("/")[0] for one in self.records if one.startswith(below)})

    def watch(self, prefix: str, callback: object) -> Any:
        return None

    async def close(self) -> None:
        """Nothing to give back."""


class Transport(asyncio.Transport):
    """The broker's side of a connection; what it writes is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing ever waits to be written."""

    def pause_reading(self) -> None:
        """The test looks at `Connection.is_reading` itself."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def close(self) -> None:
        """The client closes, see `Client.disconnect`."""

    def abort(self) -> None:
        """See `close`."""


class Client:
    """One producer name, from whichever connection."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.next_id = rng.randint(0, 3)
        self.sent: list[int] = []
        self.unconfirmed: deque[tuple[int, int]] = deque()
        self.confirmed: list[int] = []
        self.highest = -1
        self.repeated = 0
        self.connection: Connection | None = None
        self.transport = Transport()
        self.decoder = FrameDecoder()
        self.is_ready = False

    def connect(self, broker: BrokerService) -> None:
        self.transport, self.decoder, self.is_ready = Transport(), FrameDecoder(), False
        self.connection = Connection(broker)
        self.connection.connection_made(self.transport)
        connect = CommandConnect(client_version="simulated", protocol_version=21)
        create = CommandProducer(topic=TOPIC, producer_id=1, request_id=1, producer_name=self.name)
        self.feed(encode_frame(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))
        self.feed(encode_frame(BaseCommand(type=BaseCommand.PRODUCER, producer=create)))

    def feed(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.data_received(data)

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.connection_lost(None)
        self.connection = None
        self.is_ready = False

    def send_new(self) -> None:
        """Send an entry of one id or several, with a gap before it now and then."""
        first = self.next_id + self.rng.choice((0, 0, 0, 5))
        last = first + self.rng.choice((0, 0, 0, 3))
        self.next_id = last + 1
        self.sent.append(first)
        self.unconfirmed.append((first, last))
        if self.is_ready:
            self.send(first, last)

    def send(self, first: int, last: int) -> None:
        metadata = MessageMetadata(producer_name=self.name, sequence_id=first, publish_time=1)
        send = CommandSend(producer_id=1, sequence_id=first)
        if last > first:
            metadata.highest_sequence_id = send.highest_sequence_id = last
        payload = seal(metadata, bytes(self.rng.choice((0, 20, 3000))))
        self.feed(encode_frame(BaseCommand(type=BaseCommand.SEND, send=send), payload))

    def take(self) -> None:
        """Act on what the broker wrote."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        for frame in self.decoder.feed(data):
            self.handle(frame.command)
            if self.connection is None:
                return

    def handle(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.PRODUCER_SUCCESS:
            last = command.producer_success.last_sequence_id
            assert self.highest <= last, "what had its receipt is not known any more"
            assert last < self.next_id
            self.is_ready = True
            for first, last in self.unconfirmed:
                self.send(first, last)
        elif command.type == BaseCommand.SEND_RECEIPT:
            receipt = command.send_receipt
            first, last = self.unconfirmed.popleft()
            assert receipt.sequence_id == first, "receipts come in the order of sending"
            self.repeated += receipt.message_id.ledgerId == (1 << 64) - 1
            self.confirmed.append(first)
            self.highest = last
        elif command.type in (BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER, BaseCommand.ERROR):
            self.disconnect()


class History:
    """One disk and its clients through a few lives of the broker."""

    def __init__(self, seed: int, has_errors: bool) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.clients = [Client(name, self.rng) for name in ("a", "b", "c")]
        self.found: dict[Position, tuple[str, int]] = {}
        self.has_errors = has_errors
        self.namespaces = Namespaces(Memory(), CONFIG)
        self.storage: Storage
        self.stepper: Stepper
        self.broker: BrokerService

    async def run(self) -> None:
        await self.namespaces.start()
        for number in range(ROUNDS):
            is_last = number == ROUNDS - 1
            self.disk.crash_at = None if is_last else self.disk.operations + self.rng.randint(1, 250)
            try:
                self.begin()
                if self.has_errors and not is_last:
                    fails_at = self.disk.operations + self.rng.randint(1, 120)
                    self.disk.failures[fails_at] = self.rng.choice((errno.EIO, errno.ENOSPC))
                await self.live(is_last)
            except SimulatedCrash:
                await self.end()
                crash(self.disk, self.rng)
        self.read()
        self.storage.abandon()
        self.check()

    def begin(self) -> None:
        self.storage, self.stepper = start(self.disk, self.rng)
        self.broker = BrokerService(CONFIG, self.storage, self.namespaces)
        self.broker.is_started = True  # it serves, but listens to nobody
        self.read()

    async def end(self) -> None:
        for client in self.clients:
            client.disconnect()
        await self.turn()

    async def turn(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        for client in self.clients:
            client.take()

    async def live(self, is_last: bool) -> None:
        acts = [(self.send, 30), (self.step, 30), (self.hang_up, 2), (self.unload, 1), (self.tick, 3), (self.trim, 3),
                (self.storage._checkpoint.begin, 2)]  # fmt: skip
        functions, weights = zip(*acts, strict=True)
        for _ in range(ACTIONS if is_last else 100 * ACTIONS):
            await self.connect()
            self.rng.choices(functions, weights)[0]()
            await self.turn()
            if self.storage.failure is not None:
                self.heal()
        for _ in range(1000):
            if not any(client.unconfirmed for client in self.clients):
                break
            await self.connect()
            self.stepper.run()
            await self.turn()
        await self.end()
        self.stepper.run()

    async def connect(self) -> None:
        for client in self.clients:
            if client.connection is None:
                client.connect(self.broker)
        await self.turn()

    def send(self) -> None:
        client = self.rng.choice(self.clients)
        for _ in range(self.rng.randint(1, 4)):
            client.send_new()

    def step(self) -> None:
        for _ in range(self.rng.randint(1, 12)):
            self.stepper.step()

    def hang_up(self) -> None:
        self.rng.choice(self.clients).disconnect()

    def unload(self) -> None:
        topic = self.broker.topics.pop(TOPIC, None)
        if topic is not None:
            topic.close()
            topic.log.close_ledger()

    def tick(self) -> None:
        for topic in self.broker.topics.values():
            topic.deduplication.tick()

    def trim(self) -> None:
        self.read()
        if self.storage.has_log(TOPIC):
            self.storage.open_log(TOPIC).trim_with(0, 0, lambda _: None)

    def heal(self) -> None:
        crash_at, self.disk.crash_at = self.disk.crash_at, None
        self.disk.failures.clear()
        self.stepper.run()
        self.storage.maintain()
        self.stepper.run()
        assert self.storage.failure is None
        self.disk.crash_at = None if crash_at is None else max(crash_at, self.disk.operations + 1)

    def read(self) -> None:
        """Note what the topic holds now; a position says the same for ever."""
        if not self.storage.has_log(TOPIC):
            return
        log = self.storage.open_log(TOPIC)
        position = Position(-1, -1)
        while True:
            try:
                entries = load_now(log, position, 100, 1 << 20)
            except DiskFailure:  # an error that was meant for a change; the next time it works
                entries = load_now(log, position, 100, 1 << 20)
            if not entries:
                return
            for entry in entries:
                metadata, _ = open_payload(entry.payload)
                said = (metadata.producer_name, metadata.sequence_id)
                assert self.found.setdefault(entry.position, said) == said
            position = log.next_position(entries[-1].position)

    def check(self) -> None:
        for client in self.clients:
            stored = [first for _, (name, first) in sorted(self.found.items()) if name == client.name]
            assert stored == client.sent, f"producer {client.name}: stored {len(stored)}, sent {len(client.sent)}"
            assert client.confirmed == client.sent


def histories(seeds: range, *, has_errors: bool = False) -> None:
    repeated = 0
    for seed in seeds:
        history = History(seed, has_errors)
        try:
            asyncio.run(history.run())
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise
        repeated += sum(client.repeated for client in history.clients)
    assert repeated, "nothing was sent twice: nothing was tested"


@pytest.mark.parametrize("has_errors", [False, True], ids=["crashes", "crashes and errors"])
def test_each_entry_is_stored_once_through_a_few_crashes(has_errors: bool) -> None:
    histories(range(5), has_errors=has_errors)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("has_errors", [False, True], ids=["crashes", "crashes and errors"])
def test_each_entry_is_stored_once_through_many_crashes(has_errors: bool) -> None:
    histories(range(100, 100 + SEEDS), has_errors=has_errors)
