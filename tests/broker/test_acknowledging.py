"""What acknowledgements cost and what they may name: huge lists and sets, positions that never were."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.session.ack_commands import IDS_PER_BATCH, ack
from magnetar.broker.topics.subscription import Subscription
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, ServerError

from .brokers import running_broker
from .test_delivery import TOPIC, acknowledge, close, consumer, position, producer, publish, take

EXCLUSIVE, SHARED = CommandSubscribe.Exclusive, CommandSubscribe.Shared
MANY = 300_000
NEVER = (1 << 64) - 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path, failover_delay_s=0.0) as it:
        yield it


@pytest.mark.slow
async def test_one_ack_of_many_ids_is_worked_off_in_turns(
    broker: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await producer(broker)
    sink = await consumer(broker, SHARED)
    sent = await publish(source, [b"m"] * 20)
    await take(sink, 20)
    ids = [{"ledgerId": sent[0].ledger_id, "entryId": n % 20} for n in range(MANY)]
    spent: list[float] = []
    acknowledge_one_turn = Subscription.acknowledge

    def timed(*arguments: Any) -> None:
        began = time.thread_time()
        acknowledge_one_turn(*arguments)
        spent.append(time.thread_time() - began)

    monkeypatch.setattr(Subscription, "acknowledge", timed)
    sink.send("ACK", consumer_id=1, ack_type=0, message_id=ids, request_id=7)
    assert (await sink.receive()).command.ackResponse.request_id == 7
    assert len(spent) == MANY // IDS_PER_BATCH
    assert max(spent) < 0.25
    assert broker.topics[TOPIC].subscriptions["s"].cursor.backlog_entries == 0
    (connection,) = (c for c in broker.connections if c.consumers)
    assert connection.pending_publishes == 0
    assert connection.is_reading
    await close(source, sink)


async def test_ack_set_costs_no_more_than_the_batch_has_words(broker: BrokerService) -> None:
    source = await producer(broker)
    sink = await consumer(broker, EXCLUSIVE)
    (sent,) = await publish(source, [b"m"], batch=100)
    await take(sink, 1)
    (connection,) = (each for each in broker.connections if each.consumers)
    words = [-2, *[-1] * 250_000]  # 2.5 MB on the wire, which took 20 s
    data = {"ledgerId": sent.ledger_id, "entryId": sent.entry_id, "ack_set": words}
    command = CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[data])
    began = time.thread_time()
    ack(connection, command)
    assert time.thread_time() - began < 0.5
    left = broker.topics[TOPIC].subscriptions["s"].cursor.remaining(sent)
    assert left == (-2, -1)
    await close(source, sink)


async def test_seek_with_a_huge_ack_set_costs_no_more_than_the_batch_has_words(broker: BrokerService) -> None:
    source = await producer(broker)
    sink = await consumer(broker, EXCLUSIVE, permits=0)
    (sent,) = await publish(source, [b"m"], batch=100)
    data = {"ledgerId": sent.ledger_id, "entryId": sent.entry_id, "ack_set": [-2, *[-1] * 250_000]}
    began = time.thread_time()
    sink.send("SEEK", consumer_id=1, request_id=5, message_id=data)
    answers = [(await sink.receive()).command for _ in range(2)]
    assert answers[1].success.request_id == 5
    assert time.thread_time() - began < 2  # making and sending it included
    assert broker.topics[TOPIC].subscriptions["s"].cursor.remaining(sent) == (-2, -1)
    await close(source, sink)


@pytest.mark.slow
async def test_what_a_seek_follows_does_not_acknowledge_what_comes_after_it(broker: BrokerService) -> None:
    source = await producer(broker)
    sink = await consumer(broker, EXCLUSIVE)
    sent = await publish(source, [b"m"] * 20)
    await take(sink, 20)
    last = [{"ledgerId": sent[-1].ledger_id, "entryId": 19}] * (20 * IDS_PER_BATCH)
    first = [{"ledgerId": sent[-1].ledger_id, "entryId": 0}] * (10 * IDS_PER_BATCH)
    (connection,) = (each for each in broker.connections if each.consumers)
    ack(connection, CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=first + last, request_id=9))
    subscription = broker.topics[TOPIC].subscriptions["s"]
    await subscription.seek(sent[0])
    async with asyncio.timeout(30):
        while connection.pending_publishes:  # noqa: ASYNC110  a condition with a deadline; nobody tells of it
            await asyncio.sleep(0)
    assert subscription.cursor.backlog_entries == 20
    answers = [frame.command for frame in await sink.barrier()]
    (response,) = (each.ackResponse for each in answers if each.HasField("ackResponse"))
    assert response.error == ServerError.ServiceNotReady
    await close(source, sink)


@pytest.mark.parametrize("entry_id", [99, 1 << 40, (1 << 63) - 1, NEVER - 1])
@pytest.mark.parametrize("ack_type", [CommandAck.Individual, CommandAck.Cumulative])
async def test_positions_that_never_were_are_not_acknowledged(
    broker: BrokerService, ack_type: int, entry_id: int
) -> None:
    source = await producer(broker)
    sink = await consumer(broker, EXCLUSIVE)
    sent = await publish(source, [b"m"] * 5)
    await take(sink, 5)
    for ledger_id in (sent[0].ledger_id, sent[0].ledger_id + 5, NEVER):
        position = {"ledgerId": ledger_id, "entryId": entry_id}
        answer = await sink.request("ACK", consumer_id=1, ack_type=ack_type, message_id=[position], request_id=1)
        assert answer.ackResponse.request_id == 1
        assert not answer.ackResponse.HasField("error")  # as Pulsar answers
    cursor = broker.topics[TOPIC].subscriptions["s"].cursor
    assert cursor.backlog_entries == 5
    acknowledge(sink, sent[0], request_id=2)
    await sink.receive()
    assert cursor.mark_delete == sent[0]
    await close(source, sink)


async def test_cumulative_ack_of_the_entry_before_a_ledger_acknowledges_the_ledgers_before(tmp_path: Path) -> None:
    """Clients in the middle of a ledger's first batch acknowledge what precedes it: entry -1."""
    async with running_broker(tmp_path, limits={"max_ledger_entries": 2}) as broker:
        source = await producer(broker)
        sink = await consumer(broker, EXCLUSIVE)
        sent = await publish(source, [b"m"] * 5)
        await take(sink, 5)
        for index, left in ((0, 5), (2, 3)):
            before = {"ledgerId": sent[index].ledger_id, "entryId": NEVER}
            await sink.request("ACK", consumer_id=1, ack_type=1, message_id=[before], request_id=1)
            assert broker.topics[TOPIC].subscriptions["s"].cursor.backlog_entries == left
        await close(source, sink)
    async with running_broker(tmp_path) as broker:
        sink = await consumer(broker, EXCLUSIVE)
        assert [position(frame) for frame in await take(sink, 3)] == sent[2:]
        await sink.close()


@pytest.mark.parametrize(
    ("target", "first"),
    [((1 << 40, 0), 5), ((NEVER >> 1, NEVER >> 1), 5), ((NEVER, NEVER), 0), ((1, 1 << 40), 2), ((2, NEVER), 2),
     ((2, NEVER - 7), 2), ((0, 5), 0)],
)  # fmt: skip
async def test_seek_to_what_is_not_there_goes_to_what_follows(
    tmp_path: Path, target: tuple[int, int], first: int
) -> None:
    async with running_broker(tmp_path, limits={"max_ledger_entries": 2}) as broker:
        source = await producer(broker)
        sink = await consumer(broker, EXCLUSIVE, permits=0)
        sent = await publish(source, [b"m"] * 5)
        assert sent[0].ledger_id == 1
        target_id = {"ledgerId": target[0], "entryId": target[1]}
        sink.send("SEEK", consumer_id=1, request_id=5, message_id=target_id)
        assert (await sink.receive()).command.HasField("close_consumer")
        assert (await sink.receive()).command.success.request_id == 5
        cursor = broker.topics[TOPIC].subscriptions["s"].cursor
        assert cursor.backlog_entries == 5 - first
        assert cursor.mark_delete == (sent[first - 1] if first else Position(1, -1))
        await close(source, sink)


async def test_redelivery_of_many_ids_is_worked_off_in_turns(broker: BrokerService) -> None:
    source = await producer(broker)
    sink = await consumer(broker, SHARED, permits=100)
    sent = await publish(source, [b"m"] * 3)
    await take(sink, 3)
    strange = [{"ledgerId": NEVER, "entryId": number} for number in range(2 * IDS_PER_BATCH)]
    held = [{"ledgerId": each.ledger_id, "entryId": each.entry_id} for each in sent]
    sink.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=strange + held)
    again = await take(sink, 3)
    assert [position(frame) for frame in again] == sent
    assert {frame.command.message.redelivery_count for frame in again} == {1}
    await close(source, sink)


async def test_cumulative_ack_set_costs_no_more_than_the_batch_has_words(broker: BrokerService) -> None:
    source = await producer(broker)
    sink = await consumer(broker, EXCLUSIVE)
    sent = await publish(source, [b"m"] * 3, batch=100)
    await take(sink, 3)
    (connection,) = (each for each in broker.connections if each.consumers)
    cursor = broker.topics[TOPIC].subscriptions["s"].cursor
    for words, left in (([-2, *[-1] * 250_000], (-2, -1)), ([0] * 250_000, None)):
        data = {"ledgerId": sent[1].ledger_id, "entryId": sent[1].entry_id, "ack_set": words}
        command = CommandAck(consumer_id=1, ack_type=CommandAck.Cumulative, message_id=[data])
        began = time.thread_time()
        ack(connection, command)
        assert time.thread_time() - began < 0.5
        assert cursor.remaining(sent[1]) == left
    assert cursor.mark_delete == sent[1]
    await close(source, sink)


async def test_ack_of_many_ids_that_lacks_a_required_field_closes_its_connection_with_the_reason(
    broker: BrokerService, caplog: pytest.LogCaptureFixture
) -> None:
    source = await producer(broker)
    sink = await consumer(broker, SHARED)
    command = BaseCommand(type=BaseCommand.ACK)
    ids = [{"ledgerId": NEVER, "entryId": number} for number in range(IDS_PER_BATCH + 1)]
    command.ack.MergeFrom(CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=ids))
    command.ack.properties.add()
    with caplog.at_level("INFO"):
        sink.send_command_bytes(command.SerializePartialToString())
        assert await sink.is_closed()
    assert "lacks a required field" in caplog.text
    assert "internal error" not in caplog.text
    await close(source, sink)
