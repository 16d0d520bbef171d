"""A client that sends hostile frames: it produces and subscribes with valid names, then corrupts what it sends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from typing import Any

from magnetar.broker.session.commands import HANDLERS
from magnetar.wire.bulk import varint
from magnetar.wire.frames import Frame
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageMetadata

from tests.broker.raw import FIELDS, Raw

from .hostile import Tree, batch_body, command_frame, encode, fields_of, payload_section, spoil, tree_of

NAMESPACE = "public/fuzz"
STORED = tuple(f"persistent://{NAMESPACE}/t{number}" for number in range(4))
TOPICS = (*STORED, f"non-persistent://{NAMESPACE}/t")
UNSTORED = (0, 0)
"""Position of every entry of a topic that stores nothing."""
SUBSCRIPTIONS = ("s0", "s1", "s2")
KINDS = [kind for kind in FIELDS if kind not in ("CONNECTED", "PING", "PONG", "SEND")]
CLIENT_KINDS = [kind for kind in KINDS if BaseCommand.Type.Value(kind) in HANDLERS]
FREQUENT = ("SUBSCRIBE", "PRODUCER", "ACK", "FLOW", "REDELIVER_UNACKNOWLEDGED_MESSAGES", "SEEK", "CLOSE_PRODUCER",
            "CLOSE_CONSUMER", "GET_LAST_MESSAGE_ID", "UNSUBSCRIBE", "GET_TOPICS_OF_NAMESPACE")  # fmt: skip
BURSTS = (1,) * 9 + (5,)
ANSWER_TIMEOUT_S = 25.0

Position = tuple[int, int]


class Attacker:
    """A series of connections to the same broker.

    Attributes:
        receipted: what the broker said it has stored, by position, over all connections: the payload section, or
            those it can be, where several were sent with the same spoiled sequence id.
        sent: every payload section that was sent.
        came: the commands that the broker sent, by kind.
        bytes_in: bytes that the broker sent.
        frames: hostile frames sent.
        said: the last of them, in words.
    """

    def __init__(self, port: int, rng: random.Random):
        self.port = port
        self.rng = rng
        self.receipted: dict[Position, tuple[bytes, ...]] = {}
        self.sent: set[bytes] = set()
        self.came: Counter[str] = Counter()
        self.bytes_in = 0
        self.frames = 0
        self.said = ""
        self._raw: Raw | None = None
        self._steps_left = 0
        self._request_id = 0
        self._body = 0
        self._pending: dict[int, dict[int, list[bytes]]] = {}  # what was sent, by producer id and sequence id
        self._asked: dict[int, int] = {}  # request id of a PRODUCER -> its producer id
        self._producers: set[int] = set()
        self._positions: deque[Position] = deque([(0, 0)], maxlen=200)
        self._sane = {
            "topic": lambda: self.rng.choice(TOPICS),
            "subscription": lambda: self.rng.choice(SUBSCRIPTIONS),
            "namespace": lambda: NAMESPACE,
            "consumer_id": lambda: self.rng.randrange(4),
            "producer_id": self._producer,
            "request_id": self._next_request,
            "messagePermits": lambda: self.rng.choice((1, 10, 1000)),
            "message_id": lambda: self._ids(),
            "message_ids": lambda: [self._id() for _ in range(self.rng.randrange(4))],
            "producer_name": lambda: f"p{self.rng.randrange(3)}",
            "durable": lambda: 1,
            "epoch": lambda: self.rng.randrange(3),
            "schema": self._schema,
        }

    def _schema(self) -> Tree:
        """Return mostly a schema that the topics share, so that producers are accepted; otherwise a random one."""
        if self.rng.random() < 0.7:
            return {"name": "", "schema_data": b"", "type": 0}
        data = self.rng.choice((
            b"", b"null", b'"int"', b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', b"{",
            b"[" * 999, b"\0\0\0\1x\0\0\0\0", self.rng.randbytes(20),
        ))  # fmt: skip
        key, value = self.rng.choice(("key.schema.type", "x")), self.rng.choice(("AVRO", "NOPE", "KEY_VALUE"))
        return {
            "name": "",
            "schema_data": data,
            "type": self.rng.randrange(23),
            "properties": [{"key": key, "value": value}],
        }

    def _next_request(self) -> int:
        self._request_id += 1
        return self._request_id

    def _producer(self) -> int:
        if self._producers and self.rng.random() < 0.98:
            return self.rng.choice(sorted(self._producers))
        return self.rng.randrange(4)

    def _id(self) -> Tree:
        ledger, entry = self.rng.choice(self._positions)
        return {"ledgerId": ledger, "entryId": entry}

    def _ids(self) -> Any:
        return self._id()

    async def step(self) -> None:
        """Send one or more frames, and wait until the broker has handled them or closed the connection."""
        if self._raw is None or self._steps_left <= 0:
            await self._begin()
        raw = self._raw
        assert raw is not None
        self._steps_left -= 1
        said = []
        for _ in range(self.rng.choice(BURSTS)):
            raw.writer.write(self._frame())
            said.append(self.said)
            self.frames += 1
        self.said = "; ".join(said)
        if self.rng.random() < 0.01:
            await self.close()  # in the middle of whatever the broker does with it
            return
        raw.send("PING")
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                with contextlib.suppress(ConnectionError):
                    await raw.writer.drain()
                while True:
                    came = await raw.receive_or_end(ANSWER_TIMEOUT_S)
                    if came is None:
                        await self.close()
                        return
                    self._note(came)
                    if came.command.type == BaseCommand.PONG:
                        return
        except TimeoutError:
            raise AssertionError(f"no answer within {ANSWER_TIMEOUT_S} s to {self.said}") from None

    async def _begin(self) -> None:
        await self.close()
        self._raw = raw = await Raw.open(self.port)
        self._steps_left = self.rng.randrange(5, 60)
        self._pending = {}
        self._asked = {}
        self._producers = set()
        version = self.rng.choice((21, 21, 21, 10, 4, 0))
        raw.send(
            "CONNECT",
            client_version=self.rng.choice(("fuzz", "Pulsar-CPP-v4", "Pulsar-Go-v1")),
            protocol_version=version,
        )
        if self.rng.random() < 0.8:
            await self._settle(raw)

    async def _settle(self, raw: Raw) -> None:
        """Create valid producers and consumers first so that later frames reach deeper code."""
        rng = self.rng
        for id_ in range(rng.choice((0, 1, 2, 3))):
            request_id = self._next_request()
            self._asked[request_id] = id_
            raw.send("PRODUCER", topic=rng.choice(TOPICS), producer_id=id_, request_id=request_id,
                     producer_name=f"f{request_id}")  # fmt: skip
        for id_ in range(rng.randrange(4)):
            raw.send("SUBSCRIBE", topic=rng.choice(TOPICS), subscription=rng.choice(SUBSCRIPTIONS),
                     subType=rng.choice((0, 1, 2)), consumer_id=id_, request_id=self._next_request())  # fmt: skip
            raw.send("FLOW", consumer_id=id_, messagePermits=rng.choice((1, 50, 1000)))
        raw.send("PING")
        while True:
            came = await raw.receive_or_end(ANSWER_TIMEOUT_S)
            if came is None or came.command.type == BaseCommand.PONG:
                return
            self._note(came)

    def _frame(self) -> bytes:
        rng = self.rng
        times = rng.choice((0, 1, 1, 1, 2, 4))
        if rng.random() < (0.4 if self._producers else 0.03):
            return self._send(times)
        kind = rng.choice(FREQUENT if rng.random() < 0.6 else CLIENT_KINDS if rng.random() < 0.9 else KINDS)
        fields = fields_of(kind)
        tree = tree_of(rng, fields, self._sane)
        if kind == "ACK":
            tree["message_id"] = [self._id() for _ in range(rng.choice((1, 1, 3)))]
        spoil(rng, fields, tree, times)
        type_ = rng.choice((None,) * 40 + (0, 200, 21, 65, 1 << 31, (1 << 64) - 1))
        frame = command_frame(kind, tree, b"" if rng.random() < 0.97 else rng.randbytes(20), type_)
        self.said = _short(f"{kind} {tree} type={type_}")
        return frame

    def _send(self, times: int) -> bytes:
        rng = self.rng
        self._body += 1
        command = {"producer_id": self._producer(), "sequence_id": self._body, "num_messages": 1}
        metadata: Tree = {
            "producer_name": f"f{rng.randrange(3)}", "sequence_id": self._body, "publish_time": int(time.time() * 1000)
        }  # fmt: skip
        metadata |= tree_of(rng, MessageMetadata.DESCRIPTOR, self._sane, 0.03) | metadata
        body = b"body %d" % self._body
        if rng.random() < 0.3:
            count = rng.choice((1, 2, 10))
            metadata["num_messages_in_batch"] = command["num_messages"] = count
            body = batch_body(rng, count, times > 0)
        for _ in range(times):
            if rng.random() < 0.4:
                spoil(rng, fields_of("SEND"), command, 1)
            else:
                spoil(rng, MessageMetadata.DESCRIPTOR, metadata, 1)
        section = payload_section(rng, metadata, body, times > 0)
        self.sent.add(section)
        self.said = _short(f"SEND {command} {metadata} body of {len(body)}")
        sent = BaseCommand.FromString(b"\x08\x06\x32" + _sized(encode(fields_of("SEND"), command))).send
        self._pending.setdefault(sent.producer_id, {}).setdefault(sent.sequence_id, []).append(section)
        return command_frame("SEND", command, section)

    def _note(self, frame: Frame) -> None:
        command = frame.command
        self.came[BaseCommand.Type.Name(command.type)] += 1
        self.bytes_in += command.ByteSize() + len(frame.payload)
        if command.type == BaseCommand.SEND_RECEIPT:
            self._receipt(command)
        elif command.type == BaseCommand.PRODUCER_SUCCESS and command.producer_success.request_id in self._asked:
            self._producers.add(self._asked[command.producer_success.request_id])
        elif command.type == BaseCommand.CLOSE_PRODUCER:
            self._producers.discard(command.close_producer.producer_id)
        elif command.type == BaseCommand.MESSAGE:
            id_ = command.message.message_id
            self._positions.append((id_.ledgerId, id_.entryId))

    def _receipt(self, command: BaseCommand) -> None:
        receipt = command.send_receipt
        sections = tuple(self._pending.get(receipt.producer_id, {}).get(receipt.sequence_id, ()))
        assert sections, f"a receipt for {receipt.sequence_id} of producer {receipt.producer_id}, which was not sent"
        position = receipt.message_id.ledgerId, receipt.message_id.entryId
        if position[0] != (1 << 64) - 1:
            if position != UNSTORED:
                assert position not in self.receipted, f"position {position} was given twice"
                self.receipted[position] = sections
            self._positions.append(position)

    async def close(self) -> None:
        """Close the current connection, whatever it is doing."""
        if self._raw is not None:
            await self._raw.close()
            self._raw = None


def _sized(body: bytes) -> bytes:
    return varint(len(body)) + body


def _short(text: str) -> str:
    return text if len(text) < 2000 else f"{text[:1500]} … ({len(text)} characters)"
