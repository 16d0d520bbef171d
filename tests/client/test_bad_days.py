"""Brokers that redirect, refuse, contradict themselves or send damaged data."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from magnetar.client import (
    EARLIEST,
    AsyncClient,
    ClientConfig,
    ConsumerConfig,
    DamagedEntry,
    MessageId,
    ProducerConfig,
    ReceivedEntry,
)
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.producers.producer import Producer
from magnetar.errors import (
    AuthorizationError,
    BrokerError,
    ChecksumError,
    ClosedError,
    ConnectionLost,
    ConsumerBusy,
    InvalidConfig,
    MagnetarError,
    MessageTooLarge,
    NotAllowed,
    ProtocolError,
    ServiceNotReady,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.wire.batch import encode_plain_batch
from magnetar.wire.bulk import receipt_frame
from magnetar.wire.frames import encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandAck,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandPing,
    CommandSendReceipt,
    CommandTopicMigrated,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

from tests.client.scripted import (
    LEDGER,
    ScriptedBroker,
    connected,
    entry,
    partitions,
    producer_success,
    redirected,
    refused,
    send_error,
    success,
)
from tests.support.calm import Calm

CONFIG = ClientConfig(operation_timeout_s=20, connection_timeout_s=20, backoff_initial_ms=5, backoff_max_ms=20)
IMPATIENT_S = 5.0
"""For what ends with its time only."""
NOBODY = (1 << 64) - 1
pytestmark = pytest.mark.slow


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as it:
        yield it


@pytest_asyncio.fixture
async def client(broker: ScriptedBroker) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(broker.service_url, CONFIG) as it:
        yield it


@pytest_asyncio.fixture
async def impatient(broker: ScriptedBroker) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(broker.service_url, replace(CONFIG, operation_timeout_s=IMPATIENT_S)) as it:
        yield it


async def producing(client: AsyncClient, **settings: Any) -> Producer:
    made = await client.create_producer("t", ProducerConfig(**{"batching": False, **settings}))
    assert isinstance(made, Producer)
    return made


async def consuming(client: AsyncClient, **settings: Any) -> Consumer:
    made = await client.subscribe("t", "s", ConsumerConfig(**settings))
    assert isinstance(made, Consumer)
    return made


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        await asyncio.sleep(0.002)


def message(sequence_id: int, text: bytes = b"x", **fields: Any) -> bytes:
    return seal(MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1, **fields), text)


# -- finding a broker ---------------------------------------------------------------------------------------------


async def test_a_redirect_is_followed_with_authority(broker: ScriptedBroker, client: AsyncClient) -> None:
    async with ScriptedBroker() as owner:
        broker.answers[BaseCommand.LOOKUP] = lambda c, _: [redirected(c.lookupTopic.request_id, owner.service_url)]
        await (await producing(client)).send(b"x")
        (asked,) = owner.commands(BaseCommand.LOOKUP)
        assert asked.lookupTopic.authoritative
        assert (owner.entries, broker.entries) == (1, 0)


async def test_endless_redirects_end(broker: ScriptedBroker, impatient: AsyncClient) -> None:
    broker.answers[BaseCommand.LOOKUP] = lambda c, _: [redirected(c.lookupTopic.request_id, broker.service_url)]
    with pytest.raises(ConnectionLost, match="redirected more than 20 times"):
        await impatient.create_producer("t")


async def test_what_may_pass_is_asked_again_until_the_time_is_over(
    broker: ScriptedBroker, client: AsyncClient, impatient: AsyncClient
) -> None:
    broker.answers[BaseCommand.PRODUCER] = lambda c, _: [
        refused(c.producer.request_id, ServerError.ServiceNotReady, "loading")
        if len(broker.commands(BaseCommand.PRODUCER)) < 3
        else producer_success(c.producer.request_id)
    ]
    await producing(client)
    assert len(broker.commands(BaseCommand.PRODUCER)) == 3
    broker.answers[BaseCommand.SUBSCRIBE] = lambda c, _: [
        refused(c.subscribe.request_id, ServerError.ServiceNotReady, "never ready")
    ]
    began = Calm()
    with pytest.raises(ServiceNotReady, match="never ready"):
        await consuming(impatient)
    assert began.elapsed_s > 0.9 * IMPATIENT_S
    assert began.calm_s < 2 * IMPATIENT_S, began


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ServerError.TopicNotFound, TopicNotFound),
        (ServerError.ConsumerBusy, ConsumerBusy),
        (ServerError.AuthorizationError, AuthorizationError),
        (ServerError.NotAllowedError, NotAllowed),
    ],
)
async def test_what_cannot_pass_is_raised_at_once(
    broker: ScriptedBroker, client: AsyncClient, code: int, kind: type[BrokerError]
) -> None:
    broker.answers[BaseCommand.SUBSCRIBE] = lambda c, _: [refused(c.subscribe.request_id, code, "no")]
    with pytest.raises(kind, match="no"):
        await consuming(client)
    assert len(broker.commands(BaseCommand.SUBSCRIBE)) == 1


async def test_a_refused_handshake_is_raised(broker: ScriptedBroker, client: AsyncClient) -> None:
    broker.answers[BaseCommand.CONNECT] = lambda _c, _p: [
        refused(NOBODY, ServerError.AuthenticationError, "Failed to authenticate")
    ]
    with pytest.raises(BrokerError, match="refused the connection: Failed to authenticate"):
        await client.create_producer("t")


async def test_garbage_closes_the_connection(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    await producer.send(b"x")
    before = broker.connections
    broker.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await until(lambda: broker.connections > before, "the client comes again")
    await producer.send(b"y")
    broker.answers[BaseCommand.CONNECT] = lambda _c, _p: [b"\x00\x00\x00\x05\x00\x00\x00\x01\xff"]
    async with AsyncClient(broker.service_url, replace(CONFIG, operation_timeout_s=IMPATIENT_S)) as other:
        with pytest.raises(ProtocolError, match="does not speak Pulsar's binary protocol"):
            await other.create_producer("t")


async def test_pings_are_answered_and_unknown_commands_skipped(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    before = broker.connections
    migrated = CommandTopicMigrated(resource_id=0, resource_type=CommandTopicMigrated.Producer)
    broker.say(
        encode_frame(BaseCommand(type=BaseCommand.TOPIC_MIGRATED, topicMigrated=migrated)),
        encode_frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing())),
    )
    await until(lambda: broker.commands(BaseCommand.PONG), "a PONG")
    await producer.send(b"x")
    assert broker.connections == before


# -- sending ------------------------------------------------------------------------------------------------------


async def test_the_limit_of_the_broker_holds(broker: ScriptedBroker, client: AsyncClient) -> None:
    broker.answers[BaseCommand.CONNECT] = lambda _c, _p: [connected(1000)]
    producer = await producing(client)
    with pytest.raises(MessageTooLarge, match="message of 1001 bytes exceeds the broker's max_message_bytes=1000"):
        await producer.send(b"x" * 1001)
    batching = await producing(client, batching=True)
    futures = [batching.send_nowait(b"x" * 600) for _ in range(2)]
    for result in await asyncio.gather(*futures, return_exceptions=True):
        assert isinstance(result, MessageTooLarge)
    await batching.send(b"x" * 900)


async def test_the_last_sequence_id_of_the_broker_is_continued(broker: ScriptedBroker, client: AsyncClient) -> None:
    broker.answers[BaseCommand.PRODUCER] = lambda c, _: [producer_success(c.producer.request_id, "p", 41)]
    producer = await producing(client)
    assert producer.last_sequence_id == 41
    await producer.send(b"x")
    assert [c.send.sequence_id for c in broker.commands(BaseCommand.SEND)] == [42]
    fixed = await producing(client, initial_sequence_id=7)
    await fixed.send(b"x")
    assert broker.commands(BaseCommand.SEND)[-1].send.sequence_id == 7


async def test_a_receipt_that_is_ahead_has_everything_sent_again(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    broker.answers[BaseCommand.SEND] = lambda c, _: (
        [receipt_frame(0, 1, None, LEDGER, 9)] if c.send.sequence_id == 1 else []
    )
    sends = [producer.send_nowait(b"0"), producer.send_nowait(b"1")]
    await until(lambda: len(broker.commands(BaseCommand.SEND)) >= 2, "both were sent")
    broker.answers[BaseCommand.SEND] = broker.stored
    ids = await asyncio.wait_for(asyncio.gather(*sends), 30)
    assert [i.entry_id for i in ids] == [0, 1]
    assert [c.send.sequence_id for c in broker.commands(BaseCommand.SEND)][-2:] == [0, 1]


async def test_receipts_of_nothing_pending_are_skipped(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    await producer.send(b"x")
    before = broker.connections
    broker.say(receipt_frame(0, 0, None, LEDGER, 0), receipt_frame(99, 0, None, LEDGER, 0))
    assert (await producer.send(b"y")).entry_id == 1
    assert broker.connections == before


async def test_a_duplicate_has_the_id_that_says_so(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    broker.answers[BaseCommand.SEND] = lambda c, _: [receipt_frame(0, c.send.sequence_id, None, NOBODY, NOBODY)]
    assert (await producer.send(b"x"))[:2] == (-1, -1)


async def test_a_refused_entry_fails_alone(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    broker.answers[BaseCommand.SEND] = lambda c, p: (
        [send_error(0, 1, ServerError.NotAllowedError, "Exceed maximum message size")]
        if c.send.sequence_id == 1
        else broker.stored(c, p)
    )
    results = await asyncio.gather(*(producer.send(b"x") for _ in range(3)), return_exceptions=True)
    assert isinstance(results[1], NotAllowed)
    assert [r.entry_id for r in (results[0], results[2]) if not isinstance(r, BaseException)] == [0, 1]
    assert broker.connections == 1


@pytest.mark.parametrize("code", [ServerError.ChecksumError, ServerError.PersistenceError, ServerError.MetadataError])
async def test_an_entry_that_was_not_stored_is_sent_again(
    broker: ScriptedBroker, client: AsyncClient, code: int
) -> None:
    producer = await producing(client)
    broker.answers[BaseCommand.SEND] = lambda c, p: (
        [send_error(0, c.send.sequence_id, code, "not now")] if broker.connections == 1 else broker.stored(c, p)
    )
    ids = await asyncio.wait_for(asyncio.gather(*(producer.send(b"x") for _ in range(3))), 30)
    assert [i.entry_id for i in ids] == [0, 1, 2]
    assert broker.connections == 2


async def test_an_entry_damaged_in_our_own_memory_fails(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    broker.answers[BaseCommand.SEND] = lambda _c, _p: []
    sends = [producer.send_nowait(b"0"), producer.send_nowait(b"1")]
    head = producer._pending.head
    assert head is not None
    head.payload = head.payload[:-1] + b"?"
    await until(lambda: len(broker.commands(BaseCommand.SEND)) == 2, "both were sent")
    broker.say(send_error(0, 0, ServerError.ChecksumError, "Checksum failed"), receipt_frame(0, 1, None, LEDGER, 5))
    results = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(results[0], ChecksumError)
    assert broker.connections == 1


async def test_a_terminated_topic_ends_the_producer(broker: ScriptedBroker, client: AsyncClient) -> None:
    producer = await producing(client)
    broker.answers[BaseCommand.SEND] = lambda _c, _p: [send_error(0, 0, ServerError.TopicTerminatedError, "terminated")]
    results = await asyncio.gather(*(producer.send(b"x") for _ in range(2)), return_exceptions=True)
    assert [type(result) for result in results] == [TopicTerminated] * 2
    with pytest.raises(TopicTerminated):
        producer.send_nowait(b"y")
    with pytest.raises(TopicTerminated):
        await producer.ready()


# -- receiving ----------------------------------------------------------------------------------------------------


async def test_damaged_entries_are_named_to_the_broker_and_skipped(broker: ScriptedBroker, client: AsyncClient) -> None:
    consumer = await consuming(client, receiver_queue_size=2)
    by_entry = await client.subscribe("t", "by-entry")
    good = message(0, b"good")
    broken_batch = message(2, b"\x00\x00\x00\x09rubbish", num_messages_in_batch=1)
    broken_compression = message(3, b"rubbish", compression=1, uncompressed_size=100)
    huge = message(4, b"rubbish", compression=3, uncompressed_size=1 << 30)
    broker.say(
        entry(0, message(1)[:-1] + b"?"),  # the checksum does not fit
        entry(1, b"\x00\x00\x00\x63short"),  # the metadata is longer than the entry
        entry(2, broken_batch),
        entry(3, broken_compression),
        entry(4, huge),
        entry(5, good),
    )
    assert (await consumer.receive(30)).data == b"good"
    await until(lambda: len(broker.commands(BaseCommand.ACK)) == 5, "each damaged entry is named")
    named = {c.ack.message_id[0].entryId: c.ack.validation_error for c in broker.commands(BaseCommand.ACK)}
    damaged_batch = CommandAck.BatchDeSerializeError
    assert named[0] == CommandAck.ChecksumMismatch
    assert {named[i] for i in (1, 2)} == {damaged_batch}
    assert {named[i] for i in (3, 4)} == {CommandAck.DecompressionError}
    bad = ReceivedEntry(MessageId(LEDGER, 9), "t", MessageMetadata(num_messages_in_batch=1), 0, 1, (b"rubbish", 0, 99))
    with pytest.raises(DamagedEntry) as caught:
        bad.messages()
    by_entry.discard(bad, caught.value)
    await until(lambda: len(broker.commands(BaseCommand.ACK)) == 6, "that one too")
    # Every one of the six came back as a permit, as the broker counted them.

    def permits() -> int:
        return sum(c.flow.messagePermits for c in broker.commands(BaseCommand.FLOW) if c.flow.consumer_id == 0)

    await until(lambda: permits() == 2 + 6, "all permits")


async def test_entries_without_checksum_or_with_broker_metadata_are_read(
    broker: ScriptedBroker, client: AsyncClient
) -> None:
    consumer = await consuming(client)
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
    bare = struct.pack(">I", len(metadata)) + metadata + b"bare"
    own = BrokerEntryMetadata(broker_timestamp=5, index=6).SerializeToString()
    broker.say(entry(0, bare), entry(1, struct.pack(">HI", 0x0E02, len(own)) + own + message(1, b"indexed")))
    assert [(await consumer.receive(30)).data for _ in range(2)] == [b"bare", b"indexed"]


async def test_entries_of_before_a_redelivery_are_dropped(broker: ScriptedBroker, client: AsyncClient) -> None:
    consumer = await consuming(client, receiver_queue_size=2)
    broker.say(entry(0, message(0, b"old"), epoch=0))
    await consumer.receive(30)
    consumer.redeliver_unacknowledged()
    await until(lambda: broker.commands(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES), "the request")
    (asked,) = broker.commands(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    assert asked.redeliverUnacknowledgedMessages.consumer_epoch == 1
    broker.say(entry(1, message(1, b"on its way"), epoch=0), entry(0, message(0, b"old"), epoch=1))
    assert (await consumer.receive(30)).data == b"old"
    assert consumer.queued_messages == 0


async def test_permits_are_given_back_as_the_broker_counted_them(broker: ScriptedBroker, client: AsyncClient) -> None:
    consumer = await consuming(client, receiver_queue_size=4, type="Shared", ack_grouping_ms=60_000)
    batch = message(0, encode_plain_batch([b"0", b"1", b"2"]), num_messages_in_batch=3)
    broker.say(entry(0, batch, ack_set=(0b101,)))
    first = await consumer.receive_entry()
    assert (first.permits, first.wanted_indexes()) == (2, [0, 2])
    consumer.ack(first.messages()[0])
    broker.say(entry(0, batch))  # again, by a broker that keeps no sets: all three are counted, one is new
    again = [m.data for m in (await consumer.receive_entry()).messages()]
    assert again == [b"2"]
    consumer.ack_entry(first)
    broker.say(entry(0, batch), entry(1, message(1, b"next")))  # done: its acknowledgement is on the way
    assert (await consumer.receive(30)).data == b"next"
    flows = [c.flow.messagePermits for c in broker.commands(BaseCommand.FLOW)]
    await until(lambda: sum(c.flow.messagePermits for c in broker.commands(BaseCommand.FLOW)) >= 4 + 2 + 3 + 3, "all")
    assert flows[0] == 4


async def test_compacted_messages_are_left_out(broker: ScriptedBroker, client: AsyncClient) -> None:
    from magnetar.wire.batch import encode_batch
    from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

    consumer = await consuming(client)
    body = encode_batch([(SingleMessageMetadata(compacted_out=True), b""), (None, b"kept")])
    broker.say(entry(0, message(0, body, num_messages_in_batch=2)))
    kept = await consumer.receive(30)
    assert (kept.data, kept.message_id.batch_index, kept.message_id.batch_size) == (b"kept", 1, 2)


async def test_a_closed_consumer_subscribes_again_with_its_id(broker: ScriptedBroker, client: AsyncClient) -> None:
    consumer = await consuming(client, name="c")
    close = CommandCloseConsumer(consumer_id=0, request_id=NOBODY)
    broker.say(encode_frame(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)))
    await until(lambda: len(broker.commands(BaseCommand.SUBSCRIBE)) == 2, "it subscribes again")
    first, second = (c.subscribe for c in broker.commands(BaseCommand.SUBSCRIBE))
    assert (first.consumer_id, first.consumer_name) == (second.consumer_id, second.consumer_name) == (0, "c")
    await until(lambda: len(broker.commands(BaseCommand.FLOW)) == 2, "it takes messages again")
    assert consumer.is_connected
    assert broker.connections == 1


async def test_a_consumer_that_is_refused_for_good_says_why(broker: ScriptedBroker, client: AsyncClient) -> None:
    consumer = await consuming(client)
    waiting = asyncio.ensure_future(consumer.receive())
    broker.answers[BaseCommand.SUBSCRIBE] = lambda c, _: [
        refused(c.subscribe.request_id, ServerError.SubscriptionNotFound, "Subscription does not exist")
    ]
    close = CommandCloseConsumer(consumer_id=0, request_id=NOBODY)
    broker.say(encode_frame(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)))
    with pytest.raises(BrokerError, match="Subscription does not exist"):
        await waiting
    with pytest.raises(BrokerError, match="Subscription does not exist"):
        consumer.poll_entry()
    assert not consumer.is_active


async def test_a_busy_subscription_is_waited_for_after_a_reconnection(
    broker: ScriptedBroker, client: AsyncClient
) -> None:
    consumer = await consuming(client)
    broker.answers[BaseCommand.SUBSCRIBE] = lambda c, _: [
        refused(c.subscribe.request_id, ServerError.ConsumerBusy, "half-open")
        if len(broker.commands(BaseCommand.SUBSCRIBE)) < 4
        else success(c.subscribe.request_id)
    ]
    close = CommandCloseConsumer(consumer_id=0, request_id=NOBODY)
    broker.say(encode_frame(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)))
    await until(lambda: len(broker.commands(BaseCommand.SUBSCRIBE)) == 4, "it insists")
    await until(lambda: consumer.is_connected, "it is back")


async def test_a_seek_forgets_acknowledgements_that_nobody_has_confirmed(
    broker: ScriptedBroker, client: AsyncClient
) -> None:
    consumer = await consuming(client, ack_receipts=True, ack_grouping_ms=0)
    broker.say(entry(0, message(0)), entry(1, message(1)))
    confirmed = [consumer.ack(await consumer.receive(30)) for _ in range(2)]
    await until(lambda: len(broker.commands(BaseCommand.ACK)) == 2, "they were sent")
    close = CommandCloseConsumer(consumer_id=0, request_id=NOBODY)
    broker.answers[BaseCommand.SEEK] = lambda c, _: [
        encode_frame(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)),
        success(c.seek.request_id),
    ]
    await consumer.seek(EARLIEST)
    await asyncio.wait_for(asyncio.gather(*confirmed), 30)
    broker.say(entry(0, message(0)))
    assert (await consumer.receive(30)).message_id.entry_id == 0
    await asyncio.sleep(0.05)
    assert len(broker.commands(BaseCommand.ACK)) == 2  # sent again they would skip what the seek asked for


async def test_refused_acknowledgements_say_so(broker: ScriptedBroker, client: AsyncClient) -> None:
    consumer = await consuming(client, ack_receipts=True, ack_grouping_ms=0)

    def refuse(command: BaseCommand, _payload: bytes) -> list[bytes]:
        answer = CommandAckResponse(
            consumer_id=0,
            request_id=command.ack.request_id,
            error=ServerError.NotAllowedError,
            message="no transactions",
        )
        return [encode_frame(BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=answer))]

    broker.answers[BaseCommand.ACK] = refuse
    with pytest.raises(NotAllowed, match="no transactions"):
        await consumer.ack(MessageId(1, 2))
    with pytest.raises(InvalidConfig, match="batch_index 3 is not within batch_size 0"):
        consumer.ack(MessageId(1, 2, -1, 3))
    broker.answers.pop(BaseCommand.ACK)
    unconfirmed = consumer.ack(MessageId(1, 3))
    await consumer._end()
    with pytest.raises(ClosedError, match="closed before this was confirmed"):
        await unconfirmed


async def test_a_cancelled_wait_for_room_gives_its_turn_to_the_next(
    broker: ScriptedBroker, client: AsyncClient
) -> None:
    producer = await producing(client, max_pending_messages=1, block_if_queue_full=True)
    broker.answers[BaseCommand.SEND] = lambda _c, _p: []
    first = producer.send_nowait(b"0")
    cancelled = asyncio.ensure_future(producer.send(b"never"))
    later = asyncio.ensure_future(producer.send(b"1"))
    await asyncio.sleep(0)
    producer.handle_receipt(
        CommandSendReceipt(producer_id=0, sequence_id=0, message_id=MessageIdData(ledgerId=1, entryId=1))
    )
    cancelled.cancel()  # it was let on, but has not run yet
    await first
    await until(lambda: producer.pending_messages == 1, "the next one is let on")
    assert not later.done()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    broker.say(receipt_frame(0, 1, None, LEDGER, 2))
    await later
    assert [payload[-1:] for command, payload in broker.received if command.type == BaseCommand.SEND] == [b"0", b"1"]


async def test_a_wait_without_answer_ends_with_the_operation_timeout(
    broker: ScriptedBroker, client: AsyncClient, impatient: AsyncClient
) -> None:
    consumer = await consuming(impatient)
    with pytest.raises(MagnetarError, match=r"did not answer within 5\.0 s: last message id of persistent://"):
        await consumer.last_message_id()
    broker.answers[BaseCommand.PARTITIONED_METADATA] = lambda c, _: [
        partitions(c.partitionMetadata.request_id),
        partitions(c.partitionMetadata.request_id),  # twice: the second answers nothing
    ]
    assert await client.partitions("t") == ["persistent://public/default/t"]
