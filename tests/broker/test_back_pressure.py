"""A peer that does not read costs one write buffer and one answer, whatever it asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from magnetar.broker.service import BrokerService
from magnetar.broker.session.connection import MAX_REQUEST_BYTES, Connection
from magnetar.broker.session.outbox import FLUSH_BYTES
from magnetar.wire.pulsar_api_pb2 import BaseCommand, KeyValue

from tests.support.eventually import eventually

from .brokers import running_broker
from .raw import Raw

NAMES = tuple(f"persistent://public/wire/{'x' * 80}-{number}" for number in range(1000))
ANSWER_BYTES = 1000 * 120
REQUESTS = 1500
WRITE_BUFFER_BYTES = 1 << 20


def only(broker: BrokerService) -> Connection:
    (connection,) = broker.connections
    return connection


def unsent_bytes(connection: Connection) -> int:
    transport = connection._transport
    assert transport is not None
    return transport.get_write_buffer_size() + connection._outbox.bytes


async def unread(broker: BrokerService) -> tuple[Raw, Connection]:
    """A peer that has asked for 160 MB with 72 KB of requests, and the connection that has stopped listening to it."""
    assert broker.topic_names("public/wire") == []
    for name in NAMES:
        broker.topic_index.set_present(name, True)
    raw = await Raw.connected(broker.port)
    for number in range(REQUESTS):
        raw.send("GET_TOPICS_OF_NAMESPACE", namespace="public/wire", request_id=number)
    connection = only(broker)

    async def is_deaf() -> bool:
        return not connection.is_writable

    await eventually(is_deaf, "back-pressure")
    return raw, connection


async def test_answers_to_a_peer_that_does_not_read_are_bounded(tmp_path: Path) -> None:
    async with running_broker(tmp_path, write_buffer_bytes=WRITE_BUFFER_BYTES) as broker:
        raw, connection = await unread(broker)
        assert not connection.is_writable
        assert unsent_bytes(connection) < WRITE_BUFFER_BYTES + FLUSH_BYTES + ANSWER_BYTES
        # Others are served; and once it reads, it gets every answer, in order.
        other = await Raw.connected(broker.port)
        assert await other.barrier() == []
        await other.close()
        for number in range(REQUESTS):
            answer = (await raw.receive()).command.getTopicsOfNamespaceResponse
            assert answer.request_id == number
            assert len(answer.topics) == len(NAMES)
        assert await raw.barrier() == []
        assert connection.is_reading
        await raw.close()


async def test_a_peer_that_takes_nothing_at_all_is_closed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, write_buffer_bytes=WRITE_BUFFER_BYTES, keep_alive_s=0.3) as broker:
        raw, _ = await unread(broker)

        async def is_gone() -> bool:
            return not broker.connections

        await eventually(is_gone, "end of the connection")
        await raw.close()


async def test_requests_in_progress_are_bounded_by_what_they_ask_with(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        going_on = asyncio.Event()

        async def topic(name: object, *, create: bool = True) -> None:
            await going_on.wait()
            raise KeyError("enough")

        cast(Any, broker).topic = topic
        raw = await Raw.connected(broker.port)
        big = [KeyValue(key="big", value="x" * (1 << 20))]
        count = 3 * MAX_REQUEST_BYTES >> 20

        async def ask() -> None:
            for number in range(count):
                raw.send("SUBSCRIBE", topic="persistent://public/wire/t", subscription="s", subType=0,
                         consumer_id=number, request_id=number, subscription_properties=big)  # fmt: skip
                await raw.writer.drain()

        asking = asyncio.ensure_future(ask())
        connection = only(broker)

        async def is_deaf() -> bool:
            return not connection.is_reading

        await eventually(is_deaf, "back-pressure")
        assert connection._request_bytes < MAX_REQUEST_BYTES + (2 << 20)
        going_on.set()
        answers = [(await raw.receive()).command for _ in range(count)]
        assert sorted(answer.error.request_id for answer in answers) == list(range(count))
        assert {answer.type for answer in answers} == {BaseCommand.ERROR}
        await asking
        await raw.close()
