"""Commands that wait: what a closed connection still had to do, and how many lookups may wait at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.broker.session.frame_queue import FrameQueue
from magnetar.wire.frames import Frame
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandPing, ServerError
from magnetar.wire.topic_name import TopicName

from .brokers import running_broker
from .raw import Raw


async def test_closed_connection_handles_no_postponed_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker:
        client = await Raw.connected(broker.port)
        (connection,) = broker.connections
        handled: list[int] = []
        monkeypatch.setattr(connection, "_handle", lambda kind, _: handled.append(kind))
        ping = Frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()), b"")
        connection._postponed = FrameQueue([ping])
        broker.turns.wait(connection._take_postponed)
        connection.close()
        connection._take_postponed()  # another connection in the same turn of the loop may have closed this one
        assert handled == []
        await client.close()


async def test_lookups_of_one_burst_count_towards_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path, max_lookups=2, auto_topic_partitions=1) as broker:
        broker.turns.monotonic = lambda: 0.0  # all in one turn, however slow the machine is
        may_create = asyncio.Event()
        waiting: list[TopicName] = []
        ensure = broker.namespaces.ensure_partitioned_topic

        async def slow(name: TopicName, partitions: int) -> int:
            waiting.append(name)
            await may_create.wait()
            return await ensure(name, partitions)

        monkeypatch.setattr(broker.namespaces, "ensure_partitioned_topic", slow)
        client = await Raw.connected(broker.port)
        for number in range(5):
            client.send(
                "PARTITIONED_METADATA",
                topic=f"persistent://public/wire/t{number}",
                request_id=number,
                metadata_auto_creation_enabled=True,
            )
        refused = [(await client.receive()).command.partitionMetadataResponse for _ in range(3)]
        assert [(answer.request_id, answer.error) for answer in refused] == [
            (number, ServerError.TooManyRequests) for number in (2, 3, 4)
        ]
        may_create.set()
        created = [(await client.receive()).command.partitionMetadataResponse for _ in range(2)]
        assert {(answer.request_id, answer.partitions) for answer in created} == {(0, 1), (1, 1)}
        assert len(waiting) == 2
        await client.barrier()
        assert broker.lookups_waiting == 0
        await client.close()
