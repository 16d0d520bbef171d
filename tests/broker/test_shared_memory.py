"""The memory that all connections share: who may read a large frame, and who gives way when peers take nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from magnetar.broker.dispatch import delivery_memory
from magnetar.broker.dispatch.delivery_memory import LEAST_SHARE_BYTES, DeliveryMemory
from magnetar.broker.session import frame_memory
from magnetar.broker.session.frame_memory import LARGE_BYTES, SLOWEST_BYTES_S, FrameMemory
from magnetar.wire.frames import encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageMetadata, Schema, ServerError

from tests.support.eventually import eventually

from .brokers import MIB, running_broker
from .raw import Raw

TOPIC = "persistent://public/wire/memory"


@dataclass(eq=False)
class Owner:
    """A connection that reads a frame."""

    kept_bytes: int = 1000
    is_reading: bool = True
    granted: int = 0
    refusals: list[str] = field(default_factory=list)
    memory: FrameMemory | None = None

    def memory_granted(self) -> None:
        self.granted += 1

    def refuse_memory(self, reason: str) -> None:
        self.refusals.append(reason)
        if self.memory is not None:
            self.memory.release(self)


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_frames_get_room_in_the_order_in_which_they_came() -> None:
    memory = FrameMemory(lambda: 10_000, Clock())
    owners = [Owner() for _ in range(5)]
    assert [memory.reserve(owner, 4000) for owner in owners] == [True, True, False, False, False]
    memory.release(owners[0])
    assert [owner.granted for owner in owners] == [0, 0, 1, 0, 0]
    # The next frame of a connection stands behind those that wait.
    assert not memory.reserve(owners[1], 2500)
    assert [owner.granted for owner in owners] == [0, 0, 1, 1, 0]
    memory.release(owners[4])
    memory.release(owners[2])
    assert owners[1].granted == 1
    for owner in owners:
        memory.release(owner)
    assert memory.used_bytes == 0


async def test_a_frame_above_the_limit_is_read_alone() -> None:
    memory = FrameMemory(lambda: 1000, Clock())
    large, small = Owner(), Owner()
    assert memory.reserve(large, 5000)
    assert not memory.reserve(small, 10)
    memory.release(large)
    assert small.granted == 1
    assert memory.take(990)
    assert not memory.take(1)
    memory.give_back(990)


@pytest.mark.parametrize("kind", ["stalled", "slow"])
async def test_a_frame_that_does_not_come_on_ends_while_others_wait(kind: str) -> None:
    clock = Clock()
    size = 4 * SLOWEST_BYTES_S
    memory = FrameMemory(lambda: size, clock)
    stuck, held_back = Owner(memory=memory), Owner(memory=memory)
    assert memory.reserve(stuck, size)
    clock.now_s += 1000
    memory.look()
    assert not stuck.refusals  # no other connection waits
    assert not memory.reserve(held_back, size)
    for _ in range(1000):
        clock.now_s += 1.0
        if kind == "slow":
            stuck.kept_bytes += 1
        memory.look()
        if stuck.refusals:
            break
    (reason,) = stuck.refusals
    assert frame_memory.SETTING in reason
    assert held_back.granted == 1
    # What the broker itself does not read is not to blame.
    held_back.is_reading = False
    assert not memory.reserve(Owner(), size)
    for _ in range(100):
        clock.now_s += 1.0
        memory.look()
    assert not held_back.refusals


async def test_connections_that_wait_are_bounded_too() -> None:
    memory = FrameMemory(lambda: 10_000, Clock())
    assert memory.reserve(Owner(), 10_000)
    waiting = [Owner(memory=memory) for _ in range(20)]
    for owner in waiting:
        memory.reserve(owner, 10_000)
    refused = [owner for owner in waiting if owner.refusals]
    assert len(refused) == 15
    assert "connections are already waiting" in refused[0].refusals[0]


@dataclass(eq=False)
class Peer:
    """A connection that takes less than is written."""

    unsent_bytes: int = 0
    share_bytes: int = 0
    reasons: list[str] = field(default_factory=list)

    def limit_unsent(self, share_bytes: int) -> None:
        self.share_bytes = share_bytes

    def give_way(self, reason: str) -> None:
        self.reasons.append(reason)


async def test_shares_shrink_with_the_number_of_slow_peers() -> None:
    peers = [Peer(unsent_bytes=1) for _ in range(100)]
    memory = DeliveryMemory(lambda: 64 * MIB, 2 * MIB, lambda: peers, Clock())
    for peer in peers[:8]:
        memory.paused(peer)
    assert memory.share_bytes == 2 * MIB
    for peer in peers:
        memory.paused(peer)
    assert LEAST_SHARE_BYTES <= memory.share_bytes <= MIB // 2
    await asyncio.sleep(0)
    assert {peer.share_bytes for peer in peers} == {memory.share_bytes}
    for peer in peers:
        memory.resumed(peer)
    assert memory.share_bytes == 2 * MIB
    assert memory.unsent_bytes == 0


async def test_peers_that_take_nothing_give_way_while_memory_is_short() -> None:
    clock = Clock()
    stalled, slow, other = Peer(600), Peer(600), Peer(1)
    memory = DeliveryMemory(lambda: 1000, 2 * MIB, lambda: [stalled, slow, other], clock)
    for peer in (stalled, slow, other):
        memory.paused(peer)
    assert memory.is_short
    went_on: list[int] = []
    memory.wait(lambda: went_on.append(1))
    for _ in range(int(delivery_memory.STALLED_S) + 1):
        clock.now_s += 1.0
        slow.unsent_bytes -= 1
        memory.look()
    assert len(stalled.reasons) == 1
    assert delivery_memory.SETTING in stalled.reasons[0]
    assert not slow.reasons
    assert not other.reasons, "a peer gave way although memory was not short any more"
    assert not memory.is_short

    async def has_gone_on() -> bool:
        return bool(went_on)

    await eventually(has_gone_on, "subscription that goes on")


async def test_above_twice_the_limit_connections_give_way_at_once() -> None:
    peers = [Peer(400) for _ in range(10)]
    memory = DeliveryMemory(lambda: 1000, 2 * MIB, lambda: peers, Clock())
    for peer in peers:
        memory.paused(peer)
    await asyncio.sleep(0)
    assert sum(bool(peer.reasons) for peer in peers) == 5
    assert memory.unsent_bytes == 2000


def unfinished(size: int) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 1, 0
    metadata = MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1)
    return encode_frame(command, seal(metadata, bytes(size)))


async def test_small_requests_pass_and_large_frames_wait_while_others_are_unfinished(tmp_path: Path) -> None:
    async with running_broker(tmp_path, publish_buffer_mb=4) as broker:
        frame = unfinished(MIB)
        clients = [await Raw.connected(broker.port) for _ in range(6)]
        for client in clients:
            assert (await client.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)).HasField(
                "producer_success"
            )
            client.send_bytes(frame[: MIB // 2])

        async def are_waiting() -> bool:
            return sum(connection._waits_for_memory for connection in broker.connections) == 5

        await eventually(are_waiting, "connections that wait for memory")
        assert broker.frame_memory.used_bytes <= 2 * MIB
        other = await Raw.connected(broker.port)
        assert await other.barrier() == []
        # Whoever finishes its frame makes room for the next.
        for client in clients:
            client.send_bytes(frame[MIB // 2 :])
        for client in clients:
            assert (await client.receive()).command.HasField("send_receipt")
            assert await client.barrier() == []
        assert broker.frame_memory.used_bytes == 0
        for client in (*clients, other):
            await client.close()


async def is_unused(memory: FrameMemory) -> bool:
    return memory.used_bytes == 0


async def test_large_requests_are_refused_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path, publish_buffer_mb=4) as broker:
        raw = await Raw.connected(broker.port)
        taken: list[int] = []
        monkeypatch.setattr(broker.frame_memory, "take", taken.append)
        definition = b'{"type": "record", "name": "r", "fields": [], "doc": "%s"}' % (b"x" * LARGE_BYTES)
        schema = Schema(name="s", schema_data=definition, type=Schema.Json)
        fields = {"topic": TOPIC, "producer_id": 1, "request_id": 7, "schema": schema}
        answer = (await raw.request("PRODUCER", **fields)).error
        assert taken, answer
        assert (answer.request_id, answer.error) == (7, ServerError.ServiceNotReady)
        assert "maxMessagePublishBufferSizeInMB" in answer.message
        small = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=8)
        assert small.HasField("producer_success")
        monkeypatch.undo()
        fields["producer_id"] = 2
        assert (await raw.request("PRODUCER", **fields)).HasField("producer_success")
        await eventually(lambda: is_unused(broker.frame_memory), "memory that is given back")
        await raw.close()
