"""Delayed entries whose times come together, in another order than that of the log: all come, with few reads."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.storage.entry import StoredEntry
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSubscribe

from .brokers import running_broker
from .raw import Raw

TOPIC = "persistent://public/wire/due"
COUNT = 1200
FIRST_MS, WITHIN_MS = 1200, 400
SEED = 5
READS_MAX = COUNT // 10
BODY_BYTES = 300
SMALL_CACHES = {"tail_cache_bytes": 1024, "read_cache_bytes": 64 * 1024, "checkpoint_bytes": 64 * 1024}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CommandSubscribe.Shared, CommandSubscribe.Key_Shared])
@pytest.mark.parametrize("limits", [{}, SMALL_CACHES], ids=["memory", "disk"])
async def test_entries_that_are_due_together_are_read_together(
    tmp_path: Path, kind: int, limits: dict[str, int]
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    async with running_broker(tmp_path, limits=limits) as broker:
        sink, source = await Raw.connected(broker.port), await Raw.connected(broker.port)
        reply = await sink.request(
            "SUBSCRIBE", topic=TOPIC, subscription="s", subType=kind, consumer_id=1, request_id=1, consumer_name="c"
        )
        assert reply.HasField("success"), reply
        sink.send("FLOW", consumer_id=1, messagePermits=2 * COUNT)
        await source.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="p")
        first_ms = int(time.time() * 1000) + FIRST_MS
        for number in range(COUNT):
            due_ms = first_ms + rng.randrange(WITHIN_MS)
            source.send_message(b"m" * BODY_BYTES, sequence_id=number, metadata={"deliver_at_time": due_ms})
        for _ in range(COUNT):
            await source.receive()
        (subscription,) = broker.topics[TOPIC].subscriptions.values()
        dispatcher = subscription.dispatcher
        assert isinstance(dispatcher, SharedDispatcher)
        read, reads = dispatcher._replay_reader.read, Counter[str]()

        def counted(start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
            reads["all"] += 1
            return read(start, max_entries, max_bytes)

        dispatcher._replay_reader.read = counted  # type: ignore[method-assign]
        came: list[Position] = []
        while len(came) < COUNT:
            frame = await sink.receive()
            if frame.command.type == BaseCommand.MESSAGE:
                place = frame.command.message.message_id
                came.append(Position(place.ledgerId, place.entryId))
                assert time.time() * 1000 >= first_ms, "none comes early"
        assert len(set(came)) == COUNT
        assert 0 < reads["all"] <= READS_MAX
        await sink.close()
        await source.close()
