"""A broker stays below 512 MB, whatever clients make it hold at once, and goes on serving another client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from magnetar.wire.frames import Frame, FrameDecoder, encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import BaseCommand, KeyValue, MessageIdData, MessageMetadata

from tests.broker.raw import FIELDS
from tests.support.servers import Server, running

MIB = 1 << 20
BUDGET_BYTES = 512 * MIB
SUBSCRIBES = 60
UNFINISHED = 300
DEAF = 300
PARTIAL = 200
DEADLINE_S = 300.0
SMALL_BUFFER = 32 * 1024
PREFIX = "persistent://public/default/budget"


def command(kind: str, **fields: Any) -> bytes:
    message = BaseCommand(type=BaseCommand.Type.Value(kind))  # type: ignore[arg-type]
    getattr(message, FIELDS[kind]).MergeFrom(type(getattr(message, FIELDS[kind]))(**fields))
    return encode_frame(message)


def send(body: bytes, sequence_id: int = 0, messages: int = 1) -> bytes:
    message = BaseCommand(type=BaseCommand.SEND)
    message.send.producer_id, message.send.sequence_id, message.send.num_messages = 1, sequence_id, messages
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    if messages > 1:
        metadata.num_messages_in_batch = messages
    return encode_frame(message, seal(metadata, body))


class Client:
    """A connection whose sockets hold little, so that what is not read stays with the broker."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self.decoder = FrameDecoder()
        self.frames: list[Frame] = []
        self.sending: asyncio.Future[None] | None = None

    @classmethod
    async def connected(cls, port: int) -> Client:
        sock = socket.socket()
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SMALL_BUFFER)
        self = cls(sock)
        await self.loop.sock_connect(sock, ("127.0.0.1", port))
        await self.send(command("CONNECT", client_version="raw", protocol_version=21))
        await self.receive("connected")
        return self

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.sock, data)

    async def receive(self, *fields: str) -> BaseCommand:
        """The next command that has one of these fields; a PING on the way is answered."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                while self.frames:
                    found = self.frames.pop(0).command
                    if found.HasField("ping"):
                        await self.send(command("PONG"))
                    if any(found.HasField(name) for name in fields):
                        return found
                data = await self.loop.sock_recv(self.sock, 1 << 18)
                assert data, f"the broker closed the connection before {fields}"
                self.frames += self.decoder.feed(data)

    async def producer(self, topic: str) -> None:
        await self.send(command("PRODUCER", topic=topic, producer_id=1, request_id=1))
        await self.receive("producer_success")

    async def subscribe(self, topic: str, name: str, id_: int = 1, **fields: Any) -> BaseCommand:
        wanted = {"subscription": name, "subType": "Shared", "consumer_id": id_, "request_id": id_} | fields
        await self.send(command("SUBSCRIBE", topic=topic, **wanted))
        return await self.receive("success", "error")


async def subscribe_with_large_properties(port: int, number: int, refusals: list[str]) -> None:
    client = await Client.connected(port)
    pairs = [KeyValue(key="large", value="x" * (5 * MIB))]
    answer = await client.subscribe(f"{PREFIX}-{number}", "s", subscription_properties=pairs)
    refusals.append(answer.error.message)
    client.sock.close()


async def send_unfinished(port: int, frame: bytes) -> Client:
    client = await Client.connected(port)
    await client.producer(f"{PREFIX}-unfinished")

    async def go_on() -> None:
        with contextlib.suppress(OSError):  # the broker closes the connection
            await client.send(frame)

    client.sending = asyncio.ensure_future(go_on())
    return client


async def ask_and_do_not_read(port: int, topic: str, number: int) -> Client:
    client = await Client.connected(port)
    answer = await client.subscribe(topic, f"deaf-{number}", durable=False, initialPosition="Earliest")
    assert answer.HasField("success"), answer
    await client.send(command("FLOW", consumer_id=1, messagePermits=1000))
    return client


async def acknowledge_in_part(port: int, topic: str, position: MessageIdData, words: list[int]) -> list[str]:
    """Acknowledge one message of a large batch on many subscriptions; return why it was refused."""
    client = await Client.connected(port)
    refusals = []
    for number in range(1, PARTIAL + 1):
        answer = await client.subscribe(topic, f"partial-{number}", number, durable=False, initialPosition="Earliest")
        assert answer.HasField("success"), answer
        part = MessageIdData(ledgerId=position.ledgerId, entryId=position.entryId, ack_set=words)
        await client.send(
            command("ACK", consumer_id=number, ack_type="Individual", message_id=[part], request_id=number)
        )
        response = (await client.receive("ackResponse")).ackResponse
        if response.HasField("error"):
            refusals.append(response.message)
    client.sock.close()
    return refusals


async def filled(port: int, topic: str, body: bytes, count: int, messages: int = 1) -> MessageIdData:
    client = await Client.connected(port)
    await client.producer(topic)
    for number in range(count):
        await client.send(send(body, number, messages))
        receipt = (await client.receive("send_receipt")).send_receipt
    client.sock.close()
    return receipt.message_id


async def publish_and_consume(port: int, stop: asyncio.Event) -> int:
    """A client with small messages; each has to come back."""
    client = await Client.connected(port)
    topic = f"{PREFIX}-small"
    await client.producer(topic)
    assert (await client.subscribe(topic, "s")).HasField("success")
    await client.send(command("FLOW", consumer_id=1, messagePermits=1_000_000))
    count = 0
    while not stop.is_set():
        await client.send(send(b"small", count))
        await client.receive("send_receipt")
        message = (await client.receive("message")).message
        await client.send(command("ACK", consumer_id=1, ack_type="Individual", message_id=[message.message_id]))
        count += 1
        await asyncio.sleep(0.01)  # a pace, not a wait
    client.sock.close()
    return count


def peak_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def logged(server: Server, *texts: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not all(text in server.log_file.read_text() for text in texts):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


@pytest.mark.crash
async def test_a_broker_stays_below_its_memory_while_another_client_works_on(tmp_path: Path) -> None:
    with running("broker", tmp_path) as server:
        port = int(server.service_url.rpartition(":")[2])
        deaf_topics = [f"{PREFIX}-deaf-{number}" for number in range(4)]
        for topic in deaf_topics:
            await filled(port, topic, bytes(4 * MIB), 4)
        batch_messages = 5 * MIB // 10
        position = await filled(port, f"{PREFIX}-partial", bytes(5 * MIB - 1000), 1, batch_messages)
        words = [-(1 << 62) + number for number in range(batch_messages // 64)]
        stop = asyncio.Event()
        working = asyncio.ensure_future(publish_and_consume(port, stop))
        refusals: list[str] = []
        frame = send(bytes(5 * MIB - 1000))[: -MIB // 2]
        async with AsyncExitStack() as stack:
            clients = await asyncio.gather(
                *(ask_and_do_not_read(port, deaf_topics[number % 4], number) for number in range(DEAF)),
                *(send_unfinished(port, frame) for _ in range(UNFINISHED)),
            )
            for client in clients:
                stack.callback(client.sock.close)
            partial = asyncio.ensure_future(acknowledge_in_part(port, f"{PREFIX}-partial", position, words))
            await asyncio.gather(
                *(subscribe_with_large_properties(port, number, refusals) for number in range(SUBSCRIBES))
            )
            partial_refusals = await partial
            await logged(server, "bytes of a frame", "none of")
        stop.set()
        rounds = await working
        peak = peak_bytes(server)
        print(f"peak {peak >> 20} MiB, {rounds} rounds of the other client, {len(partial_refusals)} partial refusals")
        assert server.process is not None
        assert server.process.poll() is None, server.log_tail()
        assert peak < BUDGET_BYTES
        assert rounds > 10
        assert len(refusals) == SUBSCRIBES
        for reason in refusals:
            assert (
                "subscription properties exceed 16384 bytes" in reason or "not enough memory for a request" in reason
            ), reason
        assert partial_refusals
        assert all("acknowledge whole batches" in reason for reason in partial_refusals)
