"""A client that speaks the protocol in bytes and records the replies; a test decides when its frames arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.wire.frames import FrameDecoder, encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata, ProducerAccessMode

from tests.broker.raw import FIELDS

from .facts import Facts

if TYPE_CHECKING:
    from magnetar.broker.session.connection import Connection

    from .incarnation import Incarnation

EXCLUSIVE_MODES = (
    ProducerAccessMode.Exclusive,
    ProducerAccessMode.WaitForExclusive,
    ProducerAccessMode.ExclusiveWithFencing,
)


@dataclass
class PeerProducer:
    """A producer's state at the client: ``opening``, ``waiting``, ``ready``, ``closing`` or ``closed``."""

    id: int
    topic: str
    mode: int
    state: str = "opening"
    sent: deque[tuple[int, bytes]] = field(default_factory=deque)
    next_sequence: int = 0


@dataclass
class PeerConsumer:
    """A consumer's state at the client: ``opening``, ``attached``, ``closing`` or ``closed``."""

    id: int
    topic: str
    subscription: str
    is_durable: bool
    kind: int
    state: str = "opening"
    got: list[Position] = field(default_factory=list)


@dataclass
class Request:
    """A request without a reply."""

    kind: str
    producer: PeerProducer | None = None
    consumer: PeerConsumer | None = None
    position: Position | None = None
    facts: Facts | None = None

    @property
    def may_wait(self) -> bool:
        """Return whether a reply may never arrive: a producer is queued, or the consumer of the acks was closed."""
        if self.kind == "ACK":
            return self.consumer is not None and self.consumer.state == "closed"
        return self.producer is not None and self.producer.state == "waiting"


class Peer(asyncio.Transport):
    """A client with one connection, which is this transport.

    Attributes:
        outbox: frames that have not reached the broker.
        requests: requests without a reply, by id.
        is_deaf: whether it never answers a PING, so that the broker considers it dead.
    """

    def __init__(self, incarnation: Incarnation, number: int, *, is_deaf: bool) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000 + number)})
        self.incarnation = incarnation
        self.number = number
        self.is_deaf = is_deaf
        self.outbox: deque[bytes] = deque()
        self.requests: dict[int, Request] = {}
        self.producers: dict[int, PeerProducer] = {}
        self.consumers: dict[int, PeerConsumer] = {}
        self.is_read = True
        self.is_gone = False
        self._is_closing = False
        self._decoder = FrameDecoder()
        self._next_id = 0
        assert incarnation.loop.accept is not None
        self.connection: Connection = incarnation.loop.accept()
        self.connection.connection_made(self)
        self._put("CONNECT", client_version="race", protocol_version=21)

    def __repr__(self) -> str:
        return f"peer {self.number}"

    # The transport that the broker sees

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.incarnation.loop.call_soon(self._lost)

    def abort(self) -> None:
        self.close()

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not self.is_gone:
            for command, payload in self._decoder.feed(bytes(data)):
                self._receive(command, payload)

    def _lost(self) -> None:
        if not self.is_gone:
            self.forget()
            self.connection.connection_lost(None)

    def forget(self) -> None:
        """Drop all requests and resources of this client; topics that it asked to delete may be deleted."""
        self.is_gone = True
        self.requests.clear()
        self.outbox.clear()

    # What the client does

    @property
    def can_deliver(self) -> bool:
        return bool(self.outbox) and self.is_read and not self._is_closing

    def deliver(self, frames: int) -> None:
        """Deliver a number of frames to the broker in one batch."""
        self.connection.data_received(b"".join(self.outbox.popleft() for _ in range(min(frames, len(self.outbox)))))

    def leave(self) -> None:
        """Break the connection."""
        self._is_closing = True
        self._lost()

    def create_producer(self, topic: str, mode: int, name: str) -> None:
        producer = PeerProducer(self._new_id(), topic, mode)
        self.producers[producer.id] = producer
        fields: dict[str, Any] = {"producer_name": name} if name else {}
        self._ask(
            Request("PRODUCER", producer=producer),
            topic=topic, producer_id=producer.id, producer_access_mode=mode, **fields,
        )  # fmt: skip

    def send(self, producer: PeerProducer) -> None:
        sequence = producer.next_sequence
        producer.next_sequence += 1
        body = f"{self.number}/{producer.id}/{sequence}".encode()
        producer.sent.append((sequence, body))
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id, command.send.sequence_id = producer.id, sequence
        metadata = MessageMetadata(producer_name="p", sequence_id=sequence, publish_time=self.incarnation.now_ms())
        self.outbox.append(encode_frame(command, seal(metadata, body)))

    def close_producer(self, producer: PeerProducer) -> None:
        producer.state = "closing"
        self._ask(Request("CLOSE_PRODUCER", producer=producer), producer_id=producer.id)

    def subscribe(self, topic: str, subscription: str, kind: int, *, is_durable: bool) -> None:
        consumer = PeerConsumer(self._new_id(), topic, subscription, is_durable, kind)
        self.consumers[consumer.id] = consumer
        self._ask(
            Request("SUBSCRIBE", consumer=consumer),
            topic=topic, subscription=subscription, subType=kind, consumer_id=consumer.id, durable=is_durable,
            initialPosition=CommandSubscribe.Earliest, consumer_name=f"c{self.number}-{consumer.id}",
        )  # fmt: skip

    def acknowledge(self, consumer: PeerConsumer, position: Position) -> None:
        self._ask(
            Request("ACK", consumer=consumer, position=position),
            consumer_id=consumer.id, ack_type=0,
            message_id=[{"ledgerId": position.ledger_id, "entryId": position.entry_id}],
        )  # fmt: skip

    def close_consumer(self, consumer: PeerConsumer) -> None:
        consumer.state = "closing"
        self._ask(Request("CLOSE_CONSUMER", consumer=consumer), consumer_id=consumer.id)

    def unsubscribe(self, consumer: PeerConsumer) -> None:
        consumer.state = "closing"
        facts = self.incarnation.facts[consumer.topic]
        facts.subscription_may_go(consumer.subscription)
        self._ask(Request("UNSUBSCRIBE", consumer=consumer, facts=facts), consumer_id=consumer.id)

    def seek(self, consumer: PeerConsumer) -> None:
        facts = self.incarnation.facts[consumer.topic]
        facts.subscription_moves(consumer.subscription)
        self._ask(
            Request("SEEK", consumer=consumer, facts=facts),
            consumer_id=consumer.id, message_id={"ledgerId": 0, "entryId": 0},
        )  # fmt: skip

    def ask_last(self, consumer: PeerConsumer) -> None:
        self._ask(Request("GET_LAST_MESSAGE_ID", consumer=consumer), consumer_id=consumer.id)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _ask(self, request: Request, **fields: Any) -> None:
        id_ = self._new_id()
        self.requests[id_] = request
        self._put(request.kind, request_id=id_, **fields)

    def _put(self, kind: str, **fields: Any) -> None:
        command = BaseCommand(type=BaseCommand.Type.Value(kind))  # type: ignore[arg-type]
        target = getattr(command, FIELDS[kind])
        target.SetInParent()
        target.MergeFrom(type(target)(**fields))
        self.outbox.append(encode_frame(command))

    # What the client is told

    def _receive(self, command: BaseCommand, payload: bytes) -> None:
        name = BaseCommand.Type.Name(command.type).lower()
        handler = getattr(self, f"_on_{name}", None)
        if handler is not None:
            handler(getattr(command, FIELDS[BaseCommand.Type.Name(command.type)]))

    def _answered(self, request_id: int) -> Request:
        request = self.requests.pop(request_id, None)
        assert request is not None, f"{self}: an answer to request {request_id}, which has one or was never made"
        return request

    def _on_ping(self, _: Any) -> None:
        if not self.is_deaf:
            self._put("PONG")

    def _on_success(self, answer: Any) -> None:
        request = self._answered(answer.request_id)
        consumer = request.consumer
        match request.kind:
            case "SUBSCRIBE":
                assert consumer is not None
                assert consumer.state != "closed", f"{self}: SUCCESS of {consumer} after its CLOSE_CONSUMER"
                if consumer.state == "opening":
                    consumer.state = "attached"
                    self._put("FLOW", consumer_id=consumer.id, messagePermits=1000)
                if consumer.is_durable:
                    self.incarnation.facts[consumer.topic].subscribed(consumer.subscription)
            case "UNSUBSCRIBE":
                assert consumer is not None
                consumer.state = "closed"
                assert request.facts is not None
                request.facts.subscription_answered(consumer.subscription)
            case "SEEK":
                assert consumer is not None
                assert request.facts is not None
                request.facts.subscription_moved(consumer.subscription)
            case "CLOSE_CONSUMER":
                assert consumer is not None
                consumer.state = "closed"
            case "CLOSE_PRODUCER":
                assert request.producer is not None
                request.producer.state = "closed"

    def _on_error(self, answer: Any) -> None:
        request = self._answered(answer.request_id)
        self.incarnation.note(f"{self}: {request.kind} answered by {answer.message}")
        if request.kind == "SUBSCRIBE" and request.consumer is not None:
            request.consumer.state = "closed"
        if request.kind == "PRODUCER" and request.producer is not None:
            request.producer.state = "closed"
        if request.facts is not None and request.consumer is not None:
            if request.kind == "UNSUBSCRIBE":
                request.facts.subscription_answered(request.consumer.subscription)
            else:
                request.facts.subscription_moved(request.consumer.subscription)

    def _on_producer_success(self, answer: Any) -> None:
        request = self.requests[answer.request_id] if not answer.producer_ready else self._answered(answer.request_id)
        producer = request.producer
        assert producer is not None
        if producer.state in ("opening", "waiting"):
            producer.state = "ready" if answer.producer_ready else "waiting"

    def _on_send_receipt(self, receipt: Any) -> None:
        producer = self.producers[receipt.producer_id]
        assert producer.sent, f"{self}: a receipt for nothing"
        sequence, body = producer.sent.popleft()
        assert sequence == receipt.sequence_id, f"{self}: receipts out of order"
        id_ = receipt.message_id
        if id_.ledgerId < 1 << 63:
            self.incarnation.facts[producer.topic].receipted(Position(id_.ledgerId, id_.entryId), body)

    def _on_send_error(self, error: Any) -> None:
        self.incarnation.note(f"{self}: SEND answered by {error.message}")

    def _on_close_producer(self, command: Any) -> None:
        producer = self.producers.get(command.producer_id)
        if producer is not None:
            producer.state = "closed"  # what was sent before may still get its receipts
            self._drop(producer)

    def _drop(self, producer: PeerProducer) -> None:
        """Drop the requests of a producer closed by the broker, because the client repeats them."""
        for id_, request in list(self.requests.items()):
            if request.producer is producer and request.kind == "PRODUCER":
                del self.requests[id_]

    def _on_close_consumer(self, command: Any) -> None:
        consumer = self.consumers.get(command.consumer_id)
        if consumer is not None:
            consumer.state = "closed"

    def _on_message(self, command: Any) -> None:
        consumer = self.consumers.get(command.consumer_id)
        if consumer is not None:
            consumer.got.append(Position(command.message_id.ledgerId, command.message_id.entryId))

    def _on_ack_response(self, answer: Any) -> None:
        request = self._answered(answer.request_id)
        if not answer.HasField("error") and request.consumer is not None and request.position is not None:
            self.incarnation.facts[request.consumer.topic].acked(request.consumer.subscription, request.position)

    def _on_get_last_message_id_response(self, answer: Any) -> None:
        self._answered(answer.request_id)
