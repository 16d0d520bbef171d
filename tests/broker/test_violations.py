"""Peers that break the protocol are cut off without a word, and nobody else notices.

The outcomes are those that a real Pulsar showed (`tests/golden/wire/violations.jsonl`, the `result` of its first line;
what was sent is in its `code`).
"""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from .brokers import running_broker
from .golden_replay import load
from .raw import Raw

TOPIC = "persistent://public/wire/violations"
RECORDED = dict(load(Path(__file__).parent.parent / "golden/wire/violations.jsonl")[0]["result"])

# What is sent by name of the recorded case: bytes of a command, or a command.
COMMANDS: dict[str, bytes | tuple[str, dict[str, Any]]] = {
    "unknown type 200": b"\x08\xc8\x01",
    "unknown type 200, PING sub-message": b"\x08\xc8\x01\x92\x01\x00",
    "type SUBSCRIBE without sub-message": b"\x08\x04",
    "type PING without sub-message": b"\x08\x12",
    "garbage": b"\xff\xff\xff\xff",
    "empty command": b"",
    "SUBSCRIBE without required fields": b"\x08\x04\x22\x00",
    "CONNECTED from a client": ("CONNECTED", {"server_version": "x"}),
    "MESSAGE from a client": ("MESSAGE", {"consumer_id": 1, "message_id": {"ledgerId": 1, "entryId": 1}}),
    "SUCCESS from a client": ("SUCCESS", {"request_id": 1}),
    "SEND_RECEIPT from a client": ("SEND_RECEIPT", {"producer_id": 1, "sequence_id": 1}),
    "ERROR from a client": ("ERROR", {"request_id": 1, "error": 0, "message": "x"}),
    "PONG unasked": ("PONG", {}),
    "CONNECT twice": ("CONNECT", {"client_version": "raw", "protocol_version": 21}),
    "FLOW 0 to an unknown consumer": ("FLOW", {"consumer_id": 1, "messagePermits": 0}),
    "FLOW to an unknown consumer": ("FLOW", {"consumer_id": 1, "messagePermits": 10}),
    "REDELIVER to an unknown consumer": ("REDELIVER_UNACKNOWLEDGED_MESSAGES", {"consumer_id": 1}),
    "GET_LAST_MESSAGE_ID of an unknown consumer": ("GET_LAST_MESSAGE_ID", {"consumer_id": 1, "request_id": 1}),
    "CONSUMER_STATS of an unknown consumer": ("CONSUMER_STATS", {"consumer_id": 1, "request_id": 1}),
    "UNSUBSCRIBE of an unknown consumer": ("UNSUBSCRIBE", {"consumer_id": 1, "request_id": 1}),
    "AUTH_RESPONSE unasked": (
        "AUTH_RESPONSE",
        {"client_version": "raw", "response": {"auth_method_name": "none", "auth_data": b""}},
    ),
}
BEFORE_CONNECT: dict[str, tuple[str, dict[str, Any]]] = {
    "PING before CONNECT": ("PING", {}),
    "LOOKUP before CONNECT": ("LOOKUP", {"topic": "t", "request_id": 1}),
    "protocol_version 0": ("CONNECT", {"client_version": "raw"}),
    "protocol_version 99": ("CONNECT", {"client_version": "raw", "protocol_version": 99}),
    "auth method unknown": (
        "CONNECT",
        {"client_version": "raw", "protocol_version": 21, "auth_method_name": "nonsense", "auth_data": b"x"},
    ),
}


async def outcome(raw: Raw) -> str:
    """What the broker did, in the words of the recording."""
    raw.send("PING")
    frame = await raw.receive_or_end()
    if frame is None:
        return "closed"
    kind = BaseCommand.Type.Name(frame.command.type)
    return "ignored, then PONG" if kind == "PONG" else kind


@pytest.mark.parametrize("case", [*COMMANDS, *BEFORE_CONNECT])
async def test_broker_reacts_as_recorded(case: str, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await (Raw.open if case in BEFORE_CONNECT else Raw.connected)(broker.port)
        what = BEFORE_CONNECT.get(case) or COMMANDS[case]
        if isinstance(what, bytes):
            raw.send_command_bytes(what)
        else:
            raw.send(what[0], **what[1])
        expected = RECORDED[case]
        came = await outcome(raw)
        assert came.replace("ignored, then PONG", "PONG") == expected.replace("ignored, then PONG", "PONG")
        await raw.close()
        await is_serving(broker)


async def is_serving(broker: BrokerService) -> None:
    """Fail if the broker does not serve an honest client."""
    raw = await Raw.connected(broker.port)
    assert await raw.barrier() == []
    await raw.close()


async def test_send_to_unknown_and_to_closed_producer_ends_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        raw.send_message(b"x", producer_id=77)
        assert await raw.is_closed()
        await raw.close()
        raw = await Raw.connected(broker.port)
        await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="p")
        await raw.request("CLOSE_PRODUCER", producer_id=1, request_id=2)
        raw.send_message(b"x")
        assert await raw.is_closed()
        await raw.close()


async def test_flow_of_no_permits_ends_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        await raw.request("SUBSCRIBE", topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=1)
        raw.send("FLOW", consumer_id=1, messagePermits=0)
        assert await raw.is_closed()
        await raw.close()


async def test_send_that_holds_no_message_ends_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for payload in (b"", b"\x0e\x01", b"\x0e\x01\0\0\0\0\xff\xff\xff\xff", b"\0\0\0\x02\xff\xff"):
            raw = await Raw.connected(broker.port)
            await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="p")
            command = BaseCommand(type=BaseCommand.SEND)
            command.send.producer_id = 1
            command.send.sequence_id = 0
            body = command.SerializeToString()
            raw.send_bytes(struct.pack(">II", 4 + len(body) + len(payload), len(body)) + body + payload)
            frame = await raw.receive_or_end()
            assert frame is None or frame.command.type == BaseCommand.SEND_ERROR
            await raw.close()
        await is_serving(broker)


async def test_random_bytes_end_the_connection_and_nothing_else(tmp_path: Path) -> None:
    rng = random.Random(7)
    async with running_broker(tmp_path, keep_alive_s=1.0) as broker:

        async def is_closed(data: bytes) -> bool:
            raw = await Raw.open(broker.port)
            raw.send_bytes(data)
            try:
                return await raw.is_closed()  # at once, or with the keep-alive where the bytes announce more
            finally:
                await raw.close()

        sizes = (1, 3, 4, 8, 100, 5000, 300_000)
        assert all(await asyncio.gather(*(is_closed(rng.randbytes(size)) for size in sizes)))
        await is_serving(broker)


async def test_frame_above_the_limit_is_not_buffered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_message_bytes=4096) as broker:
        raw = await Raw.connected(broker.port)
        raw.send_bytes(struct.pack(">I", 4096 + 10 * 1024 + 1) + b"x" * 1000)
        assert await raw.is_closed()
        await raw.close()
        await is_serving(broker)


async def test_half_open_connection_is_noticed_and_what_it_held_is_free(tmp_path: Path) -> None:
    async with running_broker(tmp_path, keep_alive_s=1.5) as broker:
        dead = await Raw.connected(broker.port)
        await dead.request("SUBSCRIBE", topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=1)
        await dead.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=2, producer_name="p")
        # It says nothing any more: PINGs come, then the end.
        frames = []
        while (frame := await dead.receive_or_end()) is not None:
            frames.append(frame.command.type)
        assert frames == [BaseCommand.PING]
        topic = broker.topics[TOPIC]
        assert not topic.producers
        assert not topic.subscriptions["s"].consumers
        await dead.close()
