"""Whether the client that holds a producer name is gone, when another one asks for the name."""

from __future__ import annotations

import asyncio
from pathlib import Path

from magnetar.wire.pulsar_api_pb2 import ServerError
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.brokers import running_broker
from tests.broker.raw import Raw
from tests.support.eventually import until

TOPIC = parse_topic_name("persistent://public/default/t")
HOLDERS = 12


async def test_throttled_producer_keeps_its_name_and_its_connection(tmp_path: Path) -> None:
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    async with running_broker(tmp_path, liveness_timeout_s=0.2) as broker:
        await broker.create_topic(TOPIC)
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {"publishMaxMessageRate": rate})
        holder, other = await Raw.connected(broker.port), await Raw.connected(broker.port)
        await holder.request("PRODUCER", topic=str(TOPIC), producer_id=1, request_id=1, producer_name="p")
        (connection,) = (one for one in broker.connections if one.producers)
        for number in range(100):
            holder.send_message(b"x", sequence_id=number)

        async def is_throttled() -> bool:
            return not connection.is_reading

        await until(is_throttled)
        answer = await other.request("PRODUCER", topic=str(TOPIC), producer_id=1, request_id=1, producer_name="p")
        assert answer.error.error == ServerError.ProducerBusy
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {})
        receipts = [(await holder.receive()).command for _ in range(100)]
        assert [one.send_receipt.sequence_id for one in receipts] == list(range(100))
        await holder.close()
        await other.close()


async def test_names_of_dead_clients_are_claimed_at_the_same_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path, liveness_timeout_s=30.0) as broker:
        dead = [await Raw.connected(broker.port) for _ in range(HOLDERS)]
        for number, raw in enumerate(dead):
            await raw.request("PRODUCER", topic=str(TOPIC), producer_id=1, request_id=1, producer_name=f"p{number}")
        holders = [one for one in broker.connections if one.producers]
        returned = [await Raw.connected(broker.port) for _ in range(HOLDERS)]
        for number, raw in enumerate(returned):
            raw.send("PRODUCER", topic=str(TOPIC), producer_id=1, request_id=1, producer_name=f"p{number}")

        async def all_are_asked() -> bool:
            return all(one._keep_alive.probe is not None for one in holders)

        await until(all_are_asked)
        new = await Raw.connected(broker.port)  # does not wait for any of them
        assert (await new.request("PRODUCER", topic=str(TOPIC), producer_id=1, request_id=1)).HasField(
            "producer_success"
        )
        for connection in holders:
            connection.abort()
        answers = await asyncio.gather(*(raw.receive() for raw in returned))
        assert all(one.command.HasField("producer_success") for one in answers)
        for raw in (*dead, *returned, new):
            await raw.close()
