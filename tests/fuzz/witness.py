"""A well-behaved client: it publishes and consumes continuously, and checks its results exactly."""

from __future__ import annotations

import time

from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.broker.raw import Raw

NAMESPACE = "public/witness"
TOPIC = f"persistent://{NAMESPACE}/t"
TIMEOUT_S = 120.0


class Witness:
    """One producer and one consumer on a separate topic.

    Attributes:
        bodies: what was receipted, in order, by position.
    """

    def __init__(self, raw: Raw):
        self._raw = raw
        self.bodies: dict[tuple[int, int], bytes] = {}

    @classmethod
    async def connected(cls, port: int) -> Witness:
        raw = await Raw.connected(port)
        await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="witness")
        await raw.request("SUBSCRIBE", topic=TOPIC, subscription="w", subType=0, consumer_id=1, request_id=2)
        return cls(raw)

    @property
    def steps(self) -> int:
        """Number of messages published and consumed."""
        return len(self.bodies)

    async def step(self) -> None:
        """Publish a message, await its receipt, receive and acknowledge it; nothing else may arrive."""
        raw = self._raw
        number = len(self.bodies)
        body = b"witness %d" % number
        raw.send("FLOW", consumer_id=1, messagePermits=1)
        raw.send_message(body, sequence_id=number, metadata={"publish_time": int(time.time() * 1000)})
        receipt = message = None
        while receipt is None or message is None:
            frame = await raw.receive(TIMEOUT_S)
            command = frame.command
            if command.type == BaseCommand.PING:
                raw.send("PONG")
            elif command.type == BaseCommand.SEND_RECEIPT and receipt is None:
                receipt = command.send_receipt
                assert receipt.sequence_id == number
            else:
                assert command.type == BaseCommand.MESSAGE, command
                assert message is None, "a message came twice"
                message = command.message.message_id
                _, start = open_payload(frame.payload)
                assert frame.payload[start:] == body
        position = receipt.message_id.ledgerId, receipt.message_id.entryId
        assert position == (message.ledgerId, message.entryId)
        self.bodies[position] = body
        raw.send("ACK", consumer_id=1, ack_type=0, message_id=[message], request_id=number)
        while (answer := (await raw.receive(TIMEOUT_S)).command).type == BaseCommand.PING:
            raw.send("PONG")
        assert answer.ackResponse.request_id == number
        assert not answer.ackResponse.HasField("error")

    async def close(self) -> None:
        """Close the connection."""
        await self._raw.close()
